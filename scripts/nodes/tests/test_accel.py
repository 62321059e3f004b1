# SPDX-License-Identifier: GPL-2.0
"""What runs the nodes, on machines with every kind of KVM."""

import os
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from .. import accel, cluster, kvm
from ..accel import KVM, TCG, Accelerator
from ..errors import NodeDied
from ..qemu import Config

WHY = "it only pretends"


class Directory(unittest.TestCase):
    """A directory for each test, and a device that is there."""

    def setUp(self) -> None:
        """Make both."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        device = self.directory / "kvm"
        device.touch()
        for patch in (
            mock.patch.object(kvm, "DEVICE", device),
            mock.patch.object(accel, "say", self.hear),
            mock.patch.dict(os.environ),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        os.environ.pop("ULDMA_ACCEL", None)
        self.said: list[str] = []
        self.asked = 0

    def hear(self, message: str) -> None:
        """Take down what a person is told."""
        self.said.append(message)

    def make(self, why: str = "", *facts: str) -> Accelerator:
        """A process that finds out, or recalls, what runs its nodes."""

        def ask() -> str:
            self.asked += 1
            return why

        return Accelerator(ask, self.directory / "cache", facts)


class AcceleratorTest(Directory):
    """Asking, and remembering the answer."""

    def test_able(self) -> None:
        """A KVM without an unusable_reason is used, and asked once for all processes."""
        for _ in range(2):
            self.assertEqual(self.make().choose(), KVM)
        self.assertEqual((self.asked, self.said), (1, []))

    def test_unable(self) -> None:
        """A KVM that cannot is not used; why is said once."""
        for _ in range(2):
            self.assertEqual(self.make(WHY).choose(), TCG)
        self.assertEqual((self.asked, len(self.said)), (1, 1))
        self.assertIn(WHY, self.said[0])

    def test_other_machine(self) -> None:
        """What one machine can says nothing about another one."""
        self.assertEqual(self.make(WHY, "old").choose(), TCG)
        self.assertEqual(self.make("", "new").choose(), KVM)
        self.assertEqual(self.asked, 2)

    def test_facts(self) -> None:
        """A machine is known by its kernel, its processor and its kinds of KVM."""
        facts = list(accel.machine())
        self.assertIn(os.uname().release, facts)
        self.assertTrue(any(fact.startswith("model name") for fact in facts))
        self.assertEqual(facts, list(accel.machine()))

    def test_no_device(self) -> None:
        """Where there is no KVM nothing is asked, and nothing remembered."""
        kvm.DEVICE.unlink()
        self.assertEqual(self.make().choose(), TCG)
        self.assertEqual((self.asked, self.said), (0, []))
        kvm.DEVICE.touch()
        self.assertEqual(self.make().choose(), KVM)

    def test_forced(self) -> None:
        """A person has the last word, even over a KVM that does not boot."""
        for word, wanted in (("tcg", TCG), ("kvm", KVM)):
            os.environ["ULDMA_ACCEL"] = word
            self.assertEqual(self.make(WHY).choose(), wanted)
            self.assertFalse(self.make().doubt(wanted, WHY))
        self.assertEqual(self.asked, 0)

    def test_doubt(self) -> None:
        """A KVM with which no node has come up yet is given up after the first that did not."""
        chosen = self.make().choose()
        self.assertTrue(self.make().doubt(chosen, WHY))
        self.assertEqual(self.make().choose(), TCG)
        self.assertIn(WHY, self.said[0])
        # Another node that was booted with it by then.
        self.assertTrue(self.make().doubt(chosen, WHY))
        self.assertEqual(len(self.said), 1)

    def test_proven(self) -> None:
        """Once a node has come up with KVM, others fail for reasons of their own."""
        chosen = self.make().choose()
        self.make().proven(chosen)
        self.assertFalse(self.make().doubt(chosen, WHY))
        self.assertEqual(self.make().choose(), KVM)
        self.assertFalse(self.make().doubt(TCG, WHY))


class AskTest(Directory):
    """The process that asks the kernel."""

    def ask(self, script: str) -> str:
        """Ask a process that does this instead."""
        program = self.directory / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with mock.patch.object(kvm, "PYTHON", str(program)):
            return kvm.ask()

    def test_answers(self) -> None:
        """What it prints is the unusable_reason; its end by a signal is one, too."""
        self.assertEqual(self.ask("echo"), "")
        self.assertEqual(self.ask(f"echo '{WHY}'"), WHY)
        self.assertNotEqual(self.ask("kill -SEGV $$"), "")

    def test_hang(self) -> None:
        """A KVM that hangs is one that cannot."""
        with mock.patch.object(kvm, "TIMEOUT", 0.01):
            self.assertIn("did not end", self.ask("exec sleep 600"))

    def test_device(self) -> None:
        """A file that is no KVM is refused by the kernel, and told."""
        with self.assertRaises(OSError):
            kvm.unusable_reason()


class FakeNode:
    """A node that comes up by software alone."""

    booted: list[str]

    def __init__(self, name: str, *, accel: str, **_: Any) -> None:
        self._accel = accel
        FakeNode.booted.append(f"{name} {accel}")

    def wait_ready(self) -> None:
        """Fail as QEMU does."""
        if self._accel == KVM:
            raise NodeDied(f"{WHY}\nmore")

    def stop(self) -> None:
        """End it."""


class FallbackTest(Directory):
    """Nodes on a machine where KVM says it can."""

    def boot(self, accelerator: Accelerator) -> list[str]:
        """Boot a pair; with what each node was."""
        FakeNode.booted = []
        with (
            mock.patch.multiple(
                cluster, ACCELERATOR=accelerator, Node=FakeNode, Lock=mock.Mock(), say=self.hear
            ),
            mock.patch.object(cluster.Cluster, "_prepare"),
            cluster.Cluster("fallback", Config(backends=())) as pair,
        ):
            self.assertEqual(list(pair.nodes), ["a", "b"])
        return FakeNode.booted

    def test_software(self) -> None:
        """They come up by software the first time, and from then on at once; why is told."""
        self.assertEqual(self.boot(self.make()), [f"a {KVM}", f"b {KVM}", f"a {TCG}", f"b {TCG}"])
        self.assertTrue(any(WHY in message for message in self.said))
        self.assertEqual(self.boot(self.make()), [f"a {TCG}", f"b {TCG}"])

    def test_own_fault(self) -> None:
        """Where KVM is known to work a failure is one."""
        accelerator = self.make()
        accelerator.proven(accelerator.choose())
        with self.assertRaises(NodeDied):
            self.boot(accelerator)
        self.assertEqual(self.make().choose(), KVM)
