# SPDX-License-Identifier: GPL-2.0
"""One guest: the command line of QEMU, and its monitor."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from .errors import NodesError
from .kernel import DEBUG, scaled
from .paths import KDIR

QEMU = "qemu-system-x86_64"
# The kind of object that the guests' memory is, by which /proc names it too.
MEMORY_BACKEND = "memory-backend-memfd"
# It comes before the devices. The caching mode makes the guest tell of new mappings, too.
IOMMU = ("-device", "intel-iommu,caching-mode=on")
# With five levels of page tables, KASAN takes an interrupt during the identification of the first
# processor, when its features are unknown, for a wild access.
CPU = "max,la57=off" if DEBUG else "max"
# Processors with ERMS copy by an instruction that the emulator does byte by byte.
EMULATED_CPU = f"{CPU},erms=off,fsrm=off"
# The debug kernel has KASAN instead of KFENCE and slab debugging.
# The module's unit tests would run each time that it is loaded, for a quarter of a minute.
DEBUG_CMDLINE = "kunit.autorun=0" if DEBUG else "kfence.sample_interval=10 slab_debug=FZPU"
# Processors that stand still make the kernel doubt their clock, and take one that is a register of
# the emulated machine. All of them count by one clock of this machine.
CLOCK_CMDLINE = "tsc=nowatchdog"
# Emulated processors that share few real ones can stand still for longer than the module's default.
LINK_TIMEOUT_MS = 20000 if DEBUG else 5000
# Each attack by a hostile peer would wait for the end of the penalty that the one before has got.
LINK_PENALTY_MS = 1000


# What can reset the device behind it, and its name.
PORT_NAME = "uldma-port"
PORT = ("-device", f"pcie-root-port,id={PORT_NAME},chassis=1,slot=1")


class Backend(StrEnum):
    """What joins the nodes, as `uldma info` calls it."""

    ADAPTER = "adapter"
    IVSHMEM = "ivshmem"
    LOOPBACK = "loopback"


@dataclass(frozen=True)
class Vectors:
    """The interrupt vectors of an ivshmem device: what QEMU has, and what the server gives."""

    device: int = 3
    server: int = 3


@dataclass(frozen=True)
class Disk:
    """A disk whose bytes are zero, /dev/vda and so on once virtio_blk is loaded."""

    size: int  # MiB
    latency: int = 0  # nanoseconds of each access

    def arguments(self, number: int) -> list[str]:
        """The arguments of QEMU for a guest's disk of that number."""
        backend = {
            "driver": "null-co",
            "node-name": f"disk{number}",
            "size": self.size << 20,
            "latency-ns": self.latency,
            "read-zeroes": True,
        }
        device = f"virtio-blk-pci,drive=disk{number}"
        return ["-blockdev", json.dumps(backend), "-device", device]


@dataclass(frozen=True)
class Config:
    """What may differ from boot to boot."""

    memory: int = 1024 if DEBUG else 768  # MiB
    cpus: int = 2
    memory_nodes: int = 1  # each has as many of the processors
    debug: bool = False  # KFENCE and slab debugging
    load: bool = True  # load uldma.ko
    tests: bool = True  # bring tests, samples and benchmarks, too
    programs: bool = False  # bring programs that talk over networks, too
    iommu: bool = False
    character: bool = False  # nodes a and b are joined by a character device of virtio, too
    port: bool = False  # the adapter is behind one, which can reset it
    disks: tuple[Disk, ...] = ()  # of every node
    backends: tuple[Backend, ...] = (Backend.ADAPTER,)
    vectors: Mapping[str, Vectors] = field(default_factory=dict)  # of nodes that have other numbers
    module: Mapping[str, str] = field(default_factory=dict)  # parameters of uldma.ko
    cmdline: str = ""
    boot_timeout: float = scaled(120.0)
    files: dict[str, Path] = field(default_factory=dict)  # path in node a -> file here
    archives: tuple[Path, ...] = ()  # unpacked over everything else
    brought: tuple[Path, ...] = ()  # files here that every node has in initramfs.BROUGHT

    def vectors_of(self, name: str) -> Vectors:
        """The interrupt vectors of a node's ivshmem device."""
        return self.vectors.get(name, Vectors())


@dataclass(frozen=True)
class Joint:
    """A guest's end of what joins it with the other guest, beside the devices of uldma."""

    network: socket.socket
    character: socket.socket | None = None

    def ends(self) -> list[socket.socket]:
        """All of them."""
        return [self.network, *([self.character] if self.character else [])]


@dataclass(frozen=True)
class Wiring:
    """What joins the guest with the rest; the sockets are one end of a pair each."""

    serial: socket.socket
    agent: socket.socket
    monitor: socket.socket
    console: Path
    device: Path | None = None
    ivshmem: Path | None = None
    joint: Joint | None = None

    def descriptors(self) -> list[int]:
        """What QEMU inherits."""
        pairs = [self.serial, self.agent, self.monitor]
        return [end.fileno() for end in pairs + (self.joint.ends() if self.joint else [])]


def module_parameters(given: Mapping[str, str]) -> str:
    """What modprobe finds on the kernel's command line, whenever it loads the module."""
    parameters = {
        "link_timeout_ms": str(LINK_TIMEOUT_MS),
        "link_backoff_ms": str(LINK_PENALTY_MS),
        **given,
    }
    return " ".join(f"uldma.{name}={value}" for name, value in parameters.items())


def _memory(config: Config) -> list[str]:
    """The processors, and the memory, which has an object for each node of it."""
    nodes = config.memory_nodes
    if nodes == 1:
        backend = f"{MEMORY_BACKEND},id=mem,size={config.memory}M,share=on"
        return ["-smp", str(config.cpus), "-object", backend, "-machine", "memory-backend=mem"]
    # The kernel warns of processors of one socket that have different nodes.
    args = ["-smp", f"{config.cpus},sockets={nodes}"]
    each = config.cpus // nodes
    for node in range(nodes):
        backend = f"{MEMORY_BACKEND},id=mem{node},size={config.memory // nodes}M,share=on"
        cpus = f"cpus={each * node}-{each * (node + 1) - 1}"
        args += ["-object", backend, "-numa", f"node,nodeid={node},{cpus},memdev=mem{node}"]
    return args


def command(name: str, config: Config, accel: str, initrd: Path, wiring: Wiring) -> list[str]:
    """The command line for node `name`."""
    cmdline = (
        f"console=ttyS0 panic=-1 loglevel=5 {CLOCK_CMDLINE} "
        f"nodes.name={name} nodes.load={int(config.load)} "
        f"{DEBUG_CMDLINE if config.debug else ''} {'intel_iommu=on' if config.iommu else ''} "
        f"{module_parameters(config.module)} {config.cmdline}"
    )
    cpu = EMULATED_CPU if accel.startswith("tcg") else CPU
    args = [
        QEMU,
        *("-M", "q35", "-cpu", cpu, "-m", f"{config.memory}M"),
        *_memory(config),
        *("-accel", accel, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(KDIR / "vmlinuz"), "-initrd", str(initrd), "-append", cmdline.strip()),
        *("-chardev", f"socket,id=serial,fd={wiring.serial.fileno()}", "-serial", "chardev:serial"),
        *("-chardev", f"socket,id=agent,fd={wiring.agent.fileno()}"),
        *("-chardev", f"socket,id=console,path={wiring.console},server=on,wait=off"),
        *(IOMMU if config.iommu else ()),
        *("-device", "virtio-serial-pci"),
        *("-device", "virtconsole,chardev=console,nr=0"),
        *("-device", "virtserialport,chardev=agent,name=agent,nr=1"),
        *("-chardev", f"socket,id=monitor,fd={wiring.monitor.fileno()}"),
        *("-object", "monitor-qmp,id=monitor,chardev=monitor"),
    ]
    if wiring.joint:
        mac = f"52:54:00:00:00:0{'ab'.index(name) + 1}"
        args += [
            *("-netdev", f"stream,id=net,addr.type=fd,addr.str={wiring.joint.network.fileno()}"),
            *("-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="),
        ]
        if wiring.joint.character:
            args += [
                *("-chardev", f"socket,id=peer,fd={wiring.joint.character.fileno()}"),
                *("-device", "virtserialport,chardev=peer,name=peer,nr=2"),
            ]
    for number, disk in enumerate(config.disks):
        args += disk.arguments(number)
    if wiring.device:
        where = {"type": "unix", "path": str(wiring.device)}
        bus = {"bus": PORT_NAME} if config.port else {}
        device = {"driver": "vfio-user-pci", "id": "uldma", "socket": where, **bus}
        args += [*(PORT if config.port else ()), "-device", json.dumps(device)]
    if wiring.ivshmem:
        vectors = config.vectors_of(name).device
        args += [
            *("-chardev", f"socket,id=ivshmem,path={wiring.ivshmem}"),
            *("-device", f"ivshmem-doorbell,vectors={vectors},chardev=ivshmem"),
        ]
    return args


class Monitor:
    """The machine protocol of QEMU, one command at a time."""

    def __init__(self, port: socket.socket) -> None:
        self._stream = port.makefile("rw")
        port.settimeout(30)
        self._port = port
        self._greeted = False

    def execute(self, name: str, **arguments: object) -> Any:
        """Run a command and return its answer."""
        if not self._greeted:
            self._greeted = True
            self.execute("qmp_capabilities")
        self._stream.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self._stream.flush()
        for line in self._stream:
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise NodesError(f"QEMU: {name}: {answer['error']['desc']}")
        raise NodesError(f"QEMU: {name}: no answer")
