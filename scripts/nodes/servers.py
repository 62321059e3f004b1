# SPDX-License-Identifier: GPL-2.0
"""Processes that serve nodes over a socket each, and say when they are ready."""

import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import processes
from .errors import Defect, NodesError, TimedOut
from .paths import BINARIES

START_TIMEOUT = 20.0


class Server:
    """A program that takes --socket once per node and prints "ready"."""

    def __init__(
        self, program: str, names: str, run: Path, log: Path, options: Sequence[str]
    ) -> None:
        self.sockets = {name: run / f"{program.removeprefix('uldma-')}-{name}" for name in names}
        self._program = program
        self._log = log
        for path in self.sockets.values():
            path.unlink(missing_ok=True)
        places = [word for path in self.sockets.values() for word in ("--socket", str(path))]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = processes.start(
                [str(BINARIES / program), *places, *options],
                output=subprocess.PIPE,
                errors=errors,
            )
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], START_TIMEOUT)[0]:
            self.stop()
            raise TimedOut(f"{program} was not ready within {START_TIMEOUT:.0f} s")
        if self._process.stdout.readline().strip() != b"ready":
            self.stop()
            raise NodesError(f"{program} did not start:\n{self._last_words()}")

    def _last_words(self) -> str:
        return self._log.read_text()[-2000:]

    def check(self) -> None:
        """Raise if the process has ended: nothing a guest does may end it."""
        if self._process.poll() is not None:
            raise Defect(
                f"{self._program} ended with {self._process.returncode}:\n{self._last_words()}"
            )

    def stop(self) -> None:
        """End the process."""
        processes.stop(self._process)
