# SPDX-License-Identifier: GPL-2.0
"""The description of the interface for syzkaller, held against the header."""

import re
import unittest

from ..paths import REPO

HEADER = (REPO / "include/uapi/linux/uldma.h").read_text()
DESCRIPTION = (REPO / "tools/testing/selftests/uldma/dev_uldma.txt").read_text()
WIDTHS = {"__u8": 8, "__u16": 16, "__u32": 32, "__s32": 32, "__aligned_u64": 64}
# Lengths of arrays.
LENGTHS = {"": 1, **dict(re.findall(r"^#define (\w+) (\d+)$", HEADER, re.MULTILINE))}
# What is in memory that device and process share, and in no argument of a call.
SHARED = ("uldma_status_page", "uldma_completion", "uldma_descriptor")
# What the calls take under names of their own, by what the handle is of.
HANDLES = (
    "uldma_region_handle",
    "uldma_segment_handle",
    "uldma_endpoint_handle",
    "uldma_no_handle",
)
# What is only told, or is no flag.
TOLD = re.compile(
    r"ULDMA_(LINK_UP|REGION_(IMPORT|EXPORTED|STALE|OPTIMISTIC)"
    r"|CONN_(PULL|ENGINE|WINDOW|RESET|MATCHED)"
    r"|DESC_\w+|COMPLETION_\w+)$"
)


def aliases() -> dict[str, str]:
    """Types with a name of their own, and what they are."""
    resources = re.findall(r"^resource (\w+)\[(\w+)\]", DESCRIPTION, re.MULTILINE)
    types = re.findall(r"^type (\w+) (.+)$", DESCRIPTION, re.MULTILINE)
    return {**dict(resources), **dict(types), "fd_event": "int32"}


def width(kind: str) -> int:
    """Bits of a type, of a structure that is a field included."""
    while kind in aliases():
        kind = aliases()[kind]
    if array := re.match(r"array\[(\w+), (\w+)\]", kind):
        return width(array[1]) * int(LENGTHS[array[2]])
    if body := re.search(rf"^{re.escape(kind)} {{\n(.*?)^}}", DESCRIPTION, re.DOTALL | re.M):
        return sum(bits for _, bits in fields_of(body[1]))
    found = re.findall(r"(?:int|vma|ptr)(8|16|32|64)", kind)
    return int(found[-1]) if not kind.startswith(("vma", "ptr")) else int(found[0])


def structures_of_header() -> dict[str, list[tuple[str, int]]]:
    """Fields and their widths, by structure."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\n\};", HEADER, re.DOTALL):
        fields = re.findall(r"^\t(?:struct )?(\w+) (\w+)(?:\[(\w+)\])?;", body, re.MULTILINE)
        if name not in SHARED:
            widths = {**WIDTHS, **{it: sum(bits for _, bits in of) for it, of in found.items()}}
            found[name] = [
                (field, widths[kind] * int(LENGTHS[length])) for kind, field, length in fields
            ]
    return found


def fields_of(body: str) -> list[tuple[str, int]]:
    """Fields and their widths of the inside of a structure of the description."""
    fields = re.findall(r"^\t(\w+)\t([^\t\n]+)", body, re.MULTILINE)
    return [(field, width(kind)) for field, kind in fields]


def structures() -> dict[str, list[tuple[str, int]]]:
    """The same of the description."""
    found = re.findall(r"^(\w+) \{\n(.*?)^\}", DESCRIPTION, re.DOTALL | re.MULTILINE)
    return {name: fields_of(body) for name, body in found}


class DescriptionTest(unittest.TestCase):
    """Nothing of the interface is missing, and nothing is of another form."""

    def test_ioctls(self) -> None:
        """Every ioctl is one of the calls, and no other is."""
        defined = set(re.findall(r"^#define (ULDMA_IOC_\w+)", HEADER, re.MULTILINE))
        calls = re.findall(r"^ioctl\$(\w+)\(fd fd_uldma, cmd const\[(\w+)\]", DESCRIPTION, re.M)
        self.assertEqual({name for name, _ in calls}, defined)
        self.assertEqual([name for name, _ in calls], [number for _, number in calls])

    def test_structures(self) -> None:
        """Every structure has the same fields of the same widths in the same order."""
        described = structures()
        for name, fields in structures_of_header().items():
            for described_as in HANDLES if name == "uldma_handle" else (name,):
                with self.subTest(described_as):
                    self.assertEqual(described.pop(described_as, None), fields)
        self.assertFalse(described, "structures that the header lacks")

    def test_flags(self) -> None:
        """Every flag that a call takes is in a list of flags, and every method."""
        flags = re.findall(r"^#define (ULDMA_\w+) \(1U << \d+\)", HEADER, re.MULTILINE)
        methods = re.findall(r"^\t(ULDMA_METHOD_\w+) =", HEADER, re.MULTILINE)
        lists = "\n".join(re.findall(r"^uldma_\w+ = .*$", DESCRIPTION, re.MULTILINE))
        self.assertTrue(flags and methods)
        for name in [*flags, *methods]:
            if not TOLD.match(name):
                with self.subTest(name):
                    self.assertRegex(lists, rf"\b{name}\b")

    def test_told(self) -> None:
        """What the kernel tells is what it may write."""
        for line in re.findall(r"^\tout_.*$", DESCRIPTION, re.MULTILINE):
            with self.subTest(line):
                self.assertTrue(line.endswith("\t(out)"))
