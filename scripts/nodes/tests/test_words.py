# SPDX-License-Identifier: GPL-2.0
"""The check for words that must not come back."""

import unittest

from checks import words

LIST = """# comment

[paths]
Documentation
README.md
[except]
Documentation/generated.rst
[words]
whoever	the actor
lets? go of	releases
"""


class WordsTest(unittest.TestCase):
    """Reading the list and finding its words."""

    def setUp(self) -> None:
        """Reads the list."""
        self.rules = words.parse(LIST)

    def found(self, path: str, text: str) -> list[str]:
        """Returns the messages."""
        return list(words.findings(self.rules, path, text))

    def test_word_is_found(self) -> None:
        """The message names the place, the word and its replacement."""
        self.assertEqual(
            self.found("a.c", "fine\n/* Whoever waits */\n"), ["a.c:2: 'Whoever': write the actor"]
        )

    def test_several_words(self) -> None:
        """Each word of a line is found."""
        self.assertEqual(len(self.found("a.c", "whoever lets go of whoever")), 3)

    def test_whole_words_only(self) -> None:
        """A part of a longer word is none."""
        self.assertEqual(self.found("a.c", "whoeverish uldma_whoever"), [])

    def test_literals_of_rst(self) -> None:
        """A quoted name may contain a word, in reStructuredText only."""
        self.assertEqual(self.found("a.rst", "``whoever.rs`` fails"), [])
        self.assertEqual(len(self.found("a.c", "``whoever.rs`` fails")), 1)

    def test_covered_paths(self) -> None:
        """Paths below a listed one are covered, but for exceptions."""
        self.assertTrue(self.rules.covers("Documentation/a/b.rst"))
        self.assertTrue(self.rules.covers("README.md"))
        self.assertFalse(self.rules.covers("Documentation/generated.rst"))
        self.assertFalse(self.rules.covers("Documentations/a.rst"))
        self.assertFalse(self.rules.covers("drivers/a.rs"))

    def test_malformed_list(self) -> None:
        """A word needs a replacement, and a line a section."""
        for text in ("[words]\nwhoever\n", "whoever\tx\n"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                words.parse(text)

    def test_own_list(self) -> None:
        """The list of the project covers the documentation."""
        rules = words.parse((words.HERE / "words").read_text(encoding="utf-8"))
        self.assertTrue(rules.covers("Documentation/uldma/overview.rst"))
        self.assertTrue(rules.words)
