# SPDX-License-Identifier: GPL-2.0
"""The check of the driver's floors, on the driver and on trees that break it."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from .. import floors
from ..paths import REPO


class FloorsTest(unittest.TestCase):
    """Which imports the check finds."""

    def problems(self, file: str, text: str) -> list[str]:
        """The problems of a driver with one file."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return list(floors.problems(Path(directory)))

    def test_driver(self) -> None:
        """The driver itself has no problem."""
        self.assertEqual(list(floors.problems(REPO / "drivers/uldma")), [])

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

    def test_names(self) -> None:
        """Neither comments nor names inside a group count."""
        text = "// crate::device\nuse crate::{\n    hw::{device, Hardware}, //\n};\n"
        self.assertEqual(self.problems("link.rs", text), [])

    def test_unknown(self) -> None:
        """A new folder has to be given a floor."""
        found = self.problems("cellar/wine.rs", "")
        self.assertEqual(found, ["cellar/wine.rs: cellar is no floor: add it to FLOORS"])

    def test_exceptions(self) -> None:
        """An exception is for one file and one folder, and has to be needed."""
        text = "use crate::device::Shared;\n"
        with mock.patch.object(floors, "ALLOWED", {("link.rs", "device"): "a reason"}):
            self.assertEqual(self.problems("link.rs", text), [])
            found = self.problems("link.rs", "")
            self.assertEqual(
                found, ["link.rs: does not use crate::device any more: remove the exception"]
            )
