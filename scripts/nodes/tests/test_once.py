# SPDX-License-Identifier: GPL-2.0
"""What is made once."""

import threading
import unittest

from ..once import once

THREADS = 8


class OnceTest(unittest.TestCase):
    """The first thread makes it, the others wait for it."""

    def test_threads(self) -> None:
        """All get the same."""
        made: list[object] = []
        begin = threading.Barrier(THREADS)

        @once
        def make() -> object:
            made.append(object())
            return made[-1]

        found: list[object] = []

        def run() -> None:
            begin.wait()
            found.append(make())

        threads = [threading.Thread(target=run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [made[0]] * THREADS)
        self.assertEqual(len(made), 1)

    def test_failure(self) -> None:
        """What fails is tried again."""
        results = iter((0, 1))

        @once
        def divide() -> float:
            return 1 / next(results)

        with self.assertRaises(ZeroDivisionError):
            divide()
        self.assertEqual(divide(), 1)
