# SPDX-License-Identifier: GPL-2.0
"""KVM where it runs the nodes, software emulation everywhere else.

/dev/kvm is asked what it can (kvm.py), and the answer is kept until the machine or either kernel
changes. Whether a stock kernel boots is known for sure only when one has: until then nodes that do
not come up with KVM are booted once more without it, and that is kept, too.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from . import kvm
from .console import say
from .paths import CACHE, KREL

TCG = "tcg,thread=multi"
KVM = "kvm"
# What is kept. A reason why not may follow the last one.
ABLE, PROVEN, UNABLE = "able", "proven", "unable"
# Lines of /proc/cpuinfo that tell a processor from another, rather than its load.
PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")


def machine() -> Iterable[str]:
    """What an answer depends on."""
    yield from (*os.uname()[2:], KREL)
    for line in kvm.CPUINFO.read_text().split("\n\n")[0].splitlines():
        if line.partition(":")[0].strip() in PROCESSOR:
            yield line
    yield from sorted(path.name for path in Path("/sys/module").glob("kvm*"))


class Accelerator:
    """The choice, which several threads may ask for."""

    def __init__(self, ask: Callable[[], str], directory: Path, facts: Iterable[str]) -> None:
        """A machine is known by facts; ask() says why KVM cannot run a kernel, or nothing."""
        key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
        self._ask = ask
        self._file = directory / f"kvm-{key}"
        self._lock = threading.Lock()

    def choose(self) -> str:
        """The accelerator to boot with, as QEMU calls it."""
        forced = os.environ.get("ULDMA_ACCEL")
        if forced:
            return TCG if forced == "tcg" else forced
        if not os.access(kvm.DEVICE, os.R_OK | os.W_OK):
            return TCG
        with self._lock:
            known = self._recall()
            if not known:
                why = self._ask()
                known = self._remember(UNABLE, why) if why else self._remember(ABLE)
            return TCG if known == UNABLE else KVM

    def proven(self, accel: str) -> None:
        """A node has come up."""
        with self._lock:
            if accel == KVM and self._recall() == ABLE:
                self._remember(PROVEN)

    def doubt(self, accel: str, why: str) -> bool:
        """A node has not come up. Whether that may be due to KVM, which is not used again then."""
        with self._lock:
            if accel != KVM or "ULDMA_ACCEL" in os.environ or self._recall() == PROVEN:
                return False
            if self._recall() == ABLE:
                self._remember(UNABLE, why)
            return True

    def _recall(self) -> str:
        try:
            return self._file.read_text().split(maxsplit=1)[0]
        except FileNotFoundError:
            return ""

    def _remember(self, known: str, why: str = "") -> str:
        if why:
            say(f"{kvm.DEVICE} is there and is not used: {why}")
        self._file.parent.mkdir(exist_ok=True)
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(f"{known} {why}\n")
        new.rename(self._file)
        return known


ACCELERATOR = Accelerator(kvm.ask, CACHE / "accel", machine())

if __name__ == "__main__":
    # For scripts: kvm or tcg.
    print(ACCELERATOR.choose().partition(",")[0])
