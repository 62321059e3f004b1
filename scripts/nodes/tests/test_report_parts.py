# SPDX-License-Identifier: GPL-2.0
"""What the reports of registration, initiation and the link say."""

import json
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path

from .. import report
from ..report import initiation, link, lmm
from ..report.values import Values
from ..results import Figure


def figures(values: Mapping[str, float]) -> list[Figure]:
    """Figures with these values."""
    return [Figure(name, value, "ns") for name, value in values.items()]


def rendered(part: str, values: Mapping[str, float]) -> str:
    """The report of figures with these values."""
    return report.render(part, Values(figures(values)))


def verdicts(text: str) -> dict[str, str]:
    """The verdict of each aim."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return {row[0]: row[-1] for row in rows if row[-1] in ("met", "missed")}


class InitiationTest(unittest.TestCase):
    """Initiation methods."""

    VALUES: Mapping[str, float] = {
        "init.kernel.time": 25_000.0,
        "init.kernel.min": 20_000.0,
        "init.repeated-5.time": 5_000.0,
        "init.repeated-5.mmio_stores": 2.0,
        "init.repeated-5.mmio_loads": 3.5,
        "init.queue.min": 100.0,
        "switch.2.errors_per_100": 111.0,
        "switch.errors_per_100": 111.0,
        "switch.fails_per_100": 48.0,
    }

    def test_tables(self) -> None:
        """Missing figures have no table; the paper's times are beside ours."""
        text = rendered("initiation", self.VALUES)
        self.assertIn("Table 1", text)
        self.assertIn("Verification run", text)
        self.assertNotIn("Cost model", text)
        self.assertNotIn("single-store", text)
        [line] = [line for line in text.splitlines() if line.startswith(" repeated-5 ")]
        cells = [cell.strip() for cell in line.split("|")]
        self.assertEqual((cells[5], cells[-1]), ("4.60", "5.46"))

    def test_destinations(self) -> None:
        """The cost of a map-out is beside what it adds to each initiation."""
        text = rendered(
            "initiation",
            {
                "map_out.time": 8_000.0,
                "syscall.nop.time": 500.0,
                "destinations.shrimp-1.2.time": 9_000.0,
                "destinations.shrimp-1.2.syscalls": 1.0,
                "destinations.shrimp-2-abort.2.time": 3_000.0,
                "destinations.shrimp-2-abort.2.syscalls": 0.0,
            },
        )
        self.assertIn("takes 8.00 us, an empty ioctl 0.50 us", text)
        cells = ["2", "9.00", "1.00", "3.00", "0.00", "3.00"]
        self.assertIn(cells, [[it.strip() for it in line.split("|")] for line in text.splitlines()])

    def test_touches(self) -> None:
        """A remote write touches each word twice, a transfer by the device once."""
        values = {
            "touches.remote_write.processor": 2.0,
            "touches.remote_write.device": 0.0,
            "touches.dma.processor": 0.0001,
            "touches.dma.device": 1.0,
        }
        text = rendered("initiation", values)
        self.assertIn("Accesses of the sending host's memory bus", text)
        judged = verdicts(text)
        self.assertEqual(judged["touches of each word: DMA"], "met")
        self.assertEqual(judged["touches of each word: remote write"], "met")
        twice = verdicts(rendered("initiation", values | {"touches.dma.device": 2.0}))
        self.assertEqual(twice["touches of each word: DMA"], "missed")
        self.assertNotIn("memory bus", rendered("initiation", {"touches.dma.device": 1.0}))

    def test_aims(self) -> None:
        """Aims are judged."""
        found = verdicts(rendered("initiation", self.VALUES))
        for what, verdict in {
            "kernel by queue, shortest times": "met",
            "repeated-5: mmio_stores": "met",
            "repeated-5: mmio_loads": "missed",
            "switch: errors_per_100": "met",
            "switch: fails_per_100": "missed",
        }.items():
            self.assertEqual(found[what], verdict, what)

    def test_relate(self) -> None:
        """Times are compared with the kernel's; ratios and the model follow."""
        values = {"syscall.nop.time": 100.0, "init.kernel.time": 1000.0}
        for method, stores, loads in (
            ("extended-shadow", 1, 1),
            ("key", 3, 1),
            ("repeated-5", 2, 3),
            ("single-store", 1, 0),
        ):
            time = 10.0 + 40 * stores + 50 * loads
            values |= {f"init.{method}.{what}": time for what in ("time", "min")}
            values |= {f"init.{method}.mmio_stores": stores, f"init.{method}.mmio_loads": loads}
        values["init.queue.batch.time"] = 10.0
        found = Values(initiation.relate(figures(values)))
        for name, floor, rival in (
            ("init.kernel.time", 100.0, None),
            ("init.key.time", None, 1000.0),
            ("init.queue.batch.time", None, 1000.0),
            ("init.key.min", None, None),
        ):
            figure = found.figure(name)
            self.assertEqual(figure and (figure.floor, figure.rival), (floor, rival), name)
        relation = found.figure("init.ratio.extended-shadow")
        assert relation and relation.rival
        self.assertEqual(relation.value, 10.0)
        self.assertAlmostEqual(relation.rival, 16.7, delta=0.1)
        self.assertAlmostEqual(found.get("init.model.load") or 0, 50)

    def test_latency(self) -> None:
        """Shortest times get the name of the latency."""
        found = initiation.of_latency(figures({"init.key.min": 9.0, "init.key.time": 8.0}), 500)
        self.assertEqual([(it.name, it.value) for it in found], [("latency.key.500", 9.0)])


class LmmTest(unittest.TestCase):
    """Registration."""

    def test_relate(self) -> None:
        """Rivals, floors and lines are found."""
        values = {
            f"lmm.register.{series}.{size}": fixed + 10 * pages
            for series, fixed in (("first", 300.0), ("io_uring", 100.0), ("again", 50.0))
            for size, pages in lmm.SIZES.items()
        }
        found = Values(lmm.relate(figures(values)))
        for name, floor, rival in (
            ("lmm.register.first.4k", None, 110.0),
            ("lmm.register.again.4k", 310.0, 110.0),
            ("lmm.register.io_uring.4k", None, None),
        ):
            figure = found.figure(name)
            self.assertEqual(figure and (figure.floor, figure.rival), (floor, rival), name)
        fixed = found.figure("lmm.fit.register.first.fixed")
        assert fixed and fixed.rival
        self.assertAlmostEqual(fixed.value, 300)
        self.assertAlmostEqual(fixed.rival, 100)
        self.assertAlmostEqual(found.get("lmm.fit.register.io_uring.page") or 0, 10)
        self.assertIsNone(found.get("lmm.fit.register.mlock.page"))

    def test_verbs(self) -> None:
        """A rival that is missing is told."""
        values = {"lmm.register.first.4k": 10.0}
        self.assertIn("ibv_reg_mr(): not measured", rendered("lmm", values))
        text = rendered("lmm", values | {"lmm.register.ibv_reg_mr.4k": 20.0})
        self.assertIn("ibv_reg_mr() on soft-RoCE", text)
        self.assertIn("0.50", text)

    def test_aims(self) -> None:
        """Aims are judged by the worst size."""
        values: dict[str, float] = {}
        for size, time in (("4k", 14.0), ("8k", 16.0), ("64k", 11.0)):
            values |= {f"lmm.register.first.{size}": time, f"lmm.register.io_uring.{size}": 10.0}
        text = rendered("lmm", values)
        found = verdicts(text)
        self.assertEqual(found["first, private, to 32k: times io_uring's"], "missed")
        self.assertEqual(found["first, private, from 64k: times io_uring's"], "met")
        self.assertNotIn("Figure 7", text)


class LinkTest(unittest.TestCase):
    """The link."""

    def test_relate(self) -> None:
        """Floors and rivals are of the same size and the same run."""
        values = {
            "link.raw.rtt.p50": 10.0,
            "link.ring.rtt.p50": 15.0,
            "link.ring.rtt.p50.busy": 14.0,
            "link.ring.rtt.4k.p50": 30.0,
            "link.tcp.rtt.p50": 1500.0,
            "link.memcpy.stream.256k": 900.0,
            "link.engine.stream.256k": 1000.0,
            "link.conn.stream.256k": 950.0,
            "link.conn.stream.256k.pull": 500.0,
            "link.conn.stream.256k.pull.loaded": 500.0,
            "link.engine.stream.256k.loaded": 600.0,
            "link.ring.stream.256k": 450.0,
            "link.conventional.copies": 3.0,
            "link.conn.copies": 1.0,
            "link.conn.copies.pull": 1.0,
            "link.tcp.irqs_per_mb": 7.0,
            "link.irqs_per_mb.pull": 2.0,
            "link.ivshmem.memcpy.stream.4k": 5.0,
            "link.ivshmem.conn.stream.4k": 4.0,
        }
        found = Values(link.relate(figures(values)))
        for name, floor, rival in (
            ("link.ring.rtt.p50", 10.0, 1500.0),
            ("link.ring.rtt.p50.busy", 10.0, 1500.0),
            ("link.ring.rtt.4k.p50", None, None),
            ("link.conn.stream.256k", 1000.0, None),
            ("link.conn.stream.256k.pull", 1000.0, None),
            ("link.conn.stream.256k.pull.loaded", 600.0, None),
            ("link.ring.stream.256k", 900.0, None),
            ("link.conn.copies", None, 3.0),
            ("link.conn.copies.pull", None, 3.0),
            ("link.irqs_per_mb.pull", None, 7.0),
            ("link.tcp.irqs_per_mb", None, None),
            ("link.ivshmem.conn.stream.4k", 5.0, None),
        ):
            figure = found.figure(name)
            self.assertEqual(figure and (figure.floor, figure.rival), (floor, rival), name)

    def test_streams_beside_the_conventional_ones(self) -> None:
        """The better way counts for each size, and the worst size for the aim."""
        values = {
            "link.loopback.conventional.stream.16k": 600.0,
            "link.loopback.conn.stream.16k": 30.0,
            "link.loopback.conn.stream.16k.rings": 900.0,
            "link.loopback.conventional.stream.1m": 800.0,
            "link.loopback.conn.stream.1m": 1600.0,
            "link.loopback.conn.stream.1m.rings": 400.0,
            "link.ivshmem.conventional.stream.16k": 600.0,
            "link.ivshmem.conn.stream.16k.rings": 500.0,
        }
        found = verdicts(rendered("link", values))
        self.assertEqual(found["streams over the loopback: times a conventional one"], "met")
        self.assertEqual(found["streams over ivshmem: times a conventional one"], "missed")

    def test_broadcasts(self) -> None:
        """Both ways are beside each other."""
        values = {
            "broadcast.shared.64k.time": 300_000.0,
            "broadcast.two.64k.time": 450_000.0,
            "broadcast.shared.64k.copies": 1.0,
            "broadcast.two.64k.copies": 2.0,
        }
        lines = rendered("link", values).splitlines()
        start = lines.index("Broadcasts to two processes of one node, us")
        cells = [it.strip() for it in lines[start + 3].split("|")]
        self.assertEqual(cells, ["64k", "300", "450", "1.50", "1.00", "2.00"])

    def test_caching(self) -> None:
        """Sizes that were measured in one of the cache modes only are left out."""
        values = {
            "link.memcpy.stream.4k": 900.0,
            "link.memcpy.stream.64k": 1000.0,
            "link.memcpy.stream.64k.uncached": 250.0,
        }
        lines = rendered("link", values).splitlines()
        start = lines.index("Copies into the window of the adapter, MB/s")
        cells = [it.strip() for it in lines[start + 3].split("|")]
        self.assertEqual(cells, ["64k", "1000", "250", "4.00"])
        self.assertEqual(lines[start + 4], "")

    def test_aims(self) -> None:
        """Aims are judged by the worst size; those that were not measured are told."""
        text = rendered(
            "link",
            {
                "link.raw.rtt.p50": 1000.0,
                "link.ring.rtt.p50": 1500.0,
                "link.tcp.rtt.p50": 90_000.0,
                "link.engine.stream.256k": 1000.0,
                "link.conn.stream.256k": 950.0,
                "link.engine.stream.1m": 1000.0,
                "link.conn.stream.1m": 800.0,
                "link.conn.copies": 1.0,
            },
        )
        found = verdicts(text)
        for what, verdict in {
            "round trip by ring: times that of bare words": "met",
            "round trip by TCP: times that by ring": "missed",
            "from 256k by connection: part of the engine's rate": "missed",
            "copies by a connection": "met",
        }.items():
            self.assertEqual(found[what], verdict, what)
        _, missing = text.split("Not measured:")
        self.assertIn("copies by a connection that pulls", missing)
        self.assertNotIn("bare words", missing)

    def test_ways(self) -> None:
        """Runs are found by their names."""
        values = {
            "link.ring.rtt.p50": 1.0,
            "link.ring.rtt.p50.loaded": 2.0,
            "link.conn.stream.256k": 1.0,
            "link.conn.stream.256k.loaded": 1.0,
            "link.conn.stream.256k.pull.loaded": 1.0,
            "link.loopback.conn.stream.256k": 1.0,
        }
        text = link.ways(Values(figures(values)))
        assert text
        names = [line.split("|")[0].strip() for line in text.splitlines()[3:]]
        self.assertEqual(names, ["push, idle", "loaded", "pull, loaded", "loopback: push, idle"])

    def test_lines(self) -> None:
        """Lines are by size."""
        values = {
            "link.ring.rtt.p50": 2000.0,
            "link.ring.rtt.4k.p50": 8000.0,
            "link.conn.stream.1m.pull": 500.0,
        }
        trips, rates, *_ = link.drawings(Values(figures(values)))
        drawn = {title: points for drawing in (trips, rates) for title, points in drawing.lines}
        self.assertEqual(trips.lines[1], ("ring channel", [(8.0, 2.0), (4096.0, 8.0)]))
        self.assertEqual(drawn["connection that pulls"], [(1_048_576.0, 500.0)])


class ShowTest(unittest.TestCase):
    """Reports of files."""

    def test_file(self) -> None:
        """A file of figures becomes tables and drawings, and the emulator is told."""
        figures = {"init.key.time": 5e3, "init.key.min": 4e3}
        figures |= {"init.key.mmio_stores": 3.0, "init.key.mmio_loads": 1.0}
        figures |= {"latency.key.0": 4e3, "latency.key.5000": 24e3}
        with tempfile.TemporaryDirectory() as name:
            for accelerator, emulated in (("tcg", True), ("kvm", False)):
                entries = [
                    {"name": it, "value": value, "unit": "", "accelerator": accelerator}
                    for it, value in figures.items()
                ]
                Path(name, "initiation.json").write_text(json.dumps(entries))
                text = report.show("initiation", Path(name))
                self.assertIn("Table 1", text)
                self.assertEqual("The nodes are emulated" in text, emulated)
            drawn = {path.name for path in Path(name).glob("*.svg")}
            self.assertEqual(drawn, {"initiation-accesses.svg", "initiation-latency.svg"})

    def test_nothing(self) -> None:
        """Nothing is printed of nothing, and nothing drawn."""
        with tempfile.TemporaryDirectory() as name:
            for part in report.PARTS:
                self.assertEqual(report.render(part, Values([])), "")
                report.draw(part, Values([]), Path(name))
            self.assertEqual(list(Path(name).iterdir()), [])

    def test_first_counts(self) -> None:
        """Of two figures with one name, the first one counts."""
        values = Values([Figure("x", 1.0, "ns"), Figure("x", 2.0, "ns")])
        self.assertEqual(values.get("x"), 1.0)
