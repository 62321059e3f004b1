# SPDX-License-Identifier: GPL-2.0
"""nodes run: a file crosses from A to B by every method, and must arrive unchanged."""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import results
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..paths import KDIR
from ..qemu import Config
from ..results import Figure, number

METHODS = ("extended-shadow", "kernel", "window", "tcp")
# Where the device moves the bytes: what the device pays once, it has paid before they are timed.
BY_DMA = METHODS[:2]
RIVAL = "tcp"
# Of a transfer: the calls that start it, or move the bytes; apart, those that wait for its end.
COUNTS = ("syscalls", "wait_syscalls", "mmio_loads", "mmio_stores", "initiations")
SENT_FILE = "/root/file"
ADDRESS_B = "10.0.0.2"
PORT = 820
TRANSFER_TIMEOUT = 120.0
PING_TIMEOUT = 60.0
NEXT = """
What next:
  make shell                a root shell on node A; NODE=b in another terminal for the other one
  make shell FILES='path'   the same with files and programs of yours in /files
  make test                 all tests
  make bench                figures beside what the machine can do at best, and beside TCP
  make docs                 the documentation, in build/docs
On a node: uldma --help, uldma info, uldma stat; the shortest programs are in samples/uldma."""
# Room in a node's memory beside the file itself, which is there up to four times: in the archive,
# unpacked, and in the buffers of both processes.
BASE_MEMORY = 768


@dataclass(frozen=True)
class Transfer:
    """One method's transfer, as both ends saw it."""

    method: str
    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def throughput(self) -> float:
        """MB/s"""
        return float(self.sent["bytes"] / self.sent["seconds"] / 1e6)

    @property
    def first(self) -> float | None:
        """Seconds of the first time, in which the device met the memory."""
        return self.sent.get("first_seconds")

    def row(self, intact: bool) -> list[str]:
        """A line of the table."""
        counts = [self.sent.get(key) for key in COUNTS]
        return [
            self.method,
            number(self.sent["bytes"]),
            f"{self.sent['seconds'] * 1e3:.2f}",
            f"{self.throughput:.1f}",
            *map(number, counts),
            "equal" if intact else "DIFFERS",
        ]


def digest_of(path: Path) -> str:
    """The SHA-256 of a file here."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse(output: str, what: str) -> dict[str, Any]:
    """The JSON object that a tool printed."""
    try:
        value = json.loads(output)
    except ValueError as error:
        raise NodesError(f"{what}: no JSON in its output: {output[:500]!r}") from error
    if not isinstance(value, dict):
        raise NodesError(f"{what}: not a JSON object: {output[:500]!r}")
    return value


def transfer(pair: Cluster, method: str) -> Transfer:
    """Send the file by one method."""
    # The two meet over the link; for the rival the data goes by the network.
    options = {RIVAL: f"--peer-addr {ADDRESS_B}"} | dict.fromkeys(BY_DMA, "--warm")
    receiver = pair.b.spawn(f"uldma recv-file --port {PORT} --out /tmp/received --json")
    sender = pair.a.run(
        f"uldma send-file {SENT_FILE} --port {PORT} --method {method} --json "
        f"{options.get(method, '')}",
        TRANSFER_TIMEOUT,
    )
    if sender.rc:
        receiver.kill()
        raise NodesError(f"send-file by {method}: exit {sender.rc}\n{sender.stdout}{sender.stderr}")
    end = receiver.wait(TRANSFER_TIMEOUT)
    if end.rc:
        raise NodesError(f"recv-file by {method}: exit {end.rc}\n{end.stdout}{end.stderr}")
    # What the receiver says of itself is not believed.
    digest = pair.b.check("sha256sum /tmp/received; rm /tmp/received").split()[0]
    received = parse(end.stdout, "recv-file") | {"sha256": digest}
    return Transfer(method, parse(sender.stdout, "send-file"), received)


def of_first_touch(transfers: Sequence[Transfer]) -> str:
    """What the table leaves out."""
    first = [f"{t.method} {t.first * 1e3:.2f} ms" for t in transfers if t.first is not None]
    return f"with the device's first touch of the memory: {', '.join(first)}"


def ping(pair: Cluster) -> dict[str, Any]:
    """Ring round trips, and raw ones over the same window."""
    server = pair.b.spawn("uldma ping --serve")
    try:
        return parse(pair.a.check("uldma ping --json", PING_TIMEOUT), "ping")
    finally:
        server.kill()


def figures(transfers: Sequence[Transfer], rtt: dict[str, Any]) -> list[Figure]:
    """What goes to run.json."""
    rival = next((t.throughput for t in transfers if t.method == RIVAL), None)
    found = [
        Figure(
            f"file.{t.method}.throughput",
            t.throughput,
            "MB/s",
            rival=rival if t.method != RIVAL else None,
        )
        for t in transfers
    ]
    for t in transfers:
        for key in COUNTS:
            if t.sent.get(key) is not None:
                found.append(Figure(f"file.{t.method}.{key}", t.sent[key], "count"))
        if t.first is not None:
            found.append(Figure(f"file.{t.method}.first", t.first * 1e3, "ms"))
    found.append(Figure("ring.rtt.p50", rtt["p50_ns"], "ns", floor=rtt.get("raw_p50_ns")))
    found.append(Figure("ring.rtt.p99", rtt["p99_ns"], "ns"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make run")
    parser.add_argument("--file", type=Path, default=KDIR / "vmlinuz")
    path: Path = parser.parse_args(arguments).file
    if not path.is_file():
        raise NodesError(f"no such file: {path}")
    want = digest_of(path)
    size = path.stat().st_size
    if not size:
        raise NodesError(f"nothing to send: {path} is empty")
    say(f"sending {path} ({number(size)} bytes)")
    memory = BASE_MEMORY + 5 * (size >> 20)
    config = Config(memory=memory, files={SENT_FILE: path}, tests=False)
    with Cluster("run", config) as pair:
        transfers = [transfer(pair, method) for method in METHODS]
        rtt = ping(pair)
        pair.check_logs()
    intact = [
        t.received["sha256"] == want and t.sent["sha256"] == want and t.sent["bytes"] == size
        for t in transfers
    ]
    head = ["method", "bytes", "ms", "MB/s", "syscalls", "to wait", "MMIO loads", "MMIO stores"]
    rows = [t.row(good) for t, good in zip(transfers, intact, strict=True)]
    print(f"\nSHA-256 {want}\n{results.table([*head, 'initiations', 'SHA-256 on B'], rows)}")
    print(of_first_touch(transfers))
    raw = rtt.get("raw_p50_ns")
    print(
        f"\nring round trip: {number(rtt['p50_ns'])} ns median, {number(rtt['p99_ns'])} ns p99"
        + (f"; raw cache line: {number(raw)} ns; ratio {rtt['p50_ns'] / raw:.2f}" if raw else "")
    )
    results.write("run", figures(transfers, rtt))
    print("every figure: build/results/run.json")
    if not all(intact):
        raise NodesError("a file arrived changed")
    print(NEXT)
    return 0
