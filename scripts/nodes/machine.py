# SPDX-License-Identifier: GPL-2.0
"""What machine a figure was measured on."""

import os
import platform
from dataclasses import dataclass

from .accel import ACCELERATOR
from .kvm import CPUINFO
from .once import once


@dataclass(frozen=True)
class Machine:
    """What a figure depends on beside what is measured."""

    accelerator: str
    processor: str
    # That this process, and so the nodes, may run on; and that there are.
    cores: int
    host_cores: int
    # Of the last minute before the measurement.
    load: float

    def __str__(self) -> str:
        return (
            f"{self.accelerator} on {self.cores} of {self.host_cores} cores ({self.processor}), "
            f"load {self.load:.2f} before"
        )


def processor() -> str:
    """The model of the host's processor."""
    for line in CPUINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


@once
def machine() -> Machine:
    """This machine, as it was when this was called first."""
    return Machine(
        accelerator=ACCELERATOR.choose().split(",")[0],
        processor=processor(),
        cores=len(os.sched_getaffinity(0)),
        host_cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
    )
