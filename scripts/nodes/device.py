# SPDX-License-Identifier: GPL-2.0
"""The process that plays the device: one vfio-user socket per node."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import qemu
from .errors import NodesError
from .servers import Server

ANSWER_TIMEOUT = 10.0
# A link has at least two ends; the other may have no node.
LEAST_NODES = "ab"


class Device(Server):
    """uldma-device, and its control socket."""

    def __init__(self, names: str, run: Path, log: Path, window: int, options: list[str]) -> None:
        self._control = run / "device-control"
        self._control.unlink(missing_ok=True)
        ends = names if len(names) > 1 else LEAST_NODES
        own = ["--control", str(self._control), "--window-size", str(window)]
        super().__init__("uldma-device", ends, run, log, [*own, *options])

    def control(self, cmd: str, **arguments: object) -> Any:
        """Send one request to the control socket and return its answer."""
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(ANSWER_TIMEOUT)
            port.connect(str(self._control))
            port.sendall(json.dumps({"cmd": cmd, **arguments}).encode() + b"\n")
            with port.makefile() as stream:
                answer = json.loads(stream.readline())
        if not answer["ok"]:
            raise NodesError(f"uldma-device: {cmd} {arguments}: {answer['error']}")
        return answer

    def node(self, number: int) -> dict[str, Any]:
        """What the device counts of a node."""
        found = self.control("stats")["stats"]["nodes"][number]
        assert isinstance(found, dict)
        return found

    @contextmanager
    def fault(self, kind: str, number: int) -> Iterator[None]:
        """Let the device misbehave at a node."""
        self.control("fault", kind=kind, on=True, node=number)
        try:
            yield
        finally:
            self.control("fault", kind=kind, on=False, node=number)

    def hold(self, number: int, context: int | None = None) -> None:
        """Let chunks of a node, or of one context, stop between look-up and access.

        node()["held"] lists those that do; node()["invalidations_pending"] and
        node()["invalidations_queued"] count what the driver waits for meanwhile.
        """
        which = {} if context is None else {"context": context}
        self.control("hold", on=True, node=number, **which)

    def release(self, number: int) -> None:
        """Let what is held go on, with the bus addresses that were looked up before."""
        self.control("hold", on=False, node=number)

    def reach(self) -> int:
        """How many bytes of the nodes' memory the device has mapped."""
        total = 0
        for line in Path(f"/proc/{self._process.pid}/maps").read_text().splitlines():
            if qemu.MEMORY_BACKEND in line:
                start, end = line.split()[0].split("-")
                total += int(end, 16) - int(start, 16)
        return total
