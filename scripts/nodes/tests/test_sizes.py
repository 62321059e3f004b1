# SPDX-License-Identifier: GPL-2.0
"""Counting lines of code."""

import unittest

from checks import sizes

FILE = """// SPDX-License-Identifier: GPL-2.0

//! A file.

use kernel::{
    prelude::*,
    sync::Arc, //
};
pub(crate) use crate::link::Peer;

/// A type.
struct Type {
    // A comment.
    user: u32,
}

#[kunit_tests(uldma_type)]
mod tests {
    use super::*;

    #[test]
    fn test() {}
}

fn after() {}
"""


class SizesTest(unittest.TestCase):
    """Lines of code, imports, and unit tests."""

    def test_only_code_is_counted(self) -> None:
        """Imports count in the first number; comments, blank lines and tests in none."""
        self.assertEqual(sizes.count(FILE), (9, 4))

    def test_a_test_of_one_line_hides_nothing(self) -> None:
        """What follows a module of tests in a file of its own is counted."""
        self.assertEqual(sizes.count("#[cfg(test)]\nmod tests;\nfn after() {}\n"), (1, 1))

    def test_a_name_without_files_is_an_error(self) -> None:
        """A row cannot lose a file that was moved."""
        with self.assertRaises(FileNotFoundError):
            sizes.files(["no-such-file.rs"])

    def test_a_row_has_the_counts_of_the_code(self) -> None:
        """A right row stays as it is, and a wrong one is corrected in its columns."""
        row = "adapter: files of it    **671**   537         about 12\n"
        self.assertEqual(sizes.corrected(row, "adapter:", (671, 537)), row)
        self.assertEqual(
            sizes.corrected(row, "adapter:", (81, 1537)),
            "adapter: files of it    **81**    1537         about 12\n",
        )

    def test_a_row_that_is_not_there_is_an_error(self) -> None:
        """No size of the table is left unchecked."""
        for page in ("", "other: files  1  1\n", "row: a  1  1\nrow: b  2  2\n"):
            with self.assertRaises(ValueError):
                sizes.corrected(page, "row:", (1, 1))


if __name__ == "__main__":
    unittest.main()
