# SPDX-License-Identifier: GPL-2.0
"""Scripts that other processes have run on the nodes of this one.

The process that has booted the nodes offers them at a socket. A request is a line of JSON
(NODE, BYTES) and the script. The answers are lines: "begun", "out LENGTH" or "err LENGTH" with that
many bytes, and "exit STATUS", or "lost LENGTH" with the reason. A client that goes away takes its
script with it.
"""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from .agent import Job
from .errors import NodesError

END_TIMEOUT = 10.0


class Runner(Protocol):
    """What scripts run on: a node."""

    def spawn(self, command: str, *, uid: int = 0, stream: bool = False) -> Job:
        """Start a shell command."""


def write(stream: str, data: bytes) -> None:
    """Pass on what a script has written."""
    target = sys.stdout if stream == "out" else sys.stderr
    target.buffer.write(data)
    target.buffer.flush()


def start(node: Runner, script: bytes) -> Job:
    """Start a script, which may have bytes that are no text."""
    return node.spawn(script.decode(errors="surrogateescape"), stream=True)


def run(node: Runner, script: bytes) -> int:
    """Run a script on a node of ours; its exit status."""
    job = start(node, script)
    for piece in job.pieces():
        write(*piece)
    return job.wait(END_TIMEOUT).rc


class ScriptServer:
    """Runs scripts for others while it is entered; leaving it ends those that still run."""

    def __init__(self, nodes: Mapping[str, Runner], path: Path) -> None:
        self._nodes = nodes
        self._path = path
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def finish(self) -> None:
        """Let all scripts that run come to their end, and take no more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
            self._close()

    def _close(self) -> None:
        """Wake the thread that accepts, too."""
        with self._changed:
            self._closed = True
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            with self._changed:
                if self._closed:
                    return
                self._running += 1
            try:
                request = json.loads(stream.readline())
                script = stream.read(request["bytes"])
                # A client that has gone needs no answer.
                with contextlib.suppress(OSError, ValueError):
                    self._answer(client, request["node"], script)
            except (ValueError, KeyError):
                pass
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _answer(self, client: socket.socket, node: str, script: bytes) -> None:
        client.sendall(b"begun\n")
        watch = None
        try:
            job = start(self._nodes[node], script)
            watch = threading.Thread(target=_end_with, args=[client, job], daemon=True)
            watch.start()
            for name, data in job.pieces():
                client.sendall(f"{name} {len(data)}\n".encode() + data)
            client.sendall(f"exit {job.wait(END_TIMEOUT).rc}\n".encode())
        except (NodesError, KeyError) as error:
            reason = str(error).encode()
            client.sendall(f"lost {len(reason)}\n".encode() + reason)
        finally:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            if watch:
                watch.join()


def _end_with(client: socket.socket, job: Job) -> None:
    """Kill the script when its client goes away, which sends nothing more."""
    with contextlib.suppress(OSError, ValueError):
        client.recv(1)
    if job.running:
        with contextlib.suppress(NodesError):
            job.kill()


def ask(path: Path, node: str, script: bytes) -> int | None:
    """Run a script on a node that another process offers at this path; its exit status.

    None where no process offers any, or it ends before it has begun the script.
    """
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(str(path))
            header = json.dumps({"node": node, "bytes": len(script)}).encode()
            with server.makefile("rb") as stream:
                server.sendall(header + b"\n" + script)
                if stream.readline() != b"begun\n":
                    return None
                return _follow(stream)
        except OSError:
            return None


def _follow(stream: BufferedReader) -> int:
    """Pass on what a script writes; its exit status."""
    while words := stream.readline().split():
        kind, number = words[0].decode(), int(words[1])
        if kind == "exit":
            return number
        data = stream.read(number)
        if kind == "lost":
            raise NodesError(data.decode())
        write(kind, data)
    raise NodesError("the nodes were ended while the script ran")
