# SPDX-License-Identifier: GPL-2.0
"""A load beside the tests, which takes the processors from them as other users of a machine do."""

import subprocess
from types import TracebackType
from typing import Self

from . import processes
from .errors import NodesError

BUSY = ("/bin/sh", "-c", "while :; do :; done")
# The nodes of a worker have four processors between them.
PER_CORE = 2


class Starvation:
    """Busy processes, some for each processor; use it as a context manager."""

    def __init__(self, cores: int) -> None:
        self._number = PER_CORE * cores
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for _ in range(self._number):
            self._processes.append(processes.start(BUSY, output=subprocess.DEVNULL))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = [process.poll() for process in self._processes if process.poll() is not None]
        for process in self._processes:
            processes.stop(process)
        if ended and not error:
            raise NodesError(f"the load has ended before the tests: exit {ended}")
