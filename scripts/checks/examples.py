# SPDX-License-Identifier: GPL-2.0
"""Each name of the library has an example: in its documentation, or as a sample; runs at the top.

Prints each name that lib.rs exports and no example uses, and fails.
"""

import re
import sys
from pathlib import Path

LIBRARY = Path("tools/uldma/lib/src")
SAMPLES = Path("samples/uldma")
EXPORT = re.compile(r"^pub use ([\w:]+)(?:::\{([^}]*)\})?;", re.MULTILINE)
BLOCK = re.compile(r"```no_run\n(.*?)```", re.DOTALL)


def exported(text: str) -> list[str]:
    """The names that the root of a crate exports."""
    found = []
    for path, group in EXPORT.findall(text):
        names = group.split(",") if group else [path.rsplit("::", maxsplit=1)[-1]]
        found += [name.strip() for name in names if name.strip()]
    return found


def main() -> int:
    """Run the check."""
    names = exported((LIBRARY / "lib.rs").read_text())
    examples = [path.read_text() for path in sorted(SAMPLES.glob("*.rs"))]
    for path in sorted(LIBRARY.rglob("*.rs")):
        examples += BLOCK.findall(path.read_text())
    used = set(re.findall(r"\w+", "\n".join(examples)))
    lacking = [name for name in names if name not in used]
    for name in lacking:
        print(f"uldma::{name} has no example")
    if not names:
        print(f"{LIBRARY}/lib.rs exports nothing that this check finds")
    return 1 if lacking or not names else 0


if __name__ == "__main__":
    sys.exit(main())
