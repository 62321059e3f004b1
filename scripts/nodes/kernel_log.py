# SPDX-License-Identifier: GPL-2.0
"""The serial log of a node, and what must not be in it."""

import re
import socket
import threading
from pathlib import Path

from .errors import KernelReport, NodeDied, TimedOut
from .kernel import scaled

REPORT = re.compile(
    r"Kernel panic"
    r"|\bOops\b"
    r"|\bBUG[: ]"
    r"|WARNING: "
    r"|general protection fault"
    r"|Unable to handle"
    r"|\b(KASAN|KCSAN|KMSAN|UBSAN|KFENCE): "
    r"|refcount_t: "
    r"|list_(add|del) corruption"
    r"|Objects remaining (in|on) "
    r"|Slab corruption|Redzone overwritten|Poison overwritten|Object already free"
    r"|Bad page (state|map|cache)"
    r"|INFO: (task|possible|trying|suspicious|lockdep|inconsistent|rcu)"
    r"|(circular|recursive) locking"
    r"|inconsistent lock state"
    r"|suspicious RCU usage"
    r"|(soft|hard) (lockup|LOCKUP)"
    r"|detected stalls?"
    r"|blocked for more than"
    r"|while atomic|sleeping function called"
    r"|DMA-API: "
    r"|kmemleak: .*new suspected"
    r"|ODEBUG: "
    r"|panicked at "
    r"|stack-protector|stack guard page"
    r"|irq \d+: nobody cared"
    r"|unchecked MSR access"
    r"|sysfs: cannot create duplicate"
)
# Kernel text that looks like a report and is none.
BENIGN = re.compile(
    r"kfence: initialized|WARNING: Running without|DMA-API: (preallocated|debugging enabled)"
    # More mappings at a time than it had room for.
    r"|DMA-API: dma_debug_entry pool grown"
    # Failing allocations on demand reach the checkers too.
    r"|DMA-API: cacheline tracking ENOMEM"
)
REPORT_LINES = 60


class SerialLog:
    """Appends what the serial port says to a file and lets others wait for it."""

    def __init__(self, port: socket.socket, path: Path) -> None:
        self.path = path
        self._port = port
        self._text = ""
        self._checked = 0
        self._ended = False
        self._changed = threading.Condition()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := self._port.recv(65536):
                self._file.write(data)
                with self._changed:
                    self._text += data.decode(errors="replace").replace("\r\n", "\n")
                    self._changed.notify_all()
        except OSError:
            pass
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, text: str, timeout: float) -> None:
        """Return when text has been logged after the last check."""
        timeout = scaled(timeout)
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._ended or text in self._text[self._checked :], timeout
            ):
                raise TimedOut(f"{self.path.name}: no {text!r} within {timeout:.0f} s")
            if text not in self._text[self._checked :]:
                raise NodeDied(f"the node ended; its last words are in {self.path}")

    def wait_end(self, timeout: float) -> None:
        """Wait until the port is closed, that is, the emulator has gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, timeout)

    def check(self) -> None:
        """Raise KernelReport if what was logged since the last check holds one."""
        with self._changed:
            new = self._text[self._checked :]
            self._checked = len(self._text)
        lines = new.splitlines()
        for number, line in enumerate(lines):
            if REPORT.search(line) and not BENIGN.search(line):
                report = "\n".join(lines[number : number + REPORT_LINES])
                raise KernelReport(f"{self.path} holds a kernel report:\n{report}")

    def tail(self, lines: int = 30) -> str:
        """The last lines, for a message."""
        with self._changed:
            return "\n".join(self._text.splitlines()[-lines:])
