# SPDX-License-Identifier: GPL-2.0
"""Keeping what runs in this tree apart."""

import fcntl
import os

from .errors import Busy
from .paths import RUN


class Lock:
    """A scenario runs once at a time: its sockets and logs have fixed names."""

    def __init__(self, scenario: str, name: str = "lock") -> None:
        """A scenario can have locks of several names."""
        directory = RUN / scenario
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise Busy(f"another 'make {scenario}' runs in this tree") from error

    def release(self) -> None:
        """Let others run."""
        os.close(self._file)
