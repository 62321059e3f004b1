# SPDX-License-Identifier: GPL-2.0
"""The check of floors, on what is here and on trees that break it."""

import tempfile
import unittest
from pathlib import Path

from .. import floors
from ..floors import CRATES, Crate
from ..paths import REPO

ROOT = """//! A crate.
//!
//! | no | floor |
//!
//! # Floors
//!
//! | floor | what it has |
//! | --- | --- |
//! | [`device`] | one device |
//! | `link`, `lane` | what is below |
//! | `hw` | the hardware |
"""
PAGE = """Folders
=======

======== ========
``link/`` folder
======== ========
"""


class FloorsTest(unittest.TestCase):
    """Which imports the check finds."""

    def setUp(self) -> None:
        """A crate whose floors are all there."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)
        self.crate = Crate(self.folder, "lib.rs", "//! # Floors", frozenset({"module_parameters"}))
        self.write("lib.rs", ROOT)
        for floor in ("device", "link", "lane", "hw"):
            self.write(f"{floor}.rs", "")

    def write(self, name: str, text: str) -> None:
        """Write a file of the crate."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def problems(self, file: str, text: str) -> list[str]:
        """The problems of the crate with one more file, without its place."""
        self.write(file, text)
        return [found.removeprefix(f"{self.folder}/") for found in floors.problems(self.crate)]

    def test_crates(self) -> None:
        """Those of the project have no problem, and floors."""
        for crate in CRATES:
            there = Crate(REPO / crate.folder, crate.root, crate.heading, crate.others)
            with self.subTest(crate.folder):
                self.assertEqual(list(floors.problems(there)), [])
                self.assertGreater(len(floors.listed_in(there)), 10)

    def test_list(self) -> None:
        """The floors are those of the table below the heading."""
        self.assertEqual(floors.listed_in(self.crate), ["device", "link", "lane", "hw"])

    def test_down(self) -> None:
        """Imports from below, from the own floor and of the macro's items are right."""
        text = "use crate::{\n    hw::Hardware,\n    link::Link,\n    module_parameters, //\n};\n"
        self.assertEqual(self.problems("link/peer.rs", text), [])

    def test_up(self) -> None:
        """Imports from above are found: in groups, alone, and in the middle of code."""
        for text in (
            "use crate::{\n    hw::{Hardware, layout::Run},\n    device::Shared, //\n};\n",
            "use crate::device::Shared;\n",
            "fn wait() {\n    crate::device::wait();\n}\n",
        ):
            with self.subTest(text):
                self.assertEqual(
                    self.problems("link/peer.rs", text),
                    ["link/peer.rs: uses crate::device, which is above link"],
                )

    def test_through_root(self) -> None:
        """What the root exports again is imported from where it is."""
        found = self.problems("link.rs", "use crate::Shared;\n")
        self.assertEqual(
            found, ["link.rs: uses crate::Shared, which is no floor: name it where it is"]
        )

    def test_names(self) -> None:
        """Neither comments nor names inside a group count."""
        text = "// crate::device\nuse crate::{\n    hw::{device, Hardware}, //\n};\n"
        self.assertEqual(self.problems("link.rs", text), [])

    def test_unknown(self) -> None:
        """A new folder has to be given a floor."""
        found = self.problems("cellar/wine.rs", "")
        self.assertEqual(found, ["cellar/wine.rs: cellar is no floor: list it in lib.rs"])

    def test_missing(self) -> None:
        """A floor that has gone leaves the list."""
        (self.folder / "hw.rs").unlink()
        self.assertEqual(
            list(floors.problems(self.crate)),
            [f"{self.folder}/lib.rs: lists hw, which is not there"],
        )

    def test_page(self) -> None:
        """A page lists the folders, in the same order; other sections of the page do not count."""
        page = self.folder / "design.rst"
        page.write_text(f"{PAGE}\nOther\n=====\n\n``cellar/`` is not here.\n")
        self.write("link/peer.rs", "")
        self.assertEqual(list(floors.folders(self.crate, page, "Folders")), [])
        self.write("hw/bar.rs", "")
        self.assertEqual(
            list(floors.folders(self.crate, page, "Folders")),
            [f"{page}: the folders are link, hw, and not link"],
        )
