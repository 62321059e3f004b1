# SPDX-License-Identifier: GPL-2.0
"""nodes shell: a root shell on a node. The first one boots the pair and ends it when it leaves.

Without a terminal it runs a script.
"""

import argparse
import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import polling, scripts
from ..cluster import Cluster
from ..console import say
from ..errors import Busy, NodesError
from ..paths import RUN
from ..qemu import Config

SCENARIO = "shell"
# Where the pair's process runs scripts for others, and which files it has brought.
CONTROL = "control"
BROUGHT = "brought"
ESCAPE = b"\x1d"  # Ctrl-]
# What the node prints when its shell has ended; terminals ignore it.
LEFT = b"\x1b]uldma-left\x07"
LOOP = (
    "while :; do TERM=linux HOME=/root setsid -c sh -l </dev/hvc0 >/dev/hvc0 2>&1; "
    r"printf '\033]uldma-left\007' >/dev/hvc0; done"
)


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass every key on."""
    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def bridge(console: Path) -> None:
    """Join our terminal with the console of a node until one side leaves."""
    with socket.socket(socket.AF_UNIX) as port:
        try:
            port.connect(str(console))
        except OSError as error:
            raise NodesError(f"no console of that node: {error}") from error
        size = shutil.get_terminal_size()
        port.sendall(f"stty rows {size.lines} cols {size.columns}; clear\n".encode())
        seen = b""
        while True:
            ready, _, _ = select.select([sys.stdin, port], [], [])
            if port in ready:
                data = port.recv(4096)
                if not data:
                    return
                os.write(sys.stdout.fileno(), data)
                seen = (seen + data)[-64:]
                if LEFT in seen:
                    return
            if sys.stdin in ready:
                data = os.read(sys.stdin.fileno(), 4096)
                if not data or ESCAPE in data:
                    return
                port.sendall(data)


def interact(node: str, run: Path) -> None:
    """One shell at a time on each node."""
    with (run / f"shell-{node}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NodesError(f"node {node} already has a shell") from error
        say(f"root shell on node {node}; leave by 'exit' or Ctrl-]")
        with raw_terminal():
            bridge(run / f"console-{node}")
        print()


def running(run: Path) -> bool:
    """Whether another 'make shell' holds a pair."""
    lock = run / "lock"
    if not lock.exists():
        return False
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def run_script(node: str, config: Config, run: Path) -> int:
    """Without a terminal: run what comes on standard input on a pair, as a shell does.

    The pair is that of another process where there is one, and else one that ends with the script,
    and with those that others run on it by then.
    """
    script = sys.stdin.buffer.read()
    began = time.monotonic()
    deadline = began + 2 * config.boot_timeout
    while True:
        while running(run):
            rc = scripts.ask(run / CONTROL, node, script)
            if rc is not None:
                return rc
            # It boots, or it ends.
            if time.monotonic() > deadline:
                raise NodesError("another 'make shell' has the pair, and takes no script")
            polling.pause(began)
        try:
            with pair_of(config, run) as (pair, server):
                rc = scripts.run(pair.nodes[node], script)
                server.finish()
                return rc
        except Busy:
            # Another process was faster, or had the lock to see if there is a pair.
            if time.monotonic() > deadline:
                raise


@contextlib.contextmanager
def pair_of(config: Config, run: Path) -> Iterator[tuple[Cluster, scripts.ScriptServer]]:
    """Boot a pair that others can use, too. Its progress is not what a script prints."""
    with contextlib.ExitStack() as stack:
        with contextlib.redirect_stdout(sys.stderr):
            pair = stack.enter_context(Cluster(run.name, config))
        for node in pair.nodes.values():
            node.spawn(LOOP)
        (run / BROUGHT).write_text(json.dumps([str(path) for path in config.brought]))
        yield pair, stack.enter_context(scripts.ScriptServer(pair.nodes, run / CONTROL))


def check_brought(files: Sequence[Path], run: Path) -> None:
    """Nodes that run get no files any more: raise unless they have these."""
    have = json.loads((run / BROUGHT).read_text()) if (run / BROUGHT).exists() else []
    missing = [str(path) for path in files if str(path) not in have]
    if missing:
        raise NodesError(
            f"the nodes run already, without {' '.join(missing)}: "
            "files are brought when they boot, by the first 'make shell'"
        )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make shell")
    parser.add_argument("node", choices=["a", "b"])
    parser.add_argument("files", nargs="*", type=Path, help="to be brought to the nodes")
    parser.add_argument("--scenario", default=SCENARIO, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    node: str = options.node
    run: Path = RUN / options.scenario
    config = Config(brought=tuple(options.files))
    if running(run):
        check_brought(options.files, run)
    if not sys.stdin.isatty():
        return run_script(node, config, run)
    if running(run):
        interact(node, run)
        return 0
    with pair_of(config, run):
        say(f"the other node, from another terminal: make shell NODE={'b' if node == 'a' else 'a'}")
        interact(node, run)
    return 0
