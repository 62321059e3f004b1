# SPDX-License-Identifier: GPL-2.0
"""Printing for people, from several threads."""

import sys


def write(text: str) -> None:
    """Print lines that nothing comes between."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """Tell the progress."""
    write(f"nodes: {message}")
