# SPDX-License-Identifier: GPL-2.0
"""What the report of messages says."""

import unittest
from collections.abc import Mapping

from .. import report
from ..report import semantics
from ..report.values import Values
from ..results import Figure
from .test_report_parts import figures, rendered, verdicts


def rows(text: str, title: str) -> list[list[str]]:
    """The head and the rows of a table."""
    lines = text.splitlines()
    found = []
    for line in lines[lines.index(title) + 1 :]:
        if not line:
            break
        found.append([cell.strip() for cell in line.split("|")])
    return [found[0], *found[2:]]


class SemanticsTest(unittest.TestCase):
    """Messages by each technique."""

    SENDERS: Mapping[str, float] = {
        "sem.send.pio.64": 40.0,
        "sem.send.copy-dma.64": 10.0,
        "sem.send.copy-dma.1m": 800.0,
        "sem.send.direct-dma.64": 12.0,
        "sem.send.direct-dma.1m": 900.0,
        "sem.send.pio.1m": 100.0,
        "sem.send.copy-dma.1m.paced": 230.0,
        "sem.send.direct-dma.1m.paced": 240.0,
        "sem.send.copy-dma.4k.syscalls_per_message": 0.5,
    }

    def test_techniques(self) -> None:
        """Techniques are those that were measured, by run; counts are none."""
        values = Values(figures(self.SENDERS))
        found = semantics.techniques(values, "send", "")
        self.assertEqual(found, ["pio", "copy-dma", "direct-dma"])
        found = semantics.techniques(values, "send", ".paced")
        self.assertEqual(found, ["copy-dma", "direct-dma"])
        self.assertEqual(semantics.techniques(values, "recv", ""), [])

    def test_alone(self) -> None:
        """A column for each technique, and the engine of the same rounds."""
        found = [Figure("sem.recv.copy-dma.4k", 50.0, "MB/s", floor=200.0)]
        text = report.render("semantics", Values(found))
        table = rows(text, "Figure 3: receivers alone, the engine at full speed, MB/s")
        self.assertEqual(table, [["size", "engine", "copy-dma"], ["4k", "200", "50.0"]])

    def test_sides(self) -> None:
        """A pair is beside the slower of its sides alone; one of which a side is missing is not."""
        found = {
            "sem.send.copy-dma.1m": 800.0,
            "sem.recv.pio.1m": 100.0,
            "sem.recv.copy-dma.1m": 400.0,
            "sem.pair.copy-dma.pio.1m": 90.0,
            "sem.pair.copy-dma.copy-dma.1m": 200.0,
            "sem.pair.copy-dma.null.1m": 700.0,
        }
        text = rendered("semantics", found)
        title = "The same, by the slower of the sides alone, the engine at full speed"
        [head, copied] = rows(text, title)
        self.assertEqual(head, ["sender by receiver", "pio", "copy-dma", "null"])
        self.assertEqual(copied, ["copy-dma", "0.90", "0.50", "-"])

    def test_paper(self) -> None:
        """The paper's peaks are beside those of a paced engine."""
        text = rendered("semantics", self.SENDERS)
        title = "Figure 2: 1 MiB with a paced engine beside the paper's peaks, MB/s"
        [_, copied, direct] = rows(text, title)
        self.assertEqual(copied, ["copy-dma", "230", "0.96", "91.0", "0.99"])
        self.assertEqual(direct, ["direct-dma", "240", "1.00", "92.0", "1.00"])

    def test_reference(self) -> None:
        """The paper's machine is named, and the emulator if the nodes had one."""
        found = figures(self.SENDERS)
        self.assertIn("Pentium II", report.render("semantics", Values(found)))
        for emulated in (False, True):
            text = report.render("semantics", Values(found, emulated))
            self.assertEqual("The nodes are emulated" in text, emulated)

    def test_crossovers(self) -> None:
        """A crossover is the least size from which on the other one is not slower."""

        def of(slower: Mapping[str, float], faster: Mapping[str, float]) -> str | None:
            values = {f"x.{size}": value for size, value in slower.items()}
            values |= {f"y.{size}": value for size, value in faster.items()}
            return semantics.crossover(Values(figures(values)), "x", "y", "")

        sizes = {"64": 5.0, "1k": 6.0, "4k": 7.0}
        self.assertEqual(of(sizes, {"64": 1.0, "1k": 2.0, "4k": 9.0}), "from 4k on")
        self.assertEqual(of(sizes, {"64": 1.0, "1k": 2.0, "4k": 3.0}), "none up to 4k")
        self.assertEqual(of(sizes, {"64": 9.0, "1k": 5.0, "4k": 9.0}), "from 4k on")
        everywhere = "from 64 on, the least measured"
        self.assertEqual(of(sizes, {"64": 9.0, "1k": 9.0, "4k": 9.0}), everywhere)
        self.assertIsNone(of(sizes, {}))
        text = rendered("semantics", self.SENDERS)
        line = ["send.direct-dma ahead of send.pio", "from 1m on", "-", "1024 bytes"]
        self.assertIn(line, rows(text, "Crossovers by size"))

    def test_pairs(self) -> None:
        """A row for each sender, a column for each receiver."""
        values = {
            "sem.pair.copy-dma.copy-dma.1m": 1.0,
            "sem.pair.copy-dma.v2p-dma.1m": 2.0,
            "sem.pair.v2p-dma.v2p-dma.1m": 3.0,
            "sem.pair.v2p-dma.v2p-dma.1m.paced": 4.0,
            "sem.pair.v2p-dma.v2p-dma.4k": 5.0,
        }
        title = "Senders and receivers, 1 MiB, the engine at full speed, MB/s"
        table = rows(rendered("semantics", values), title)
        self.assertEqual(
            table,
            [
                ["sender by receiver", "copy-dma", "v2p-dma"],
                ["copy-dma", "1.00", "2.00"],
                ["v2p-dma", "-", "3.00"],
            ],
        )

    def test_relate(self) -> None:
        """Figures without a size are those of the size that they are about."""
        values = {
            "sem.match.rtt.8.p50": 900.0,
            "sem.match.stream.64k.syscalls_per_message": 0.25,
            "sem.match.stream.64k.mmio_per_message.paced": 0.5,
        }
        found = Values(semantics.relate(figures(values)))
        self.assertEqual(found.get("sem.match.rtt"), 900.0)
        self.assertEqual(found.get("sem.match.syscalls_per_message"), 0.25)
        self.assertEqual(found.get("sem.match.mmio_per_message.paced"), 0.5)
        self.assertIsNone(found.get("sem.match.mmio_per_message"))

    def test_round_trips(self) -> None:
        """Names of round trips have no size."""
        values = {
            "sem.match.rtt.8.p50": 1000.0,
            "sem.match.rtt.8.p99": 2000.0,
            "sem.rtt.copy-dma.v2p-dma.8.p50": 3000.0,
            "sem.rtt.copy-dma.v2p-dma.4k.p99": 9000.0,
        }
        table = rows(rendered("semantics", values), "Round trips by technique, us")
        self.assertEqual(table[1], ["match", "1.00", "2.00", "-", "-"])
        self.assertEqual(table[2], ["copy-dma to v2p-dma", "3.00", "-", "-", "9.00"])

    def test_aims(self) -> None:
        """Aims are judged; those that were not measured are told."""
        found = [
            *figures(self.SENDERS),
            Figure("sem.match.stream.64k", 500.0, "MB/s", floor=1000.0),
            Figure("sem.match.stream.64k.paced", 240.0, "MB/s", floor=250.0),
            Figure("sem.match.syscalls_per_message", 0.01, "count"),
        ]
        text = report.render("semantics", Values(found))
        judged = verdicts(text)
        for what, verdict in {
            "DMA senders of 1 MiB, paced: percent apart": "met",
            "64k matched: part of a paced engine's rate": "met",
            "64k matched: part of the engine's rate": "missed",
            "64k matched: system calls by message": "met",
            "64 bytes by PIO: times DirectDMA": "met",
        }.items():
            self.assertEqual(judged[what], verdict, what)
        _, missing = text.split("Not measured:")
        self.assertIn("DMA receivers of 1 MiB", missing)
        self.assertIn("64k matched: MMIO by message", missing)

    def test_overwritten(self) -> None:
        """Page exchange is beside V2PDMA, with the part of its bytes that was copied."""
        values = {
            "sem.overwrite.v2p-dma.64k": 200.0,
            "sem.overwrite.0.64k": 180.0,
            "sem.overwrite.100.64k": 50.0,
            "sem.overwrite.100.64k.copies": 0.75,
        }
        text = rendered("semantics", values)
        line = ["64k", "200", "180", "50.0", "0.90", "0.25", "-", "0.75"]
        self.assertIn(line, [[it.strip() for it in row.split("|")] for row in text.splitlines()])

    def test_processors(self) -> None:
        """A row for each technique: rates and shoot-downs by number of processors."""
        values: dict[str, float] = {}
        for cpus in (1, 2, 4):
            values[f"sem.send.v2p-dma.64k.cpus{cpus}"] = 100.0 / cpus
            values[f"sem.send.v2p-dma.64k.shootdowns_per_message.cpus{cpus}"] = cpus - 1.0
        text = rendered("semantics", values)
        line = ["send v2p-dma", "100", "50.0", "25.0", "0.00", "1.00", "3.00"]
        self.assertIn(line, [[it.strip() for it in row.split("|")] for row in text.splitlines()])
        self.assertNotIn("Figure 2: senders alone", text)

    def test_lines(self) -> None:
        """Drawings have lines by size, and one for each run."""
        drawn = {it.file: it.lines for it in semantics.drawings(Values(figures(self.SENDERS)))}
        self.assertEqual(
            drawn["semantics-send.svg"][0], ("pio", [(64.0, 40.0), (1048576.0, 100.0)])
        )
        paced = drawn["semantics-send-paced.svg"]
        self.assertEqual(paced[0], ("copy-dma", [(1048576.0, 230.0)]))
