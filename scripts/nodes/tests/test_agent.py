# SPDX-License-Identifier: GPL-2.0
"""Talking to the agent in a node."""

import contextlib
import random
import socket
import unittest

from ..agent import LONGEST_COMMAND, Agent
from ..errors import NodeDied, NodesError

TIMEOUT = 10.0
CASES = 500
WORDS = ("ready", "out", "err", "exit", "exit", "")
NUMBERS = (0, 1, 2, 3, 3, 4, -1, 1 << 64, "x")


def _nearly_right(chance: random.Random) -> bytes:
    """An answer, with a byte or a word that is another as often as not."""
    words = [chance.choice(WORDS)]
    words += [str(chance.choice(NUMBERS)) for _ in range(chance.choice((2, 2, 2, 0, 1, 3)))]
    answer = bytearray(" ".join(words).encode() + b"\n" + b"y" * chance.randrange(4))
    if chance.randrange(2):
        answer[chance.randrange(len(answer))] = chance.randrange(256)
    return bytes(answer)


class AgentTest(unittest.TestCase):
    """A guest's end that says what it likes."""

    def setUp(self) -> None:
        """Join the two ends."""
        ours, self.guest = socket.socketpair()
        self.guest.settimeout(TIMEOUT)
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

    def test_nonsense(self) -> None:
        """An agent that says what none says is lost, at once, with all commands."""
        for nonsense in ("\n", "exit 9 0\n", "exit 1\n", "out 9 1\nx", "out 1 -1\n", "hello\n"):
            with self.subTest(nonsense):
                ours, guest = socket.socketpair()
                with guest:
                    job = Agent("node x", ours).spawn("true")
                    guest.sendall(nonsense.encode())
                    with self.assertRaises(NodeDied):
                        job.wait(TIMEOUT)

    def test_no_end_of_line(self) -> None:
        """What is never a line is not kept for ever."""
        job = self.agent.spawn("true")
        with contextlib.suppress(OSError):
            while job.running:
                self.guest.sendall(b"x" * 4096)
        with self.assertRaises(NodeDied):
            job.wait(TIMEOUT)

    def test_anything(self) -> None:
        """Whatever is said, nearly right or not: commands end, or the node is lost."""
        for seed in range(CASES):
            chance = random.Random(seed)
            with self.subTest(seed=seed):
                ours, guest = socket.socketpair()
                with guest:
                    agent = Agent("node x", ours)
                    jobs = [agent.spawn("true") for _ in range(3)]
                    with contextlib.suppress(OSError):
                        for _ in range(chance.randrange(8)):
                            guest.sendall(_nearly_right(chance))
                        guest.shutdown(socket.SHUT_WR)
                    for job in jobs:
                        with contextlib.suppress(NodeDied):
                            job.wait(TIMEOUT)

    def test_end(self) -> None:
        """A node that ends takes its commands with it."""
        job = self.agent.spawn("sleep")
        self.guest.close()
        with self.assertRaises(NodeDied):
            job.wait(TIMEOUT)
