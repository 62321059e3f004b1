# SPDX-License-Identifier: GPL-2.0
"""What QEMU and the module are told."""

import json
import socket
import unittest
from pathlib import Path

from ..qemu import (
    LINK_PENALTY_MS,
    LINK_TIMEOUT_MS,
    Backend,
    Config,
    Disk,
    Joint,
    Wiring,
    command,
    module_parameters,
)


class ParametersTest(unittest.TestCase):
    """Parameters of the module on the kernel's command line."""

    def test_default(self) -> None:
        """The link is patient with emulated processors."""
        self.assertEqual(
            module_parameters({}),
            f"uldma.link_timeout_ms={LINK_TIMEOUT_MS} uldma.link_backoff_ms={LINK_PENALTY_MS}",
        )

    def test_given(self) -> None:
        """What is given is added, and comes first where it is the same."""
        self.assertEqual(
            module_parameters({"link_timeout_ms": "7", "link_spin_us": "0", "link_slots": "1"}),
            f"uldma.link_timeout_ms=7 uldma.link_backoff_ms={LINK_PENALTY_MS} "
            "uldma.link_spin_us=0 uldma.link_slots=1",
        )


class CommandTest(unittest.TestCase):
    """The command line of QEMU."""

    def setUp(self) -> None:
        """Make ends of sockets."""
        self.pairs = [socket.socketpair() for _ in range(3)]
        for pair in self.pairs:
            for end in pair:
                self.addCleanup(end.close)

    def make(self, ivshmem: Path | None, disks: tuple[Disk, ...] = ()) -> list[str]:
        """A command line."""
        serial, agent, monitor = (pair[0] for pair in self.pairs)
        wiring = Wiring(serial, agent, monitor, Path("console"), ivshmem=ivshmem)
        config = Config(backends=(Backend.IVSHMEM,), module={"link_slots": "1"}, disks=disks)
        return command("a", config, "tcg", Path("initrd"), wiring)

    def test_disks(self) -> None:
        """Each disk has a device of its own, and its latency."""
        line = self.make(None, (Disk(16, latency=5000), Disk(2)))
        disks = [json.loads(it) for it in line if "null-co" in it]
        found = [(it["node-name"], it["size"], it["latency-ns"]) for it in disks]
        self.assertEqual(found, [("disk0", 16 << 20, 5000), ("disk1", 2 << 20, 0)])
        self.assertIn("virtio-blk-pci,drive=disk1", line)

    def test_ivshmem(self) -> None:
        """ivshmem-doorbell is there if it is wired, and no other device of ours."""
        line = self.make(Path("socket"))
        self.assertIn("ivshmem-doorbell,vectors=3,chardev=ivshmem", line)
        self.assertIn("socket,id=ivshmem,path=socket", line)
        self.assertNotIn("ivshmem", " ".join(self.make(None)))
        self.assertNotIn("vfio-user", " ".join(line))

    def test_character_device(self) -> None:
        """Nodes that are joined by a character device have a port for it, next to the runner's."""
        serial, agent, monitor = (pair[0] for pair in self.pairs)
        network, character = (pair[1] for pair in self.pairs[:2])
        for joint, is_there in ((Joint(network), False), (Joint(network, character), True)):
            wiring = Wiring(serial, agent, monitor, Path("console"), joint=joint)
            line = command("b", Config(), "tcg", Path("initrd"), wiring)
            self.assertEqual("virtserialport,chardev=peer,name=peer,nr=2" in line, is_there)
            self.assertEqual(character.fileno() in wiring.descriptors(), is_there)

    def test_module(self) -> None:
        """The parameters reach the kernel."""
        line = self.make(None)
        self.assertIn(" uldma.link_slots=1", line[line.index("-append") + 1])
