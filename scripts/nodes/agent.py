# SPDX-License-Identifier: GPL-2.0
"""The host's end of the agent in a node (guest/agent.c describes the protocol)."""

import contextlib
import queue
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .errors import NodeDied, NodesError, TimedOut
from .kernel import scaled

# What a command has written at once, and to which stream: "out" or "err".
Piece = tuple[str, bytes]
KILL_TIMEOUT = 10.0
# How often it is asked whether a node that boots never will; one that does is noticed at once.
CHECK_INTERVAL = 1.0
# A node keeps a command in its memory while it runs; this much is there to spare.
LONGEST_COMMAND = 64 << 20
# More than any answer has before what a command has written.
LONGEST_LINE = 100
# Of a command, what messages tell.
TITLE = 300


@dataclass(frozen=True)
class Result:
    """What a finished command left."""

    command: str
    rc: int
    stdout: str
    stderr: str


class Job:
    """A command that runs in a node."""

    def __init__(self, agent: "Agent", number: int, command: str, stream: bool) -> None:
        self.command = command if len(command) <= TITLE else f"{command[:TITLE]} ..."
        self._agent = agent
        self._number = number
        self._pieces: queue.SimpleQueue[Piece | None] | None = None
        if stream:
            self._pieces = queue.SimpleQueue()
        self._data = {"out": bytearray(), "err": bytearray()}
        self._rc: int | None = None
        self._lost = False

    def _receive(self, stream: str, data: bytes) -> None:
        if self._pieces:
            self._pieces.put((stream, data))
        else:
            self._data[stream] += data

    def _end(self, rc: int | None = None) -> None:
        """The command has ended, or it is not known what became of it."""
        self._rc = rc
        self._lost = rc is None
        if self._pieces:
            self._pieces.put(None)

    def pieces(self) -> Iterator[Piece]:
        """Of a command that was started to be streamed: what it writes, until it ends."""
        assert self._pieces
        while (piece := self._pieces.get()) is not None:
            yield piece

    def text(self, stream: str = "out") -> str:
        """What the command has written so far."""
        with self._agent.changed:
            return self._data[stream].decode(errors="replace")

    def _wait(self, ready: object, timeout: float, what: str) -> None:
        assert callable(ready)
        timeout = scaled(timeout)
        with self._agent.changed:
            if not self._agent.changed.wait_for(
                lambda: ready() or not self.running or self._agent.ended, timeout
            ):
                raise TimedOut(f"{self._agent.name}: {what} within {timeout:.0f} s: {self.command}")
            if self._rc is None and (self._agent.ended or self._lost):
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
            self.end()
            raise
        assert self._rc is not None
        return Result(self.command, self._rc, self.text("out"), self.text("err"))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the command's process group."""
        self._agent.send(f"kill {self._number} {int(number)}\n".encode())

    def end(self) -> None:
        """Kill the command unless it has ended, and wait until it is gone."""
        if self.running:
            self.kill()
            self._wait(lambda: False, KILL_TIMEOUT, "no end after SIGKILL")

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self._rc is None and not self._lost


class Agent:
    """Runs commands in one node, any number at a time."""

    def __init__(self, name: str, port: socket.socket) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.ended = False
        self._port = port
        self._received = bytearray()
        self._ready = False
        self._jobs: dict[int, Job] = {}
        self._numbers = 0
        self._sending = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # An agent that says what none says is lost, as one that says no more.
        with contextlib.suppress(OSError, ValueError, LookupError):
            while self._take():
                pass
        # It sends in vain from now on, rather than wait for this end to read.
        with contextlib.suppress(OSError):
            self._port.shutdown(socket.SHUT_RDWR)
        with self.changed:
            self.ended = True
            self._lose_jobs()
            self.changed.notify_all()

    def _lose_jobs(self) -> None:
        for job in self._jobs.values():
            job._end()
        self._jobs.clear()

    def _take(self) -> bool:
        """Handle what comes next; whether more can come."""
        select.select([self._port], [], [])
        with self.changed:
            try:
                data = self._port.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True  # forget() was faster
            self._received += data
            while self._answer():
                pass
            self.changed.notify_all()
        return bool(data)

    def _answer(self) -> bool:
        """Handle one answer, if all of it is there; LookupError or ValueError if it is none."""
        line, newline, rest = self._received.partition(b"\n")
        if len(line) > LONGEST_LINE:
            raise ValueError(line)
        if not newline:
            return False
        length = 0
        match line.decode().split():
            case ["ready"]:
                self._ready = True
            case ["exit", number, status]:
                self._jobs.pop(int(number))._end(int(status))
            case [("out" | "err") as stream, number, size]:
                job, length = self._jobs[int(number)], int(size)
                if length < 0:
                    raise ValueError(line)
                if len(rest) < length:
                    return False
                job._receive(stream, bytes(rest[:length]))
            case _:
                raise ValueError(line)
        self._received = rest[length:]
        return True

    def forget(self) -> None:
        """The node, which stands still, is reset: its commands are gone, and it has to boot."""
        with self.changed:
            with contextlib.suppress(BlockingIOError):
                while self._port.recv(65536, socket.MSG_DONTWAIT):
                    pass
            self._received.clear()
            self._ready = False
            self._lose_jobs()
            self.changed.notify_all()

    def wait_ready(self, timeout: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the agent in the node runs; check() raises where it never will."""
        deadline = time.monotonic() + timeout
        while not self._settled(CHECK_INTERVAL):
            check()
            if time.monotonic() > deadline:
                raise TimedOut(f"{self.name} did not come up within {timeout:.0f} s")
        if not self._ready:
            raise NodeDied(f"{self.name} ended while it booted")

    def _settled(self, timeout: float) -> bool:
        """Whether the agent in the node runs, or never will: as soon as that is known."""
        with self.changed:
            return self.changed.wait_for(lambda: self._ready or self.ended, timeout)

    def send(self, data: bytes) -> None:
        """Send one request."""
        try:
            with self._sending:
                self._port.sendall(data)
        except OSError as error:
            raise NodeDied(f"{self.name} is gone: {error}") from error

    def spawn(self, command: str, *, uid: int = 0, stream: bool = False) -> Job:
        """Start a shell command; with stream, its output is taken by pieces().

        Bytes that are no text may be escaped as by surrogateescape.
        """
        script = command.encode(errors="surrogateescape")
        if len(script) > LONGEST_COMMAND:
            raise NodesError(
                f"{self.name}: a script of {len(script)} bytes is too long, "
                f"the limit is {LONGEST_COMMAND} bytes"
            )
        with self.changed:
            self._numbers += 1
            job = Job(self, self._numbers, command, stream)
            self._jobs[self._numbers] = job
        self.send(f"run {job._number} {uid} {len(script)}\n".encode() + script)
        return job
