# SPDX-License-Identifier: GPL-2.0
"""Two scripts begin at the same time, without a pair."""

import contextlib
import io
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from ..commands import shell
from ..errors import Busy
from ..locks import Lock
from ..qemu import Config

ENDED = 3


class RunScriptTest(unittest.TestCase):
    """Which process boots the pair."""

    def test_a_lock_that_is_free_again_is_tried_again(self) -> None:
        """A process that sees if there is a pair has its lock for a moment."""
        attempts: list[Path] = []

        @contextlib.contextmanager
        def pair_of(_config: Config, run: Path) -> Iterator[tuple[object, object]]:
            attempts.append(run)
            if len(attempts) == 1:
                raise Busy("another process sees if there is a pair")
            yield SimpleNamespace(nodes={"a": None}), SimpleNamespace(finish=lambda: None)

        stdin = SimpleNamespace(buffer=io.BytesIO(b"true"))
        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch.object(shell, "pair_of", pair_of),
            mock.patch("nodes.scripts.run", lambda _node, _script: ENDED),
            mock.patch("sys.stdin", stdin),
        ):
            self.assertEqual(shell.run_script("a", Config(), Path(name)), ENDED)
        self.assertEqual(len(attempts), 2)

    def test_a_lock_that_is_held_is_busy(self) -> None:
        """Both a pair and its absence are seen by the lock."""
        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch("nodes.locks.RUN", Path(name)),
        ):
            lock = Lock("shell")
            self.assertTrue(shell.running(Path(name) / "shell"))
            with self.assertRaises(Busy):
                Lock("shell")
            lock.release()
            self.assertFalse(shell.running(Path(name) / "shell"))
