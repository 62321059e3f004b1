# SPDX-License-Identifier: GPL-2.0
"""Connections in every state when the peer is lost: each ends within a bound, and says so."""

from dataclasses import dataclass, field

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..polling import wait_until
from ..streams import discard_stream, send_file
from ..topologies import IVSHMEM, USUAL
from .registry import case, case_of, expect

LISTENING, IDLE, CLOSING, OUTGOING, INCOMING, CONNECTING = range(720, 726)
PORT = 726
LIMIT = "--timeout 600"
START_TIMEOUT = 30.0
SIZE = 65536
# A connection that was reset.
RESET = 1


def expect_paid(end: Endpoint) -> None:
    """Connections, and their window ranges, are charged to root, which has made them all."""
    info = end.info()
    for what, there in (("connections", info["connections"]), ("window", info["window_used"])):
        paid = info["user"][what]
        expect(there == paid, f"{what}: {there}, of which {paid} are paid for")


@dataclass
class HeldState:
    """The jobs and connections of both ends, of which b is lost later."""

    a: Endpoint
    b: Endpoint
    listening: Job
    # Everything that has to end, by the state of a's connection.
    connected: dict[str, Job] = field(default_factory=dict)
    peers: list[Job] = field(default_factory=list)
    input: Job | None = None

    def close(self) -> None:
        """Let a disconnect; b, which has to agree, stands still."""
        assert self.input
        self.input.end()

    def connect(self) -> None:
        """Let a ask b, which stands still, for a connection."""
        before = self.a.info()["connections"]
        self.connected["CONNECTING"] = self.a.spawn(
            f"connect {self.b.number} {CONNECTING} {LIMIT} </dev/null"
        )
        wait_until(lambda: bool(self.a.info()["connections"] > before), START_TIMEOUT, "a connects")
        expect_paid(self.a)

    def expect_reset(self) -> None:
        """All of a's connections end within the bound; only CLOSING may have ended well."""
        for state, job in self.connected.items():
            result = job.wait(LOSS_TIMEOUT)
            allowed = result.rc != 0 or state == "CLOSING"
            expect(allowed, f"{state}: no error after the loss\n{result.stderr}")
            if state.startswith("CONNECTED"):
                expect(result.rc == RESET, f"{state}: exit {result.rc}\n{result.stderr}")
        expect(self.listening.running, f"LISTENING has ended\n{self.listening.text('err')}")

    def expect_listener(self) -> None:
        """Listeners stay, and can be reached when the peer is back."""
        command = self.b.command(f"connect {self.a.number} {LISTENING} --wait")
        self.b.node.check(f"echo back | {command}")
        result = self.listening.wait(START_TIMEOUT)
        expect((result.rc, result.stdout) == (0, "back\n"), f"LISTENING: {result}")

    def stop(self) -> None:
        """End the processes that still run here."""
        for job in (self.listening, self.input, *self.connected.values()):
            if job:
                job.end()


def hold(a: Endpoint, b: Endpoint) -> HeldState:
    """Bring connections into the states that need no help of b later, and let data cross each."""
    endpoints.wait_up((a, b))
    held = HeldState(a, b, listening=a.spawn(f"listen {LISTENING} {LIMIT}"))
    a.node.check("rm -f /tmp/hold /tmp/close && mkfifo /tmp/hold /tmp/close")
    held.input = a.node.spawn("exec 3>/tmp/close; echo hello >&3; exec sleep 600")
    client = a.command(f"connect {b.number} %d --wait {LIMIT}")
    held.connected = {
        # A pipe that this process could write to has no end.
        "CONNECTED idle": a.node.spawn(
            f"exec 3<>/tmp/hold; echo hello >&3; exec {client % IDLE} <&3"
        ),
        "CLOSING": a.node.spawn(f"exec {client % CLOSING} </tmp/close"),
        "CONNECTED sending": a.node.spawn(f"exec {client % OUTGOING} </dev/zero"),
        "CONNECTED receiving": discard_stream(a, INCOMING),
    }
    greeted = [b.spawn(f"listen {port} --once {LIMIT}") for port in (IDLE, CLOSING)]
    reader = discard_stream(b, OUTGOING)
    held.peers = [
        *greeted,
        reader,
        b.spawn(f"connect {a.number} {INCOMING} --wait {LIMIT} </dev/zero"),
    ]
    for job in greeted:
        job.wait_output("hello", START_TIMEOUT)
    for job in (reader, held.connected["CONNECTED receiving"]):
        job.wait_output("begun", START_TIMEOUT)
    return held


def works(pair: Cluster) -> None:
    """The link is up, and data crosses both ways."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)
    send_file(b, a, PORT, SIZE)


@case_of(USUAL, IVSHMEM)
def by_power_failure(pair: Cluster) -> None:
    """The peer's machine is gone without a word."""
    a, b = endpoints.of(pair)
    held = hold(a, b)
    try:
        b.node.freeze()
        held.close()
        held.connect()
        b.node.kill()
        held.expect_reset()
        pair.revive("b")
        _, held.b = endpoints.of(pair)
        held.expect_listener()
    finally:
        held.stop()
    works(pair)


@case_of(USUAL, IVSHMEM)
def by_hanging(pair: Cluster) -> None:
    """The peer stands still for longer than the link allows, and then goes on."""
    a, b = endpoints.of(pair)
    held = hold(a, b)
    try:
        b.node.freeze()
        try:
            held.close()
            held.connect()
            held.expect_reset()
            endpoints.wait_down(a, b)
        finally:
            b.node.thaw()
        for job in held.peers:
            job.wait(LOSS_TIMEOUT)
        held.expect_listener()
    finally:
        held.stop()
    works(pair)


@case
def by_unbinding(pair: Cluster) -> None:
    """The peer's driver is unbound under its connections."""
    a, b = endpoints.of(pair)
    held = hold(a, b)
    try:
        again = b.unbind()
        try:
            held.expect_reset()
            for job in held.peers:
                job.wait(LOSS_TIMEOUT)
        finally:
            b.node.check(again)
        held.expect_listener()
    finally:
        held.stop()
    works(pair)
