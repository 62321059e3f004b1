# SPDX-License-Identifier: GPL-2.0
"""Nodes that share nothing but the memory and the doorbells of QEMU's ivshmem-doorbell."""

from .. import endpoints
from ..cluster import Cluster
from ..topologies import IVSHMEM
from .registry import case_of, expect

ID = "1af4:1110"
PORT = 740
NEED_ENGINE = tuple(f"dma --size 64K --method {method}" for method in ("kernel", "queue"))


@case_of(IVSHMEM)
def device_is_qemus(pair: Cluster) -> None:
    """The device is the stock one of QEMU, and the module has taken it."""
    for end in endpoints.of(pair):
        place = f"/sys/class/misc/uldma{end.device}/device"
        found = end.node.check(f"cat {place}/vendor {place}/device").split()
        expect(found == [f"0x{part}" for part in ID.split(":")], f"{end.name}: {found}")


@case_of(IVSHMEM)
def what_needs_an_engine_is_refused(pair: Cluster) -> None:
    """There is none, so nothing can be started by it, and the errors say so."""
    a, _ = endpoints.of(pair)
    for arguments in NEED_ENGINE:
        result = a.spawn(arguments).wait(60)
        expect(result.rc != 0, f"{arguments} succeeded: {result.stdout}")
        expect("not supported" in result.stderr.lower(), f"{arguments}: {result.stderr}")


@case_of(IVSHMEM)
def pull_is_refused(pair: Cluster) -> None:
    """The receiver cannot reach the sender's memory."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    listener = b.spawn(f"listen {PORT} --once --timeout 60")
    try:
        result = a.spawn(f"connect {b.number} {PORT} --wait --pull --timeout 30 </dev/null").wait(
            60
        )
        expect(result.rc != 0, "the connection was made")
        expect("not supported" in result.stderr.lower(), f"{result.stderr}")
    finally:
        listener.end()
