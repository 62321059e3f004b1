# SPDX-License-Identifier: GPL-2.0
"""Waiting for states that cause no event."""

import time
from collections.abc import Callable

from .errors import TimedOut
from .kernel import scaled

# Each pause is this part of the time that went by before it. What is waited for is seen at most
# that part later than it could be, however long it takes, and looking costs little beside it.
PART = 1 / 16


def pause(began: float) -> None:
    """Pause before the next look, where the first one was at that time."""
    time.sleep((time.monotonic() - began) * PART)


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> float:
    """Look again until the condition holds; how long that took."""
    began = time.monotonic()
    limit = scaled(timeout)
    while not condition():
        if time.monotonic() - began > limit:
            raise TimedOut(f"not within {limit:.0f} s: {what}")
        pause(began)
    return time.monotonic() - began
