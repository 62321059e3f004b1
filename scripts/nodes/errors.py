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


class Defect(NodesError):
    """What no test may cause: it counts whatever another run of the test says."""


class KernelReport(Defect):
    """A kernel log holds a report."""


def is_defect(error: BaseException | None) -> bool:
    """Whether a defect is the error, or what was on its way when the error came up."""
    while error and not isinstance(error, Defect):
        error = error.__cause__ or error.__context__
    return error is not None
