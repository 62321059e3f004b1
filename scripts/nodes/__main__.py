# SPDX-License-Identifier: GPL-2.0
"""python3 -m nodes VERB [OPTION...]"""

import sys

from . import processes
from .errors import NodesError
from .verbs import bench, fuzz, report, run, shell, soak, test

VERBS = {
    "run": run.main,
    "test": test.main,
    "bench": bench.main,
    "report": report.main,
    "shell": shell.main,
    "soak": soak.main,
    "fuzz": fuzz.main,
}


def main() -> int:
    """Run a verb; failures are told without a traceback."""
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(f"usage: nodes {{{','.join(VERBS)}}} [OPTION...]", file=sys.stderr)
        return 2
    processes.exit_on_signals()
    processes.raise_file_limit()
    try:
        return VERBS[sys.argv[1]](sys.argv[2:])
    except NodesError as error:
        print(f"nodes: error: {error}", file=sys.stderr)
        print("nodes: the logs are in build/logs", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nodes: interrupted", file=sys.stderr)
        return 130


sys.exit(main())
