# SPDX-License-Identifier: GPL-2.0
"""A device that never answers."""

from ..cluster import Cluster
from ..leftovers import pins
from .registry import case, expect

DRIVER = "/sys/bus/pci/drivers/uldma"


@case
def every_call_ends(pair: Cluster) -> None:
    """Calls end in bounded time, and pins stay until the driver is unbound."""
    expect(pair.device is not None, "there is no device")
    assert pair.device
    address = pair.a.check(f"ls {DRIVER} | grep :").strip()
    before = pins(pair.a)
    pair.device.control("stall", on=True, node=0)
    try:
        result = pair.a.run("cd /kselftest/uldma && ./uldma_stalled", 120)
        expect(result.rc == 0, f"uldma_stalled: exit {result.rc}\n{result.stdout}{result.stderr}")
        expect(pins(pair.a) > before, "memory that the device may touch was unpinned")
        pair.a.check(f"echo {address} >{DRIVER}/unbind", 60)
        expect(pins(pair.a) == before, "unbinding left pins")
    finally:
        pair.device.control("stall", on=False, node=0)
    pair.a.check(f"echo {address} >{DRIVER}/bind && test -c /dev/uldma0")
    output = pair.a.check("cd /kselftest/uldma && ./uldma_dma -t sizes")
    expect("fail:0" in output, f"no transfers after the device came back:\n{output}")
