# SPDX-License-Identifier: GPL-2.0
"""The host's end of the agent in a node (guest/agent.c describes the protocol)."""

import signal
import socket
import sys
import threading
from dataclasses import dataclass
from typing import IO

from .errors import NodeDied, TimedOut
from .kernel import patience

KILL_PATIENCE = 10.0


@dataclass(frozen=True)
class Result:
    """What a finished command left."""

    command: str
    rc: int
    stdout: str
    stderr: str


class Job:
    """A command that runs in a node."""

    def __init__(self, agent: "Agent", number: int, command: str, echo: bool) -> None:
        self.command = command
        self._agent = agent
        self._number = number
        self._echo = echo
        self._data = {"out": bytearray(), "err": bytearray()}
        self._rc: int | None = None

    def _receive(self, stream: str, data: bytes) -> None:
        self._data[stream] += data
        if self._echo:
            target = sys.stdout if stream == "out" else sys.stderr
            target.write(data.decode(errors="replace"))
            target.flush()

    def text(self, stream: str = "out") -> str:
        """What the command has written so far."""
        with self._agent.changed:
            return self._data[stream].decode(errors="replace")

    def _wait(self, ready: object, timeout: float, what: str) -> None:
        assert callable(ready)
        timeout = patience(timeout)
        with self._agent.changed:
            if not self._agent.changed.wait_for(
                lambda: ready() or self._rc is not None or self._agent.ended, timeout
            ):
                raise TimedOut(f"{self._agent.name}: {what} within {timeout:.0f} s: {self.command}")
            if self._agent.ended and self._rc is None:
                raise NodeDied(f"{self._agent.name} died while it ran: {self.command}")

    def wait_output(self, text: str, timeout: float) -> None:
        """Wait until the command has written text (or ended) on either stream."""

        def seen() -> bool:
            return any(text.encode() in data for data in self._data.values())

        self._wait(seen, timeout, f"no {text!r}")

    def wait(self, timeout: float) -> Result:
        """Wait for the end; a command that takes longer is killed and TimedOut raised."""
        try:
            self._wait(lambda: False, timeout, "no end")
        except TimedOut:
            self.kill()
            self._wait(lambda: False, KILL_PATIENCE, "no end after SIGKILL")
            raise
        assert self._rc is not None
        return Result(self.command, self._rc, self.text("out"), self.text("err"))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the command's process group."""
        self._agent.send(f"kill {self._number} {int(number)}\n".encode())

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self._rc is None


class Agent:
    """Runs commands in one node, any number at a time."""

    def __init__(self, name: str, port: socket.socket) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.ended = False
        self._port = port
        self._stream: IO[bytes] = port.makefile("rb")
        self._ready = False
        self._jobs: dict[int, Job] = {}
        self._numbers = 0
        self._sending = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while line := self._stream.readline():
                self._answer(line.decode().split())
        except (OSError, ValueError):
            pass
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _answer(self, words: list[str]) -> None:
        data = self._stream.read(int(words[2])) if words[0] in ("out", "err") else b""
        with self.changed:
            if words[0] == "ready":
                self._ready = True
            elif words[0] == "exit":
                self._jobs.pop(int(words[1]))._rc = int(words[2])
            else:
                self._jobs[int(words[1])]._receive(words[0], data)
            self.changed.notify_all()

    def wait_ready(self, timeout: float) -> None:
        """Wait until the agent in the node runs."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._ready or self.ended, timeout):
                raise TimedOut(f"{self.name} did not come up within {timeout:.0f} s")
            if not self._ready:
                raise NodeDied(f"{self.name} ended while it booted")

    def send(self, data: bytes) -> None:
        """Send one request."""
        try:
            with self._sending:
                self._port.sendall(data)
        except OSError as error:
            raise NodeDied(f"{self.name} is gone: {error}") from error

    def spawn(self, command: str, *, uid: int = 0, echo: bool = False) -> Job:
        """Start a shell command."""
        script = command.encode()
        with self.changed:
            self._numbers += 1
            job = Job(self, self._numbers, command, echo)
            self._jobs[self._numbers] = job
        self.send(f"run {job._number} {uid} {len(script)}\n".encode() + script)
        return job
