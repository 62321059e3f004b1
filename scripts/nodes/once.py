# SPDX-License-Identifier: GPL-2.0
"""What is made once per process, whichever thread needs it first."""

import functools
import threading
from collections.abc import Callable


def once[T](function: Callable[[], T]) -> Callable[[], T]:
    """Call a function once; threads that come meanwhile wait, and all get the same result."""
    lock = threading.Lock()
    results: list[T] = []

    @functools.wraps(function)
    def wrapper() -> T:
        with lock:
            if not results:
                results.append(function())
            return results[0]

    return wrapper
