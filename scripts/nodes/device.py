# SPDX-License-Identifier: GPL-2.0
"""The process that plays the device: one vfio-user socket per node."""

import json
import select
import socket
import subprocess
from pathlib import Path
from typing import Any

from . import processes, qemu
from .errors import NodesError, TimedOut
from .paths import BINARIES

START_TIMEOUT = 20.0
ANSWER_TIMEOUT = 10.0


class Device:
    """uldma-device, and its control socket."""

    def __init__(self, run: Path, log: Path, options: list[str]) -> None:
        self.sockets = {name: run / f"device-{name}" for name in "ab"}
        self._control = run / "device-control"
        self._log = log
        for path in (*self.sockets.values(), self._control):
            path.unlink(missing_ok=True)
        with log.open("wb") as errors:
            self._process = processes.start(
                [
                    str(BINARIES / "uldma-device"),
                    *("--socket", str(self.sockets["a"]), "--socket", str(self.sockets["b"])),
                    *("--control", str(self._control)),
                    *options,
                ],
                output=subprocess.PIPE,
                errors=errors,
            )
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], START_TIMEOUT)[0]:
            self.stop()
            raise TimedOut(f"the device model was not ready within {START_TIMEOUT:.0f} s")
        if self._process.stdout.readline().strip() != b"ready":
            self.stop()
            raise NodesError(f"the device model did not start:\n{log.read_text()[-2000:]}")

    def control(self, cmd: str, **arguments: object) -> Any:
        """Send one request to the control socket and return its answer."""
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(ANSWER_TIMEOUT)
            port.connect(str(self._control))
            port.sendall(json.dumps({"cmd": cmd, **arguments}).encode() + b"\n")
            with port.makefile() as stream:
                return json.loads(stream.readline())

    def reach(self) -> int:
        """How many bytes of the nodes' memory the device has mapped."""
        total = 0
        for line in Path(f"/proc/{self._process.pid}/maps").read_text().splitlines():
            if qemu.MEMORY_BACKEND in line:
                start, end = line.split()[0].split("-")
                total += int(end, 16) - int(start, 16)
        return total

    def check(self) -> None:
        """Raise if the process has ended: nothing a guest does may end it."""
        if self._process.poll() is not None:
            raise NodesError(
                f"the device model ended with {self._process.returncode}:\n"
                + self._log.read_text()[-2000:]
            )

    def stop(self) -> None:
        """End the process."""
        processes.stop(self._process)
