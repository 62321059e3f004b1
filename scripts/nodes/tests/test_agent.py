# SPDX-License-Identifier: GPL-2.0
"""Talking to the agent in a node."""

import socket
import unittest

from ..agent import LONGEST_COMMAND, Agent
from ..errors import NodeDied, NodesError

TIMEOUT = 10.0


class AgentTest(unittest.TestCase):
    """A guest's end that says what it likes."""

    def setUp(self) -> None:
        """Join the two ends."""
        ours, self.guest = socket.socketpair()
        self.addCleanup(self.guest.close)
        self.agent = Agent("node x", ours)

    def say(self, text: str) -> None:
        """Answer as the agent in the node would."""
        self.guest.sendall(text.encode())

    def test_pieces(self) -> None:
        """Answers may arrive in any pieces, and of several commands."""
        first, second = self.agent.spawn("one"), self.agent.spawn("two")
        for piece in ("rea", "dy\nout 1 5\nhe", "llo", "err 2 2\n\n\n", "exit 2 0\nexit 1 3", "\n"):
            self.say(piece)
        self.agent.wait_ready(TIMEOUT)
        result = first.wait(TIMEOUT)
        self.assertEqual((result.rc, result.stdout), (3, "hello"))
        self.assertEqual(second.wait(TIMEOUT).stderr, "\n\n")

    def test_reset(self) -> None:
        """After a reset nothing is left of what went before, not even half an answer."""
        job = self.agent.spawn("sleep")
        self.say("ready\nout 1 100\nhalf")
        self.agent.wait_ready(TIMEOUT)
        self.agent.forget()
        with self.assertRaises(NodeDied):
            job.wait(TIMEOUT)
        self.assertFalse(job.running)
        self.say("ready\n")
        self.agent.wait_ready(TIMEOUT)
        again = self.agent.spawn("true")
        self.say("exit 2 0\n")
        self.assertEqual(again.wait(TIMEOUT).rc, 0)

    def test_too_long(self) -> None:
        """What a node has no room for never gets there."""
        with self.assertRaisesRegex(NodesError, "too long"):
            self.agent.spawn("#" * (LONGEST_COMMAND + 1))
        job = self.agent.spawn("true")
        self.say("exit 1 0\n")
        self.assertEqual(job.wait(TIMEOUT).rc, 0)

    def test_end(self) -> None:
        """A node that ends takes its commands with it."""
        job = self.agent.spawn("sleep")
        self.guest.close()
        with self.assertRaises(NodeDied):
            job.wait(TIMEOUT)
