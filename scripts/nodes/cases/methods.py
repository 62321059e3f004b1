# SPDX-License-Identifier: GPL-2.0
"""Initiation methods, and atomic operations, as the command line offers them."""

import json
import re

from .. import endpoints
from ..cluster import Cluster
from ..paths import REPO
from .registry import case, expect

TIMEOUT = 60.0
PORT = 840
# Rows of the table in README.md, by method.
ROWS = {
    "extended-shadow": "user-level DMA (extended shadow), warm",
    "kernel": "DMA started by the kernel, warm",
}
COUNT = 16
# Stores and loads of one initiation that a process makes.
ACCESSES = {
    "shrimp-2-abort": (1, 1),
    "flash": (1, 1),
    "key": (3, 1),
    "extended-shadow": (1, 1),
    "extended-shadow-shared": (1, 1),
    "repeated-5": (2, 3),
    "single-store": (1, 0),
    "shrimp-1": (0, 1),
}


@case
def every_method_moves_all_bytes(pair: Cluster) -> None:
    """Each method copies what it should, by the accesses that it is said to need."""
    [info] = json.loads(pair.a.check("uldma info --json"))["devices"]
    offered = set(info["methods"]) - {"fetch-add"}
    missing = (ACCESSES.keys() | {"kernel", "queue"}) - offered
    expect(not missing, f"not offered: {missing}")
    for method in sorted(offered):
        command = f"uldma dma --method {method} --size 98304 --count {COUNT} --json"
        report = json.loads(pair.a.check(command, TIMEOUT))
        expect(report["verified"], f"{method}: {report}")
        if method == "kernel":
            continue
        expect(report["by_kernel"] == 0, f"the kernel had to help {method}: {report}")
        expect(
            report["syscalls"] == 0, f"{method} makes system calls, or an unknown number: {report}"
        )
        if method in ACCESSES and report["retries"] == 0:
            made = (report["mmio_stores"], report["mmio_loads"])
            due = tuple(each * report["initiations"] for each in ACCESSES[method])
            expect(made == due, f"{method}: {made} stores and loads, not {due}")


def said_by_readme(row: str) -> tuple[str, str, str]:
    """The system calls, loads and stores of a row of README.md."""
    cells = re.search(rf"^\| {re.escape(row)} \| (.*) \|$", (REPO / "README.md").read_text(), re.M)
    assert cells, f"README.md has no row {row}"
    calls, _, loads, stores = cells[1].split(" | ")[-4:]
    return calls, loads, stores


@case
def a_file_takes_the_accesses_that_the_readme_says(pair: Cluster) -> None:
    """The counts of README.md's table hold for a file by DMA, however large it is."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check("head -c 1048576 /dev/urandom >/tmp/sent", TIMEOUT)
    for method, row in ROWS.items():
        receiver = b.spawn(f"recv-file --port {PORT} --out /tmp/received")
        try:
            command = f"send-file /tmp/sent --port {PORT} --method {method} --warm --json"
            report = json.loads(a.check(command, TIMEOUT))
            receiver.wait(TIMEOUT)
        finally:
            receiver.end()
        counts = (report["syscalls"], report["mmio_loads"], report["mmio_stores"])
        found = tuple("\N{EN DASH}" if count is None else f"{count}" for count in counts)
        expect(found == said_by_readme(row), f"{row}: {found}")


@case
def atomic_operations_change_the_peers_word(pair: Cluster) -> None:
    """Additions and exchanges reach a word that the peer exports, and tell what it was."""
    endpoints.wait_up(endpoints.of(pair))
    job = pair.b.spawn("uldma export atomic-word --size 4K --access read-write")
    try:
        job.wait_output("exporting", TIMEOUT)
        for options, before, changed in (
            ("--add 5", 0, True),
            ("--expect 4 --swap 9", 5, False),
            ("--expect 5 --swap 9", 5, True),
            ("--add 0", 9, False),
        ):
            output = pair.a.check(f"uldma atomic atomic-word --offset 8 {options} --json", TIMEOUT)
            report = json.loads(output)
            found = (report["before"], report["changed"])
            expect(found == (before, changed), f"{options}: {report}")
    finally:
        job.end()
