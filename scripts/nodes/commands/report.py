# SPDX-License-Identifier: GPL-2.0
"""nodes report: tables and drawings of figures that were measured before."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .. import report
from ..errors import NodesError
from ..paths import RESULTS


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make report")
    parser.add_argument("--only", choices=report.PARTS, help="report only this part")
    parser.add_argument("--directory", type=Path, default=RESULTS, help="directory of the figures")
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    parts = [options.only] if options.only else list(report.PARTS)
    found = [part for part in parts if (directory / f"{part}.json").is_file()]
    if not found:
        raise NodesError(f"no figures of {', '.join(parts)} in {directory}: make bench measures")
    for part in found:
        print(report.show(part, directory))
    return 0
