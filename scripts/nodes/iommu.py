# SPDX-License-Identifier: GPL-2.0
"""Nodes with an IOMMU before the device: it sees what was mapped for it, and nothing else."""

import re
import time

from . import endpoints, network
from .cases.registry import Case, expect
from .cluster import Cluster
from .device import Device
from .errors import TimedOut
from .kernel import DEBUG, scaled
from .module import reload
from .polling import pause
from .qemu import Config
from .topologies import Topology

# How mappings end (strict: at once; lazy: some time later, many together), and what the kernel
# calls the domain of such a device.
DOMAINS = {"strict": "DMA", "lazy": "DMA-FQ"}
SHORT = ("uldma:uldma_memory", "uldma:uldma_dma")
PROGRAMS = (
    *SHORT,
    "uldma:uldma_region",
    "uldma:uldma_event",
    "uldma:uldma_unbind",
    "uldma:uldma_optimistic",
    "uldma:uldma_optimistic_wait",
)
# In flight is where a mapping that is stale could be used. It is slow, as each page goes from the
# guest to the device.
LAZY_PROGRAMS = (*PROGRAMS, "uldma:uldma_inflight")
# The ways to boot, and what to run there. The debug kernel is to see every path once.
MODES: dict[str, tuple[str, ...]] = (
    {"lazy": SHORT} if DEBUG else {"strict": PROGRAMS, "lazy": LAZY_PROGRAMS}
)
SLOWNESS = 4.0
HELD = 1 << 20
# A packet that the engine moves.
LARGE = 9000
PAGE = 4096
START_TIMEOUT = 20.0
UNMAP_TIMEOUT = 10.0
# Exit status of `uldma`: the data is not what was sent.
MISMATCH = 5


def topology(mode: str) -> Topology:
    """How to boot such nodes."""
    domain = f"nodes.domain={DOMAINS[mode]}"
    config = Config(debug=True, programs=True, iommu=True, cmdline=domain)
    return Topology(f"iommu-{mode}", config, slowness=SLOWNESS)


def in_use(mode: str) -> Case:
    """The case that all others rest on."""

    def domain_and_device_agree(pair: Cluster) -> None:
        """The kernel translates for the device, and the device reaches registered memory only."""
        for name, node in pair.nodes.items():
            domain = node.check("cat /sys/bus/pci/drivers/uldma/*/iommu_group/type").strip()
            expect(domain == DOMAINS[mode], f"node {name}: the device's domain is {domain!r}")
        assert pair.device
        idle = pair.device.reach()
        memory = pair.config.memory << 20
        expect(idle < memory, f"the device reaches {idle} bytes of nodes that have {memory} each")
        holder = pair.a.spawn(f"uldma export iommu --size {HELD}")
        holder.wait_output("exporting", START_TIMEOUT)
        held = pair.device.reach()
        expect(
            held >= idle + HELD,
            f"the device reaches {idle} bytes, and with {HELD} registered {held}",
        )
        holder.end()
        wait_reach(pair.device, held - HELD)

    return domain_and_device_agree


def rights(pair: Cluster) -> None:
    """A device that writes to what it is to read reaches that only where it may write."""
    assert pair.device
    [here, _] = endpoints.of(pair)
    twice = here.command("dma --size 64K --count 2 --timeout 20 --method")
    with pair.device.fault("trespass", here.number):
        # A source that is locked for both: what the device did to it is in the second transfer.
        found = here.node.run(f"{twice} key").rc
        expect(found == MISMATCH, f"the device did not trespass: exit {found}")
        found = here.node.run(f"{twice} extended-shadow").rc
        expect(found == 0, f"the device wrote to what was locked for reading: exit {found}")
    here.node.check(f"{twice} key")


def packets(pair: Cluster) -> None:
    """Packets that the engine moves are mapped for it, and pages while it may write them."""
    assert pair.device
    for node in pair.nodes.values():
        reload(node, "network_engine_bytes=4096")
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    idle = pair.device.reach()
    interfaces = network.up(ends)
    here, there = interfaces
    for interface in interfaces:
        interface.check(f"ip link set {{name}} mtu {LARGE + 1000}")
    for one, other in ((here, there), (there, here)):
        before = engine_packets(one)
        network.ping(one, other.address, f"-M do -s {LARGE}")
        expect(engine_packets(one) > before, f"the engine has moved no packet of {one}")
    expect(pair.device.reach() > idle, "no page is mapped for packets")
    for interface in interfaces:
        interface.check("ip link set {name} down mtu 1500")
    # The first endpoint of a node takes a page of its table, which stays.
    wait_reach(pair.device, idle + PAGE * len(interfaces))
    for node in pair.nodes.values():
        reload(node)


def engine_packets(interface: network.Interface) -> int:
    """How many packets the engine has moved from an interface."""
    [count] = re.findall(r"_tx_engine: (\d+)", interface.check("ethtool -S {name}"))
    return int(count)


def wait_reach(device: Device, limit: int) -> None:
    """Wait until the device reaches no more than that."""
    began = time.monotonic()
    deadline = began + scaled(UNMAP_TIMEOUT)
    while (reach := device.reach()) > limit:
        if time.monotonic() > deadline:
            raise TimedOut(f"the device still reaches {reach} bytes instead of {limit}")
        pause(began)
