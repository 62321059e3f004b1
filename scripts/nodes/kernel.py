# SPDX-License-Identifier: GPL-2.0
"""Which kernel the nodes run: the stock one, or the debug kernel (scripts/root enter --debug)."""

import os

DEBUG = os.environ.get("ULDMA_KERNEL") == "debug"
# What is built for a kernel, and what its nodes leave, has a name of its own.
SUFFIX = "-debug" if DEBUG else ""


def scaled(seconds: float) -> float:
    """Returns a time limit for the running kernel, given the one for the stock kernel."""
    return 8 * seconds if DEBUG else seconds
