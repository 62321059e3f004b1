# SPDX-License-Identifier: GPL-2.0
"""Scripts that one process has run on the nodes of another."""

import socket
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from .. import scripts
from ..agent import Agent, Piece
from ..errors import NodesError

TIMEOUT = 10.0
SCRIPT = b"printf '\\377'; exit 3\n"


class ScriptServerTest(unittest.TestCase):
    """A node whose agent is this test, and a process that offers it."""

    def setUp(self) -> None:
        """Join the two ends."""
        ours, self.guest = socket.socketpair()
        self.addCleanup(self.guest.close)
        self.guest.settimeout(TIMEOUT)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "control"
        self.written: list[Piece] = []
        self.result: int | str | None = None
        self.server = scripts.ScriptServer({"b": Agent("node b", ours)}, self.path)

    def ask(self, node: str) -> threading.Thread:
        """Have a script run, by another thread."""

        def body() -> None:
            try:
                self.result = scripts.ask(self.path, node, SCRIPT)
            except NodesError as error:
                self.result = str(error)

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def expect_script(self) -> None:
        """Take the request, as the agent in the node would."""
        request = f"run 1 0 {len(SCRIPT)}\n".encode() + SCRIPT
        received = b""
        while len(received) < len(request):
            received += self.guest.recv(len(request) - len(received))
        self.assertEqual(received, request)

    def test_output_and_status(self) -> None:
        """All that a script writes arrives as it is, and so does its exit status."""
        with (
            mock.patch.object(scripts, "write", lambda *piece: self.written.append(piece)),
            self.server as server,
        ):
            thread = self.ask("b")
            self.expect_script()
            self.guest.sendall(b"out 1 1\n\xfferr 1 2\n\n\nexit 1 3\n")
            thread.join(TIMEOUT)
            server.finish()
        self.assertEqual(self.result, 3)
        self.assertEqual(self.written, [("out", b"\xff"), ("err", b"\n\n")])

    def test_node_ends(self) -> None:
        """A script that ends with its node is told from one that has never begun."""
        with self.server:
            thread = self.ask("b")
            self.expect_script()
            self.guest.close()
            thread.join(TIMEOUT)
        self.assertIn("died", str(self.result))
        self.assertIsNone(scripts.ask(self.path, "b", SCRIPT))

    def test_client_goes(self) -> None:
        """A client that goes away takes its script with it."""
        with self.server as server, socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.path))
            client.sendall(b'{"node": "b", "bytes": %d}\n' % len(SCRIPT) + SCRIPT)
            self.expect_script()
            client.close()
            self.assertEqual(self.guest.recv(100), b"kill 1 9\n")
            self.guest.sendall(b"exit 1 137\n")
            server.finish()
