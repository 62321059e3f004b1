# SPDX-License-Identifier: GPL-2.0
"""The table of what tests are about, held against the tree."""

import re
import unittest
from collections.abc import Iterable

from .. import change, touched
from ..paths import REPO
from ..plan import Order, Test
from ..sources import Selftests
from ..topologies import HOST
from .fakes import make_test, passes, planned_tests

DRIVER = "drivers/uldma"
NOTHING = Selftests("", {})


def all_tests() -> list[Test]:
    """The tests that the debug kernel has time for."""
    return [test for test in planned_tests() if not test.too_long]


def found(names: Iterable[str], pattern: str) -> bool:
    """Whether a pattern is in any name."""
    return any(re.search(pattern, name) for name in names)


class TableTest(unittest.TestCase):
    """Every file of the driver is known, and every test that is named exists."""

    def test_files(self) -> None:
        """A new file of the driver needs a row."""
        files = [path for path in (REPO / DRIVER).rglob("*") if path.is_file()]
        self.assertTrue(files)
        for path in files:
            name = str(path.relative_to(REPO))
            rows = [files for files in touched.TABLE if re.fullmatch(files, name)]
            with self.subTest(name):
                self.assertEqual(len(rows), 1, rows)

    def test_rows(self) -> None:
        """A row whose files are gone goes, too."""
        names = [str(path.relative_to(REPO)) for path in (REPO / DRIVER).rglob("*")]
        for files in touched.DRIVER:
            with self.subTest(files):
                pattern = re.compile(f"{DRIVER}/(?:{files})")
                self.assertTrue(any(map(pattern.fullmatch, names)))

    def test_tests(self) -> None:
        """What a row names is run, if only by the stock kernel."""
        names = [test.name for test in planned_tests()]
        for pattern in {what for tests in touched.TABLE.values() for what in tests}:
            with self.subTest(pattern):
                self.assertTrue(found(names, pattern))


class PatternsTest(unittest.TestCase):
    """From a file to tests."""

    def patterns(self, file: str, selftests: Selftests = NOTHING) -> list[str]:
        """What a file touches."""
        texts = {"case": 'run("./uldma_helper")', "other": "uldma_helpers"}
        return list(touched.patterns([file], selftests, texts))

    def test_case(self) -> None:
        """A module of cases is about its own; what all of them use, about everything."""
        self.assertEqual(self.patterns("scripts/nodes/cases/link.py"), [r"nodes:link\."])
        broad = list(touched.BROAD)
        self.assertEqual(self.patterns("scripts/nodes/cases/registry.py"), broad)
        self.assertEqual(self.patterns("scripts/nodes/node_set.py"), broad)

    def test_unknown(self) -> None:
        """What is in no row may be about anything, what is in an empty one about nothing."""
        self.assertEqual(self.patterns("drivers/uldma/new.rs"), list(touched.BROAD))
        self.assertEqual(self.patterns("include/uapi/linux/uldma.h"), list(touched.BROAD))
        self.assertEqual(self.patterns("Documentation/uldma/testing.rst"), [])

    def test_selftests(self) -> None:
        """A source is about its programs, and the cases that run them."""
        makefile = (
            "TEST_GEN_PROGS := uldma_a\nTEST_GEN_PROGS += uldma_b\n"
            "TEST_GEN_PROGS_EXTENDED := uldma_helper\n$(OUTPUT)/uldma_helper: more.c\n"
        )
        sources = {
            "uldma_a.c": '#include <stdio.h>\n#include "a.h"\n',
            "uldma_b.c": '#include "b.h"\n',
            "b.h": '#include "a.h"\n',
            "a.h": "",
        }
        selftests = Selftests(makefile, sources)
        for file, expected in (
            ("uldma_a.c", [":uldma_a$"]),
            ("a.h", [":uldma_a$", ":uldma_b$"]),
            ("b.h", [":uldma_b$"]),
            ("more.c", [":uldma_helper$", r"nodes:case\."]),
            ("Makefile", list(touched.BROAD)),
        ):
            with self.subTest(file):
                self.assertEqual(self.patterns(f"{touched.SELFTESTS}{file}", selftests), expected)


class ChooseTest(unittest.TestCase):
    """What runs on which day."""

    def test_all_within_the_days(self) -> None:
        """Each test runs once in as many days as there are parts."""
        tests = all_tests()
        runs = [
            {test.name for test in change.choose(tests, [], day)} for day in range(change.PARTS)
        ]
        self.assertEqual(set.union(*runs), {test.name for test in tests})
        for names in runs:
            self.assertLess(len(names), len(tests) / 2)

    def test_few_stay_together(self) -> None:
        """Nodes that few tests need are booted on one day."""
        few = [make_test(str(number), "few") for number in range(change.FEW)]
        many = [make_test(str(number)) for number in range(4 * change.FEW)]
        tests = [*few, *many]
        for day in range(change.PARTS):
            names = {test.name for test in change.choose(tests, [], day)}
            self.assertIn(len(names.intersection(test.name for test in few)), (0, len(few)))
            self.assertGreater(len(names), 1)

    def test_touched(self) -> None:
        """What a change touches runs on every day, after what it rests on."""
        tests = all_tests()
        for day in range(change.PARTS):
            names = [test.name for test in change.choose(tests, ["^iommu-.*:uldma_dma$"], day)]
            self.assertTrue(found(names, "^iommu-.*:uldma_dma$"))
            self.assertTrue(found(names, "^iommu-.*in_use$"))

    def test_order(self) -> None:
        """The order is that of the plan."""
        tests = all_tests()
        chosen = change.choose(tests, [".*"], 0)
        self.assertEqual([test.name for test in chosen], [test.name for test in tests])

    def test_rounds(self) -> None:
        """What is touched and needs no node comes first, the others last, and none twice."""
        host = Test(HOST, "cargo", passes)
        tests = [*all_tests(), host]
        for day in range(change.PARTS):
            first, then, rest = change.in_rounds(tests, ["^iommu-.*:uldma_dma$"], day)
            names = [test.name for test in first]
            self.assertTrue(found(names, "^iommu-.*in_use$"))
            self.assertTrue(found(names, "^iommu-.*:uldma_dma$") and host.name in names)
            pattern = "^iommu-.*(:uldma_dma$|in_use$)"
            self.assertTrue(all(name == host.name or found([name], pattern) for name in names))
            todays = change.choose(tests, ["^iommu-.*:uldma_dma$"], day)
            self.assertEqual(
                {test.name for test in [*first, *then]}, {test.name for test in [*todays, host]}
            )
            self.assertEqual(
                sorted(test.name for test in [*first, *then, *rest]),
                sorted(test.name for test in tests),
            )

    def test_smoke(self) -> None:
        """Few tests cross each part, programs and cases, none twice, after what is first."""
        chosen = change.smoke(all_tests())
        names = [test.name for test in chosen]
        self.assertLess(len(names), len(all_tests()) / 3)
        for pattern in touched.BROAD:
            self.assertTrue(found(names, pattern), pattern)
        plain = [test.plain for test in chosen if test.order is not Order.FIRST]
        self.assertEqual(len(plain), len(set(plain)) + 1, "only uldma_dma, with an IOMMU")
        self.assertIn("kunit", names)
