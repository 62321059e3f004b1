# SPDX-License-Identifier: GPL-2.0
"""Checks the form of the commits after BASE.

The form: a subject `uldma: part: what` or `ci: what` of at most 75 columns, a blank line, a body
that is wrapped at 75 columns, and less than 1,000 changed lines. A renamed file counts only the
lines that differ, and a body with the word "mechanical" lifts this limit: for renames by script.
"""

import re
import subprocess
import sys
from collections.abc import Sequence

# Earlier commits do not have the form.
BASE = "3a30302883e2f2c832bcfc52e4b6e9096b53a3a4"
# Branches that began before the check was there are merged after BASE.
SINCE = "2026-11-22T23:00:00Z"
COLUMNS = 75
MOST_LINES = 1000
SUBJECT = re.compile(r"(uldma: [a-z0-9][a-z0-9 ._/-]*: |uldma: |ci: )\S")
# Lines that cannot be wrapped: quoted output, tags, and single long words like addresses.
UNWRAPPED = re.compile(r"^(?:[ \t>|]|[A-Z][a-z-]+: |\S+$)")


def problems(message: str, changed: int) -> list[str]:
    """Returns what is wrong with a commit, given the number of lines that it changes."""
    found = []
    lines = message.rstrip("\n").split("\n")
    subject, body = lines[0], lines[1:]
    if not SUBJECT.match(subject):
        found.append("the subject does not begin with `uldma: part:` or `ci:`")
    if len(subject) > COLUMNS:
        found.append(f"the subject has {len(subject)} columns; at most {COLUMNS}")
    if body and body[0]:
        found.append("no blank line after the subject")
    if not any(body):
        found.append("no body: say why")
    found += [
        f"a line of the body has {len(line)} columns; wrap at {COLUMNS}: {line}"
        for line in body
        if len(line) > COLUMNS and not UNWRAPPED.match(line)
    ]
    if changed >= MOST_LINES and "mechanical" not in message.lower():
        found.append(f"{changed} changed lines; less than {MOST_LINES}: split it")
    return found


def changed_lines(numstat: str) -> int:
    """Returns the sum of added and deleted lines of `git --numstat`; binary files count as none."""
    rows = (line.split("\t") for line in numstat.splitlines() if line.count("\t") >= 2)
    return sum(int(number) for row in rows for number in row[:2] if number.isdigit())


def git(*arguments: str) -> str:
    """Returns the output of git; raises CalledProcessError or OSError if it fails."""
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def check(base: str, since: str) -> list[str]:
    """Returns a message for each problem of the commits after `base` and the time `since`."""
    messages = []
    for commit in git(
        "rev-list", "--no-merges", "--reverse", f"--since={since}", f"{base}..HEAD"
    ).split():
        message = git("show", "-s", "--format=%B", commit)
        changed = changed_lines(git("show", "-M", "--numstat", "--format=", commit))
        messages += [f"{commit[:12]}: {what}" for what in problems(message, changed)]
    return messages


def main(arguments: Sequence[str]) -> int:
    """Prints all messages; returns 1 if there are any, and 0 where there is no history."""
    base, since = (arguments[0], "1970-01-02") if arguments else (BASE, SINCE)
    try:
        git("merge-base", "--is-ancestor", base, "HEAD")
    except (OSError, subprocess.CalledProcessError):
        print(f"skipped: git is absent, or the history does not have {base[:12]}")
        return 0
    messages = check(base, since)
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
