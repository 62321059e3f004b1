# SPDX-License-Identifier: GPL-2.0
"""Tables, fits and drawings of reports."""

import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from ..report import fits, paper
from ..report.drawing import Drawing
from ..report.fits import Accesses, Model
from ..report.tables import Aim, number, plain, ratio, table

PAGES = [float(1 << power) for power in range(13)]


class TablesTest(unittest.TestCase):
    """Numbers, tables and aims."""

    def test_numbers(self) -> None:
        """Three digits or so; a dash for a missing figure."""
        numbers = (None, 1.234, -12.34, 99.96, 123.4, 5e6)
        texts = ["-", "1.23", "-12.3", "100.0", "123", "5000000"]
        self.assertEqual([number(it) for it in numbers], texts)
        self.assertEqual(
            [plain(it) for it in (5e6, 0.8, 3.0, 100.0)], ["5000000", "0.8", "3", "100"]
        )
        self.assertEqual(
            [ratio(1, None), ratio(None, 1), ratio(1, 0), ratio(1, 4)], [*[None] * 3, 0.25]
        )

    def test_table(self) -> None:
        """The first column is to the left, all others to the right."""
        self.assertIsNone(table("a title", ["a"], []))
        lines = ["a title", " a  | bcd ", "----+-----", " xy |   1 ", ""]
        self.assertEqual(table("a title", ["a", "bcd"], [["xy", "1"]]), "\n".join(lines))

    def test_aims(self) -> None:
        """An aim is met from its least to its most."""
        self.assertIsNone(Aim("x", None, least=1).row())
        for aim, limit, verdict in (
            (Aim("x", 2, least=1), ">= 1", "met"),
            (Aim("x", 2, least=3), ">= 3", "missed"),
            (Aim("x", 2, most=1.5), "<= 1.5", "missed"),
            (Aim("x", 2, 2, 2), "= 2", "met"),
            (Aim("x", 2.5, 2, 2.4), "2 to 2.4", "missed"),
        ):
            found = aim.row()
            self.assertEqual(found and found[2:], [limit, verdict])


class FitsTest(unittest.TestCase):
    """Lines and cost models."""

    def test_line(self) -> None:
        """A line needs two sizes."""
        found = fits.line([(x, 5 + 2 * x) for x in (1, 2, 4, 8)])
        assert found
        self.assertAlmostEqual(found.fixed, 5)
        self.assertAlmostEqual(found.page, 2)
        for points in ([], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 6.0)], [(1.0, 0.0), (2.0, 1.0)]):
            self.assertIsNone(fits.line(points))

    def test_papers_lines(self) -> None:
        """The lines of the paper's tables, as the documentation has them."""
        for column, fixed, page in (
            (paper.SECOND_REGISTER, 5.6, 1.32),
            (paper.SECOND_DEREGISTER, 3.8, 0.37),
            (paper.FIRST_REGISTER, 6.1, 1.31),
            (paper.FIRST_DEREGISTER, 4.3, 0.38),
        ):
            found = fits.line(list(zip(PAGES, column, strict=True)))
            assert found
            self.assertAlmostEqual(found.fixed / fixed, 1, delta=0.03)
            self.assertAlmostEqual(found.page / page, 1, delta=0.03)

    def test_slope(self) -> None:
        """The slope needs two places."""
        points = [(0.0, 900.0), (10_000.0, 50_900.0), (2_000.0, 10_900.0)]
        self.assertAlmostEqual(fits.slope(points) or 0, 5)
        self.assertIsNone(fits.slope(points[:1]))
        self.assertIsNone(fits.slope([]))

    def test_model(self) -> None:
        """A model is found; points on a line do not tell stores and loads apart."""
        true = Model(20, 300, 700)
        counts = ((1, 1), (3, 1), (2, 3), (1, 0), (0, 0))
        found = fits.model([Accesses(*count, true.cost(*count)) for count in counts])
        assert found
        for part in ("fixed", "store", "load"):
            self.assertAlmostEqual(getattr(found, part) / getattr(true, part), 1)
        self.assertIsNone(fits.model([Accesses(count, count, count) for count in range(1, 5)]))
        self.assertIsNone(fits.model([]))


class DrawingTest(unittest.TestCase):
    """Drawings."""

    def test_scales(self) -> None:
        """A drawing is well-formed and has its lines; one without points has no file."""
        lines = [("one & two", [(1.0, 2.0), (2.0, 0.0), (10.0, 200.0)]), ("absent", [])]
        with tempfile.TemporaryDirectory() as name:
            for logarithmic in (False, True):
                drawing = Drawing("x.svg", "A title", "x", "y", lines, logarithmic)
                drawing.write(Path(name))
                root = ElementTree.parse(Path(name, "x.svg")).getroot()
                texts = [element.text for element in root.iter() if element.tag.endswith("text")]
                self.assertEqual({"A title", "x", "y", "one & two"} - set(texts), set())
                self.assertNotIn("absent", texts)
                lines_drawn = [it for it in root.iter() if it.tag.endswith("polyline")]
                self.assertEqual(len(lines_drawn), 1)
            Drawing("none.svg", "", "", "", [("absent", [])]).write(Path(name))
            self.assertFalse(Path(name, "none.svg").exists())

    def test_one_point(self) -> None:
        """A single point has a place on both scales."""
        with tempfile.TemporaryDirectory() as name:
            for logarithmic in (False, True):
                Drawing("x.svg", "", "", "", [("dot", [(1.0, 10.0)])], logarithmic).write(
                    Path(name)
                )
                self.assertIn("<circle", Path(name, "x.svg").read_text())
