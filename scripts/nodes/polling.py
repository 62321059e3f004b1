# SPDX-License-Identifier: GPL-2.0
"""Waiting for what nobody tells us of."""

import time
from collections.abc import Callable

from .errors import TimedOut
from .kernel import patience

INTERVAL = 0.1


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> float:
    """Look again until the condition holds; how long that took."""
    began = time.monotonic()
    limit = patience(timeout)
    while not condition():
        if time.monotonic() - began > limit:
            raise TimedOut(f"not within {limit:.0f} s: {what}")
        time.sleep(INTERVAL)
    return time.monotonic() - began
