# SPDX-License-Identifier: GPL-2.0
"""Child processes that never outlive this one."""

import ctypes
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str],
    *,
    output: IO[bytes] | int,
    errors: IO[bytes] | int = subprocess.STDOUT,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that Ctrl-C reaches only us."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def stop(process: subprocess.Popen[bytes], timeout: float = 5.0) -> None:
    """End a process: politely first, then for sure."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def raise_file_limit() -> None:
    """Allow children as many files as may be: with an IOMMU, the device holds one per page."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that clean-up runs."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
