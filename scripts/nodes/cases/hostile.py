# SPDX-License-Identifier: GPL-2.0
"""A peer that writes what it likes into the window, by a program that has no driver above it."""

import json
import re
from collections.abc import Sequence

from .. import endpoints, network
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..kernel import DEBUG
from ..module import reload
from ..polling import wait_until
from ..qemu import LINK_PENALTY_MS, LINK_TIMEOUT_MS, Backend
from ..streams import send_file
from ..topologies import IVSHMEM, USUAL
from .doorbells import count, expect_bounded
from .registry import case_of, expect
from .tun import packets_peer

PORT = 780
STREAM_PORT = 781
SIZE = 1 << 20
PROGRAM = (
    "cd /kselftest/uldma && ./uldma_hostile "
    f"--link-timeout {LINK_TIMEOUT_MS} --link-penalty {LINK_PENALTY_MS}"
)
TIMEOUT = 60.0 + 8 * LINK_TIMEOUT_MS / 1000
# Time in which a call ends although the peer does not confirm the end of its connection.
LET_GO_TIMEOUT = LINK_TIMEOUT_MS / 1000 + 15.0
# More than the deadline of what a peer holds, on nodes that are slow.
HOLD_SECONDS = int(4 * LET_GO_TIMEOUT)
LIMIT = "--timeout 600"
SEGMENTS = "/kselftest/uldma/uldma_doorbell"
SEGMENT_COUNT = 31
# Attacks after which the attacker's node has its driver again: between them, only what they end
# begins anew. The driver's start and two files take as long as three attacks.
MODES_IN_A_ROW = 8
# What is about data that goes through the window, as that of ivshmem does.
OF_WINDOW = ("stale-ranges", "offset-lies", "bad-stream", "never-lets-go")
# What is the same with every device, but is of the kind that has cost most.
OF_ALL = (
    "answer-flood",
    "session-flap",
    "segment-storm",
    "vector-storm",
    "net-frames",
    "net-engine",
    "net-random",
)
# What is about streams that the device matches, by the beginning of its name.
OF_STREAMS = "stream-"
# What ends at a deadline of the driver only, and has a case of its own.
TIMED = ("holds-ring",)
# One attack of each kind: the debug kernel, where each takes ten seconds, has no time for more.
ON_DEBUG = (
    "bad-size",
    "length-huge",
    "spinning-writer",
    "stale-messages",
    "answer-lies",
    "answer-flood",
    "bad-exports",
    "stale-ranges",
    "session-flap",
    "hang",
    "connect-flood",
    "random-window",
    "takes-nothing",
    "net-frames",
)
STREAMS_ON_DEBUG = ("stream-mixed",)


def list_modes(end: Endpoint) -> list[str]:
    """Return the names of all attacks."""
    return end.node.check(f"{PROGRAM} --list").split()


def used(end: Endpoint) -> list[int]:
    """Return what programs of an end have in use."""
    info = end.info()
    user = ("contexts", "endpoints", "pages", "regions")
    return [info["pages"], info["regions"], *(info["user"][name] for name in user)]


class Victims:
    """Programs of an end that an attacker reaches; an attack may end all but that of streams."""

    def __init__(self, a: Endpoint, b: Endpoint) -> None:
        self._node = a.node
        # What starts each, and what it says when it can be attacked.
        self._programs = {
            # Accepts one after the other, at the port that the attacker knows.
            f"ULDMA_DEVICE={a.path} /kselftest/uldma/uldma_conn_peer serve": "ready",
            a.command(f"listen {PORT} {LIMIT} >/dev/null"): "",
            a.command(f"connect {b.number} {PORT} --wait {LIMIT} </dev/zero >/dev/null"): "",
            # Connects, too, and has no rings.
            f"{packets_peer(b)} </dev/zero >/dev/null": "",
        }
        # Asks for streams that the device matches.
        self._streams = f"/tests/matched_end serve {STREAM_PORT}"
        self._has_streams = a.info()["backend"] == Backend.ADAPTER
        if self._has_streams:
            self._programs[self._streams] = "ready"
        self._jobs: dict[str, Job] = {}

    @property
    def options(self) -> str:
        """What the attacker has to know of them."""
        return f"--stream-port {STREAM_PORT}" if self._has_streams else ""

    def start(self) -> None:
        """Start those that do not run."""
        for command in self._programs:
            job = self._jobs.get(command)
            if job is None or not job.running:
                self._jobs[command] = self._node.spawn(command)
        for command, ready in self._programs.items():
            if ready:
                self._jobs[command].wait_output(ready, TIMEOUT)

    def check(self, mode: str) -> None:
        """Fail unless those run that no attack may end."""
        if self._has_streams:
            job = self._jobs[self._streams]
            expect(job.running, f"{mode}: {job.command} has ended: {job.text('err')}")

    def end(self) -> None:
        """End all."""
        for job in self._jobs.values():
            job.end()


def attack(a: Endpoint, b: Endpoint, modes: Sequence[str], timeout: float = TIMEOUT) -> str:
    """Attack a, which listens and connects; it goes on, and b is a good peer afterwards.

    What the attacker has to say.
    """
    names = ", ".join(modes)
    said = ""
    before = used(a)
    again = b.unbind()
    # For the attacks by its packets.
    a.node.check(f"ip link set ul{a.device} up")
    victims = Victims(a, b)
    try:
        for mode in modes:
            victims.start()
            said += b.node.check(f"{PROGRAM} {victims.options} {mode}", timeout)
            victims.check(mode)
            expect(a.info()["node"] == a.number, f"{mode}: {a.name} has lost itself")
            a.node.check_log()
    finally:
        victims.end()
        b.node.check(again)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)
    send_file(b, a, PORT, SIZE)
    wait_until(lambda: used(a) == before, TIMEOUT, f"{names}: what {a.name} had in use is free")
    return said


def attack_by_all(a: Endpoint, b: Endpoint, modes: Sequence[str]) -> str:
    """Attack in all of these ways, a few before b is a good peer again."""
    parts = range(0, len(modes), MODES_IN_A_ROW)
    return "".join(attack(a, b, modes[first : first + MODES_IN_A_ROW]) for first in parts)


@case_of(USUAL, IVSHMEM)
def rings_are_coalesced(pair: Cluster) -> None:
    """Many rings make few passes, and the timer takes the place of rings for nothing."""
    # However slow the nodes are, rings come faster than two wake-ups of this cost.
    reload(pair.a, "wakeup_us=20000")
    a, b = endpoints.of(pair)
    again = b.unbind()
    try:
        for mode in ("segment-storm", "doorbell-storm"):
            before = count(a, is_first=True)
            b.node.check(f"{PROGRAM} {mode}", TIMEOUT)
            expect_bounded(a, count(a, is_first=False).since(before))
        found = a.intake()
    finally:
        b.node.check(again)
        reload(pair.a)
    expect(found["passes"] > 0, f"no ring is passed on: {found}")
    # A ring of ivshmem takes so long here that passes may come as seldom as they may.
    if a.info()["backend"] == Backend.ADAPTER:
        expect(found["moderated"] > 0, f"rings for nothing are listened to: {found}")
    endpoints.wait_up((a, b))


@case_of(USUAL, IVSHMEM)
def rings_for_no_packets_are_masked(pair: Cluster) -> None:
    """The doorbell of the network is masked while it rings for nothing, and not afterwards."""
    # However fast the nodes are, a doorbell costs so much that a few are too many.
    reload(pair.a, "wakeup_us=20000 link_busy_poll_us=0")
    ends = a, b = endpoints.of(pair)
    again = b.unbind()
    # While it is down, its doorbell stays masked.
    a.node.check(f"ip link set ul{a.device} up")
    try:
        before = count(a, is_first=True)
        b.node.check(f"{PROGRAM} vector-storm", TIMEOUT)
        expect_bounded(a, count(a, is_first=False).since(before))
        [device] = json.loads(a.check("net --json"))["devices"]
        masked = device["interface"]["counters"]["moderations"]
        expect(masked > 0, f"{a.name} has listened to all rings")
        b.node.check(again)
        endpoints.wait_up(ends)
        here, there = network.up(ends)
        network.ping(there, here.address)
    finally:
        b.node.run(again)
        reload(pair.a)
    endpoints.wait_up(ends)


@case_of(USUAL, IVSHMEM)
def packets_of_others_are_dropped(pair: Cluster) -> None:
    """A packet whose source is not the node that sent it is dropped, and counted."""
    ends = a, b = endpoints.of(pair)
    endpoints.wait_up(ends)
    again = b.unbind()
    a.node.check(f"ip link set ul{a.device} up")
    try:
        before = _received(a, b)
        said = b.node.check(f"{PROGRAM} -t 30 net-foreign", TIMEOUT)
        [sent] = map(int, re.findall(r"(\d+) frames of others", said))
        after = _received(a, b)
        expect(after["rx_packets"] == before["rx_packets"], f"{after} after {before}: {said}")
        expect(after["rx_foreign"] - before["rx_foreign"] == sent > 0, f"{after}: {said}")
    finally:
        b.node.run(again)
    endpoints.wait_up(ends)


def _received(end: Endpoint, peer: Endpoint) -> dict[str, int]:
    """What the interface of an end has counted of the packets of a peer."""
    said = end.node.check(f"ethtool -S ul{end.device}")
    counted = re.findall(rf"node{peer.number}_(rx_\w+): (\d+)", said)
    return {name: int(count) for name, count in counted}


@case_of(USUAL, IVSHMEM)
def unbind_ends_in_a_storm(pair: Cluster) -> None:
    """A driver is unbound, and its module removed, while the peer rings all the time."""
    a, b = endpoints.of(pair)
    again = b.unbind()
    storm = b.node.spawn(f"{PROGRAM} -t 3600 doorbell-storm")
    try:
        storm.wait_output("rings for nothing", TIMEOUT)
        rung = a.peer(b)["interrupts"]
        wait_until(lambda: a.peer(b)["interrupts"] > rung + 1000, TIMEOUT, f"{a.name} is rung")
        back = a.unbind()
        expect(storm.running, f"the storm ended first: {storm.text('out')}")
        a.node.check(back)
        reload(a.node)
        a.node.check_log()
        # Each doorbell of ivshmem is for all segments. The first rings while the driver is bound.
        if a.info()["backend"] == Backend.IVSHMEM:
            wait_until(lambda: a.intake()["passes"] > 0, TIMEOUT, "doorbells reach segments")
    finally:
        storm.end()
        b.node.check(again)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)


@case_of(USUAL, IVSHMEM)
def attacker_costs_only_itself(pair: Cluster) -> None:
    """Whatever it writes, the victim's kernel is well, and the link comes up with a good peer."""
    a, b = endpoints.of(pair)
    modes = [mode for mode in list_modes(b) if not mode.startswith(OF_STREAMS)]
    expect({*OF_WINDOW, *OF_ALL} < set(modes), f"there are only these attacks: {modes}")
    through_window = a.info()["backend"] == "ivshmem"
    of_adapter = tuple(mode for mode in modes if mode not in TIMED)
    wanted = (*OF_WINDOW, *OF_ALL) if through_window else of_adapter
    if DEBUG and not through_window:
        expect(set(ON_DEBUG) < set(wanted), f"there are only these attacks: {modes}")
        wanted = ON_DEBUG
    said = attack_by_all(a, b, wanted)
    if "answer-lies" in wanted:
        expect("a ring for one that has none" in said, f"no victim was without rings: {said}")


@case_of(USUAL)
def streams_of_an_attacker_are_reset(pair: Cluster) -> None:
    """Whatever it says of endpoints, a program that waits for it is told in time."""
    a, b = endpoints.of(pair)
    modes = [mode for mode in list_modes(b) if mode.startswith(OF_STREAMS)]
    expect(set(STREAMS_ON_DEBUG) < set(modes), f"there are only these attacks: {modes}")
    attack_by_all(a, b, STREAMS_ON_DEBUG if DEBUG else modes)


@case_of(USUAL, IVSHMEM)
def end_that_is_not_answered(pair: Cluster) -> None:
    """The peer does not confirm the end of a connection: the call that ends it returns.

    Where the peer may still write what the connection had of the window, its session ends.
    """
    carried = endpoints.of(pair)[0].info()["backend"] == Backend.IVSHMEM
    for mode, may_write in (("holds-on", carried), ("holds-ring", True)):
        end_without_answer(pair, mode, may_write)


def end_without_answer(pair: Cluster, mode: str, may_write: bool) -> None:
    """End a connection whose peer does not confirm that."""
    a, b = endpoints.of(pair)
    again = b.unbind()
    victim = a.spawn(f"connect {b.number} {PORT} --wait {LIMIT} </dev/null")
    seconds = HOLD_SECONDS if may_write else int(2 * LET_GO_TIMEOUT)
    attacker = b.node.spawn(f"{PROGRAM} --time {seconds} {mode}")
    try:
        attacker.wait_output("holding", TIMEOUT)
        victim.wait(LET_GO_TIMEOUT)
        expect(may_write or attacker.running, f"the peer is gone: {attacker.text('out')}")
        result = attacker.wait(seconds + TIMEOUT)
        expect(result.rc == 0, f"the peer holds on: {result}")
    finally:
        attacker.end()
        victim.end()
        b.node.check(again)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)


@case_of(USUAL, IVSHMEM)
def segments_that_are_not_given_back(pair: Cluster) -> None:
    """The peer keeps ranges of segments that have ended: its session ends, and they are free."""
    a, b = endpoints.of(pair)
    again = b.unbind()
    before = a.info()["window_used"]
    victim = a.node.spawn(f"ULDMA_DEVICE={a.path} exec {SEGMENTS} serve")
    attacker = None
    try:
        victim.wait_output("ready", TIMEOUT)
        attacker = b.node.spawn(f"{PROGRAM} --time {HOLD_SECONDS} keeps-segments")
        attacker.wait_output("holding", TIMEOUT)
        expect(a.quarantine()[b.number] == 0, "what is in use is in quarantine")
        victim.end()
        held = a.quarantine()[b.number]
        expect(held == SEGMENT_COUNT, f"{held} ranges are in quarantine")
        result = attacker.wait(HOLD_SECONDS + TIMEOUT)
        expect(result.rc == 0, f"the peer keeps its session: {result}")
        # It has met this node again.
        expect(a.info()["window_used"] == before, f"{a.quarantine()} are not free")
    finally:
        victim.end()
        if attacker:
            attacker.end()
        b.node.check(again)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)
