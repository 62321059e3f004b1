# SPDX-License-Identifier: GPL-2.0
"""What the report of memory that is not pinned says."""

import unittest
from collections.abc import Sequence

from .. import report
from ..report import optimistic
from ..report.values import Values
from ..results import Figure
from .test_report_parts import figures, verdicts
from .test_report_semantics import rows


def measured() -> list[Figure]:
    """Figures as the probe prints them, with floors."""
    counts = {
        "opt.load.at-once.reads": 900.0,
        "opt.load.at-once.k": 0.25,
        "opt.load.page-in.k": 0.0,
        "opt.fault.cached.look-up.faulted": 1.0,
        "opt.tlb.zipf.64": 0.5,
        "opt.tlb.zipf.256": 0.25,
        "opt.entries.1024.zipf": 0.375,
        "opt.entries.1024.zipf.evicted": 0.3,
        "opt.entries.16384.zipf": 0.0,
        "opt.stale.uniform.100": 0.25,
        "opt.stale.uniform.100.absent": 0.125,
        "opt.stale.uniform.100.reads": 4096.0,
        "opt.u-net.sequential.0": 0.0,
        "opt.u-net.sequential.256": 256.0,
        "opt.disk.reads": 100.0,
        "opt.pins.pinned.0": 8.0,
        "opt.pins.pinned.100": 40.0,
        "opt.pins.pinned.0.machine": 9.0,
        "opt.pins.pinned.100.machine": 50.0,
        "opt.pins.at-once.0": 0.0,
        "opt.pins.at-once.100": 0.0,
    }
    return [
        Figure("opt.hit.read.64.pinned", 2_000.0, "ns"),
        Figure("opt.hit.read.64.at-once", 2_100.0, "ns", floor=2_000.0),
        Figure("opt.hit.write.4k.pinned", 4_000.0, "ns"),
        Figure("opt.hit.write.4k.at-once", 4_800.0, "ns", floor=4_000.0),
        Figure("opt.rxe.64.pinned", 500_000.0, "ns"),
        Figure("opt.rxe.64.pinned.first", 600_000.0, "ns"),
        Figure("opt.rxe.64.odp", 510_000.0, "ns"),
        Figure("opt.rxe.64.odp.first", 900_000.0, "ns"),
        Figure("opt.exception.at-once", 4_000.0, "ns", floor=2_100.0),
        Figure("opt.exception.at-once.hit", 2_100.0, "ns"),
        Figure("opt.miss.64.at-once", 600_000.0, "ns"),
        Figure("opt.miss.64.at-once.exception", 6_300.0, "ns"),
        Figure("opt.fault.cached.look-up", 700_000.0, "ns"),
        Figure("opt.fault.cached.look-up.p99", 900_000.0, "ns"),
        Figure("opt.register.mib", 512.0, "MiB"),
        Figure("opt.register.warm.pinned", 9e6, "ns"),
        Figure("opt.register.warm.at-once", 45e3, "ns", floor=9e6),
        Figure("opt.disk.hit", 50e3, "ns"),
        Figure("opt.disk.page-in", 8e6, "ns", floor=50e3),
        Figure("opt.disk.page-in.p99", 9e6, "ns", floor=80e3),
        Figure("opt.reclaim.without", 1e6, "ns"),
        Figure("opt.reclaim.idle", 1.05e6, "ns", floor=1e6),
        *figures(counts),
    ]


class OptimisticTest(unittest.TestCase):
    """Transfers of memory that is not pinned."""

    def rows(self, title: str) -> Sequence[list[str]]:
        """The head and the rows of a table."""
        return rows(report.render("optimistic", Values(measured())), title)

    def test_rivals(self) -> None:
        """A row for each size of which soft-RoCE has read, beside reads by the engine."""
        [_, *found] = self.rows("Reads, and those by soft-RoCE, which has no exception: median us")
        self.assertEqual(found, [["64", "2.00", "2.10", "500", "600", "510", "900"]])

    def test_hits(self) -> None:
        """A row for each transfer that was measured, beside that of pinned memory."""
        [_, *found] = self.rows("Pages that are there (T_RDMA), median us")
        self.assertEqual(
            [row[:4] for row in found],
            [
                ["read 64", "2.00", "2.10", "1.05"],
                ["write 4k", "4.00", "4.80", "1.20"],
            ],
        )

    def test_papers_times_are_in_no_ratio(self) -> None:
        """They have a column of their own."""
        [_, alone, first] = self.rows("An exception (T_exc), 64 bytes: median us")
        self.assertEqual(alone[1:], ["4.00", "1.90", "15.0"])
        self.assertEqual(first[1:], ["6.30", "3.00", "15.0"])
        [_, missed, *_] = self.rows(
            "From a miss until the transfer has its pages, us, and counts by miss"
        )
        self.assertEqual(missed[1:], ["600", "-", "-", "-", "-", "-", "70.0"])

    def test_misses(self) -> None:
        """A row for each mode and state of the page that was measured."""
        title = "From a miss until the transfer has its pages, us, and counts by miss"
        [_, *found] = self.rows(title)
        self.assertEqual(
            [row[0] for row in found],
            ["exception at once, mapped", "look-up, in the page cache"],
        )
        self.assertEqual(found[1][1:], ["700", "900", "-", "-", "-", "1.00", "-"])

    def test_miss_rates(self) -> None:
        """The driver's limit stands below the entries that one process has of it."""
        title = "Part of reads of one of 4096 pages that miss, by entries"
        self.assertEqual(
            self.rows(title),
            [
                ["entries", "64", "256", "4096"],
                ["LRU cache, zipf", "0.50", "0.25", "-"],
                ["driver, zipf", "-", "0.38", "0.00"],
            ],
        )

    def test_stale_reads(self) -> None:
        """Exceptions, and those whose pages had gone, by the size of the file."""
        title = "Part of reads that are stale, by hundredths of the owner's memory"
        self.assertEqual(
            self.rows(title),
            [
                ["hundredths", "100"],
                ["uniform, exceptions", "0.25"],
                ["uniform, not in memory", "0.12"],
            ],
        )

    def test_disk(self) -> None:
        """Times beside a hit of the same run."""
        [_, hit, page_in] = self.rows("64 bytes of a page that is on a disk, us, 100 reads each")
        self.assertEqual(hit, ["the page is there", "50.0", "-", "-"])
        self.assertEqual(page_in[1:], ["8000", "9000", "160"])

    def test_pins_at_misses(self) -> None:
        """Reads are in order."""
        [head, row] = self.rows(
            "Pages pinned if each of 512 is at its first miss (U-Net/MM), by reads of one"
        )
        self.assertEqual((head, row), (["reads", "0", "256"], ["sequential", "0.00", "256"]))

    def test_pins(self) -> None:
        """The load's pins are those that were not there before it."""
        title = "Pages pinned under this load, more than before"
        [_, pinned, at_once] = self.rows(title)
        self.assertEqual(pinned, ["pinned", "32.0", "41.0"])
        self.assertEqual(at_once, ["exception at once", "0.00", "-"])

    def test_aims(self) -> None:
        """The worst hit counts, and what was not measured has no verdict."""
        found = verdicts(report.render("optimistic", Values(measured())))
        self.assertEqual(
            found,
            {
                "hit, exception at once: times pinned": "missed",
                "exception without a request, exception at once: hits": "met",
                "invalidations by retraction (k), exception at once": "missed",
                "invalidations by retraction (k), page-in": "met",
                "registration, warm, exception at once: part of pinned": "met",
                "pages pinned, exception at once": "met",
                "reclaim of an idle area: times that without": "met",
            },
        )

    def test_lines(self) -> None:
        """Hits are drawn by size, pins by time."""
        hits, pins, misses, stale, u_net = optimistic.drawings(Values(measured()))
        self.assertEqual(dict(hits.lines)["write, pinned"], [(4096.0, 4.0)])
        self.assertEqual(dict(pins.lines)["pinned"], [(0.0, 8.0), (100.0, 40.0)])
        self.assertEqual(dict(misses.lines)["LRU cache, zipf"], [(64.0, 0.5), (256.0, 0.25)])
        self.assertEqual(dict(stale.lines)["uniform, exceptions"], [(100.0, 0.25)])
        self.assertEqual(dict(u_net.lines)["sequential"], [(0.0, 0.0), (256.0, 256.0)])
