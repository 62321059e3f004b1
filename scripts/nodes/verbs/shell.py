# SPDX-License-Identifier: GPL-2.0
"""nodes shell: a root shell on a node. The first one boots the pair and ends it when it leaves."""

import argparse
import contextlib
import fcntl
import os
import select
import shutil
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..paths import RUN
from ..qemu import Config

SCENARIO = "shell"
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


def interact(node: str) -> None:
    """One shell at a time on each node."""
    run = RUN / SCENARIO
    with (run / f"shell-{node}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NodesError(f"node {node} already has a shell") from error
        say(f"root shell on node {node}; leave by 'exit' or Ctrl-]")
        with raw_terminal():
            bridge(run / f"console-{node}")
        print()


def running() -> bool:
    """Whether another 'make shell' holds a pair."""
    lock = RUN / SCENARIO / "lock"
    if not lock.exists():
        return False
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def script(pair: Cluster, node: str) -> int:
    """Without a terminal: run what comes on standard input, as a shell does."""
    return pair.nodes[node].run(sys.stdin.read(), 3600, echo=True).rc


def main(arguments: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(prog="make shell")
    parser.add_argument("node", choices=["a", "b"])
    node: str = parser.parse_args(arguments).node
    if running():
        if not sys.stdin.isatty():
            raise NodesError("a pair runs already; a second shell needs a terminal")
        interact(node)
        return 0
    with Cluster(SCENARIO, Config()) as pair:
        if not sys.stdin.isatty():
            return script(pair, node)
        for other in pair.nodes.values():
            other.spawn(LOOP)
        say(f"the other node, from another terminal: make shell NODE={'b' if node == 'a' else 'a'}")
        interact(node)
    return 0
