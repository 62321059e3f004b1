# SPDX-License-Identifier: GPL-2.0
"""Loading and unloading the module."""

from ..cluster import Cluster
from ..module import reload
from .registry import case, expect

CYCLES = 10


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
