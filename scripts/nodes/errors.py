# SPDX-License-Identifier: GPL-2.0
"""Failures that are reported to a person without a traceback."""


class NodesError(Exception):
    """Something on the way to a result went wrong."""


class NodeDied(NodesError):
    """A node ended on its own: panic, power off or a crash of the emulator."""


class Busy(NodesError):
    """Another process has what only one can have."""


class TimedOut(NodesError):
    """A bounded wait ended."""


class KernelReport(NodesError):
    """A kernel log holds a report that no test may cause."""
