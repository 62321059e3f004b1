# SPDX-License-Identifier: GPL-2.0
"""Finding reports in a kernel log."""

import socket
import tempfile
import unittest
from pathlib import Path

from ..errors import KernelReport, NodeDied
from ..kernel_log import SerialLog

REPORTS = (
    "[  1.0] Kernel panic - not syncing: sysrq triggered crash",
    "[  1.0] Oops: general protection fault, probably for non-canonical address",
    "[  1.0] BUG: KFENCE: use-after-free read in x",
    "[  1.0] BUG: unable to handle page fault for address: 0000000000001000",
    "[  1.0] BUG kmalloc-64 (Tainted: G OE): Right Redzone overwritten",
    "[  1.0] WARNING: drivers/x.c:12 at f+0x1/0x2, CPU#0: insmod/12",
    "[  1.0] WARNING: possible circular locking dependency detected",
    "[  1.0] UBSAN: array-index-out-of-bounds in x.c:1:2",
    "[  1.0] refcount_t: underflow; use-after-free.",
    "[  1.0] list_del corruption. prev->next should be x",
    "[  1.0] INFO: task x:12 blocked for more than 120 seconds.",
    "[  1.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
    "[  1.0] uldma: panicked at drivers/uldma/x.rs:1:2:",
    "[  1.0] BUG: Bad page state in process x  pfn:12345",
    "[  1.0] BUG: KASAN: slab-use-after-free in x",
    "[  1.0] DMA-API: uldma 0000:00:03.0: device driver has pending DMA allocations",
    "[  1.0] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "[  1.0] ODEBUG: free active (active state 0) object: x object type: work_struct",
    "[  1.0] BUG: sleeping function called from invalid context at x.c:1",
)
HARMLESS = (
    "[  0.1] DMA-API: preallocated 65536 debug entries",
    "[  0.1] DMA-API: debugging enabled by kernel config",
    "[  9.1] DMA-API: dma_debug_entry pool grown to 131072 (200%)",
    "[  0.1] kfence: initialized - using 2097152 bytes for 255 objects",
    "[  2.0] uldma: loading out-of-tree module taints kernel.",
    "[  2.0] uldma: module verification failed: signature and/or required key missing",
    "[  2.0] uldma 0000:00:03.0: 8 contexts, debug information",
)


class SerialLogTest(unittest.TestCase):
    """A report fails, and only a report."""

    def setUp(self) -> None:
        """Make a log with a guest's end to write to."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        ours, self.guest = socket.socketpair()
        self.log = SerialLog(ours, Path(directory.name) / "a.log")

    def say(self, line: str) -> None:
        """Log a line and wait for it."""
        self.guest.sendall(f"{line}\r\nmark\r\n".encode())
        self.log.wait_for("mark", 10)

    def test_reports(self) -> None:
        """Each kind of report fails once."""
        for line in REPORTS:
            with self.subTest(line):
                self.say(line)
                with self.assertRaises(KernelReport):
                    self.log.check()
                self.log.check()

    def test_harmless(self) -> None:
        """What every boot says is no report."""
        for line in HARMLESS:
            self.say(line)
        self.log.check()

    def test_end(self) -> None:
        """A node that ends is noticed while one waits."""
        self.guest.close()
        with self.assertRaises(NodeDied):
            self.log.wait_for("never", 10)
