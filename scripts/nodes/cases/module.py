# SPDX-License-Identifier: GPL-2.0
"""Loading and unloading the module."""

from ..cluster import Cluster
from ..load import works
from ..module import reload
from .registry import case, expect

CYCLES = 10
# The kernel's names of cache modes, by the parameter `window_wc`.
CACHE_MODES = {1: "write-combining", 0: "uncached-minus"}
BAR_WINDOW = 4


@case
def device_appears(pair: Cluster) -> None:
    """Both nodes have a character device."""
    for node in pair.nodes.values():
        node.check("test -c /dev/uldma0")


@case
def load_and_unload(pair: Cluster) -> None:
    """The device comes and goes with the module, as often as one likes."""
    for _ in range(CYCLES):
        reload(pair.a)


@case
def unbind_and_bind(pair: Cluster) -> None:
    """The driver is unbound and bound again."""
    driver = "/sys/bus/pci/drivers/uldma"
    address = pair.a.check(f"ls {driver} | grep :").strip()
    for _ in range(CYCLES):
        pair.a.check(f"echo {address} >{driver}/unbind && ! test -e /dev/uldma0")
        pair.a.check(f"echo {address} >{driver}/bind && test -c /dev/uldma0")


@case
def open_file_keeps_the_module(pair: Cluster) -> None:
    """rmmod is refused while a process has the device open."""
    job = pair.a.spawn("exec 3</dev/uldma0; echo open; sleep 600")
    job.wait_output("open", 20)
    try:
        expect(pair.a.run("rmmod uldma").rc != 0, "rmmod succeeded under an open file")
    finally:
        job.end()


@case
def second_instance_is_refused(pair: Cluster) -> None:
    """The module cannot be loaded twice, and the first one does not notice."""
    module = pair.a.check("find /lib/modules /usr/lib/modules -name uldma.ko | head -n 1").strip()
    result = pair.a.run(f"insmod {module}")
    expect(result.rc != 0 and "exists" in result.stderr.lower(), f"insmod: {result}")
    pair.a.check("test -c /dev/uldma0 && uldma info --json")


@case
def windows_are_cached_as_asked(pair: Cluster) -> None:
    """The window is mapped write-combining or uncached, and carries messages in both modes."""
    device = pair.a.check("readlink -f /sys/class/misc/uldma0/device").strip()
    line = pair.a.check(f"cat {device}/resource").splitlines()[BAR_WINDOW]
    start = int(line.split()[0], 16)
    try:
        for parameter, mode in CACHE_MODES.items():
            reload(pair.a, f"window_wc={parameter}")
            table = pair.a.check("cat /sys/kernel/debug/x86/pat_memtype_list")
            [found] = [it for it in table.splitlines() if f"{start:x}-" in it]
            expect(mode in found, f"window_wc={parameter}: {found}")
            works(pair)
    finally:
        reload(pair.a)
