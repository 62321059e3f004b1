# SPDX-License-Identifier: GPL-2.0
"""python3 -m nodes COMMAND [OPTION...]"""

import sys

from . import processes
from .commands import bench, fuzz, report, run, shell, soak, test
from .errors import NodesError

COMMANDS = {
    "run": run.main,
    "test": test.main,
    "bench": bench.main,
    "report": report.main,
    "shell": shell.main,
    "soak": soak.main,
    "fuzz": fuzz.main,
}


def main() -> int:
    """Run a command; report failures without a traceback."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: nodes {{{','.join(COMMANDS)}}} [OPTION...]", file=sys.stderr)
        return 2
    processes.exit_on_signals()
    processes.raise_file_limit()
    try:
        return COMMANDS[sys.argv[1]](sys.argv[2:])
    except NodesError as error:
        print(f"nodes: error: {error}", file=sys.stderr)
        print("nodes: the logs are in build/logs", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nodes: interrupted", file=sys.stderr)
        return 130


sys.exit(main())
