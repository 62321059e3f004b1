# SPDX-License-Identifier: GPL-2.0
"""KVM where it really boots a guest, software emulation everywhere else.

/dev/kvm may exist and yet be unable to run a stock kernel (nested, without the hardware's help), so
one trial boot decides; the verdict is kept until either kernel changes.
"""

import os
from collections.abc import Callable

from .paths import CACHE, KREL

TCG = "tcg,thread=multi"
KVM = "kvm"


def choose(trial: Callable[[str], bool]) -> str:
    """The accelerator to use; trial(accel) says whether a guest boots with it."""
    forced = os.environ.get("ULDMA_ACCEL")
    if forced:
        return TCG if forced == "tcg" else forced
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    verdicts = CACHE / "accel"
    verdicts.mkdir(exist_ok=True)
    verdict = verdicts / f"{os.uname().release}-{KREL}"
    if not verdict.exists():
        works = trial(KVM)
        print(
            f"nodes: a trial boot with KVM {'works' if works else 'fails: using TCG'}", flush=True
        )
        new = verdict.with_suffix(".new")
        new.write_text(KVM if works else TCG)
        new.rename(verdict)
    return verdict.read_text()
