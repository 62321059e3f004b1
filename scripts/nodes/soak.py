# SPDX-License-Identifier: GPL-2.0
"""Killing whatever can be killed under connections, again and again; nothing may be left.

Devices are not killed but fail for a while, in one of the ways from which they can be brought back.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from . import endpoints, leftovers
from .agent import Job
from .cluster import Cluster
from .endpoints import Endpoint
from .errors import NodesError
from .polling import wait_until
from .streams import send_files_each_way

STREAM_PORT = 800
FRESH_PORT = 810
STREAM_BYTES = 1 << 20
FRESH_BYTES = 64 << 10
# With which the lines of the two streams' data begin, so that no two blocks of it are the same.
FIRST_LINES = (1_000_000, 5_000_000)
WORK = "/tmp/soak"
# What `uldma info` tells to be in use.
COUNTERS = ("contexts_used", "regions", "pages", "window_used", "connections")
DATA_TIMEOUT = 60.0
END_TIMEOUT = 30.0


class Kind(StrEnum):
    """What is killed."""

    PROCESS = "process"
    CABLE = "cable"
    DRIVER = "driver"
    DEVICE = "device"
    NODE = "node"


class Recovery(StrEnum):
    """The step after which a failed device works again."""

    # It is enough that the device fails no more.
    NOTHING = "nothing"
    # The driver has to begin anew with it.
    BIND = "bind"
    # So does the peer's driver: its device could not end what the failing one was about to access,
    # and what a device has not ended is kept until the driver lets go of it.
    BIND_BOTH = "bind-both"
    # It has left the bus, and has to be found there.
    FIND = "find"


# How often each is killed in a round; a node takes the time of a boot to come back.
ROUND = {Kind.PROCESS: 10, Kind.CABLE: 5, Kind.DRIVER: 4, Kind.DEVICE: 4, Kind.NODE: 1}
ROUND_KILLS = sum(ROUND.values())
# How devices fail: all faults of the model that change no data, since streams would be blamed.
FAULTS = {
    "stall": Recovery.BIND,
    "hold": Recovery.BIND_BOTH,
    "drop-completion": Recovery.BIND,
    "forge-completion": Recovery.BIND,
    "drop-interrupt": Recovery.NOTHING,
    "drop-doorbell": Recovery.NOTHING,
    "storm": Recovery.NOTHING,
    "bus-error": Recovery.BIND,
    "gone": Recovery.FIND,
    "ones": Recovery.BIND,
}
# What is asked of a device while it fails, so that it does; the exit status is its own business.
PROBE = "dma --size 64K --count 4 --timeout 3"
PROBE_TIMEOUT = 60.0


@dataclass(frozen=True)
class Kill:
    """One kill, of something at one end; with a device, by a fault."""

    kind: Kind
    victim: int
    fault: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"{self.kind} by {self.fault}" if self.fault else self.kind


def plan(seed: int) -> Iterator[Kill]:
    """Kills without end, in an order that the seed tells; every round has the same kinds."""
    chance = random.Random(seed)
    while True:
        kinds = [kind for kind, times in ROUND.items() for _ in range(times)]
        chance.shuffle(kinds)
        for kind in kinds:
            fault = chance.choice(list(FAULTS)) if kind is Kind.DEVICE else ""
            yield Kill(kind, chance.randrange(2), fault)


def make_data() -> str:
    """The command that makes what both streams carry: the same on each node, and at each boot."""
    return f"mkdir -p {WORK} && " + " && ".join(
        f"seq {first} 9999999 | head -c {STREAM_BYTES} >{WORK}/data-{STREAM_PORT + number}"
        for number, first in enumerate(FIRST_LINES)
    )


def receiving(end: Endpoint, port: int) -> str:
    """The script that receives again and again.

    Whatever becomes of a connection, what has come is the beginning of what was sent. A file that
    came whole leaves a line in one place, one that holds anything else in another.
    """
    data, received = f"{WORK}/data-{port}", f"{WORK}/received-{port}"
    listen = end.command(f"listen {port} --once --timeout 60")
    return (
        f"while :; do {listen} >{received} 2>/dev/null || usleep 50000; "
        f"size=$(stat -c %s {received}); "
        f"if [ $size -gt {STREAM_BYTES} ] || ! cmp -n $size {received} {data} >>{WORK}/bad 2>&1; "
        f"then echo $size bytes by {port} >>{WORK}/bad; "
        f"elif [ $size = {STREAM_BYTES} ]; then echo >>{WORK}/good-{port}; fi; done"
    )


def sending(end: Endpoint, peer: Endpoint, port: int) -> str:
    """The script that sends again and again."""
    connect = end.command(f"connect {peer.number} {port} --wait --timeout 60")
    return f"while :; do {connect} <{WORK}/data-{port} >/dev/null 2>&1 || usleep 50000; done"


@dataclass
class Soak:
    """Two ends with a stream in each direction."""

    pair: Cluster
    say: Callable[[str], None]
    kills: Counter[Kind] = field(default_factory=Counter)
    arrived: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0
    # Of each end, how often its peer had broken the rules before: other tests let it do so.
    _violations: list[int] = field(default_factory=list)
    _jobs: dict[int, list[Job]] = field(default_factory=dict)

    @property
    def _ends(self) -> list[Endpoint]:
        return endpoints.of(self.pair)

    def run(self, seed: int, kills: int, seconds: float = 0.0) -> None:
        """Kill that often, and for at least that long; raise if anything is not as it should be."""
        began = time.monotonic()
        endpoints.wait_up(self._ends)
        self._violations = self._count_violations()
        for number in range(2):
            self._start(number)
        order = plan(seed)
        while self.kills.total() < kills or time.monotonic() - began < seconds:
            kill = next(order)
            try:
                self._kill(kill)
            except NodesError as error:
                count = self.kills.total()
                raise NodesError(f"seed {seed}, kill {count}: {kill}: {error}") from error
        self._finish()

    def _start(self, number: int) -> None:
        """Let an end send its stream and receive the other's."""
        here, there = self._ends[number], self._ends[1 - number]
        here.node.check(make_data(), DATA_TIMEOUT)
        self._jobs[number] = [
            here.node.spawn(sending(here, there, STREAM_PORT + number)),
            here.node.spawn(receiving(here, STREAM_PORT + 1 - number)),
        ]

    def _kill(self, kill: Kill) -> None:
        """Kill something; the link has to come back, and a fresh file to cross."""
        self.kills[kill.kind] += 1
        recovery = FAULTS.get(kill.fault, Recovery.NOTHING)
        here, there = self._ends[1 - kill.victim], self._ends[kill.victim]
        before = here.peer(there)["generation"]
        match kill.kind:
            case Kind.PROCESS:
                self._kill_process(kill.victim)
            case Kind.CABLE:
                self._pull_cable()
            case Kind.DRIVER:
                self._unbind(kill.victim)
            case Kind.DEVICE:
                self._fail(kill.victim, kill.fault, recovery)
            case Kind.NODE:
                self._kill_node(kill.victim)
        is_new = kill.kind in (Kind.DRIVER, Kind.NODE) or recovery is not Recovery.NOTHING
        # A driver that begins anew counts violations and generations from zero.
        if is_new:
            self._violations[kill.victim] = 0
        if recovery is Recovery.BIND_BOTH:
            self._violations[1 - kill.victim] = 0
            before = 0
        here, there = self._ends[1 - kill.victim], self._ends[kill.victim]
        took = endpoints.wait_up((here, there))
        self.slowest = max(self.slowest, took)
        after = here.peer(there)["generation"]
        if kill.kind is Kind.PROCESS and after != before:
            raise NodesError(f"the link went down: generation {before}, then {after}")
        if (is_new or kill.kind is Kind.CABLE) and after <= before:
            raise NodesError(f"{here.name} has not noticed: generation {before}, then {after}")
        send_files_each_way((here, there), FRESH_PORT, FRESH_BYTES)
        self.pair.check_logs()
        self.say(
            f"kill {self.kills.total()}: {kill} of {there.node.name}; "
            f"the link is back after {took:.1f} s"
        )

    def _kill_process(self, victim: int) -> None:
        node = self._ends[victim].node
        # Between two files there may be none.
        wait_until(lambda: not node.run("killall -9 uldma").rc, END_TIMEOUT, "a process to kill")

    def _pull_cable(self) -> None:
        device = self.pair.device
        assert device
        device.control("link", up=False)
        try:
            for here, there in (self._ends, reversed(self._ends)):
                endpoints.wait_down(here, there)
        finally:
            device.control("link", up=True)

    def _unbind(self, victim: int) -> None:
        end = self._ends[victim]
        end.node.check(end.unbind())

    def _fail(self, victim: int, fault: str, recovery: Recovery) -> None:
        """Let a device fail while something is asked of it, and bring it back."""
        end, device = self._ends[victim], self.pair.device
        assert device
        with device.fault(fault, end.number):
            end.node.run(end.command(PROBE), PROBE_TIMEOUT)
            if recovery is Recovery.FIND:
                place = end.node.check(f"readlink -f /sys/class/misc/uldma{end.device}/device")
                end.node.check(f"echo 1 >{place.strip()}/remove && ! test -e {end.path}")
        if recovery is Recovery.FIND:
            end.node.check(f"echo 1 >/sys/bus/pci/rescan && test -c {end.path}")
        if recovery in (Recovery.BIND, Recovery.BIND_BOTH):
            self._unbind(victim)
        if recovery is Recovery.BIND_BOTH:
            self._unbind(1 - victim)

    def _kill_node(self, victim: int) -> None:
        self._count(victim)
        self.pair.restart(self.pair.names[victim])
        self._start(victim)

    def _count(self, number: int) -> None:
        """Add what a node has received since it booted; raise if that was not what was sent."""
        port = STREAM_PORT + 1 - number
        node = self._ends[number].node
        bad = node.check(f"cat {WORK}/bad 2>/dev/null || true")
        if bad:
            raise NodesError(f"node {node.name} received what was not sent:\n{bad}")
        self.arrived[port] += int(node.check(f"cat {WORK}/good-{port} 2>/dev/null | wc -l"))

    def _finish(self) -> None:
        """Stop the streams; nothing may be left of them, and both must have carried something."""
        for number in range(2):
            self._count(number)
            for job in self._jobs[number]:
                job.end()
        leftovers.check(self.pair)
        for end in self._ends:
            self._expect_nothing(end)
        violations = self._count_violations()
        if violations != self._violations:
            raise NodesError(f"peers broke the rules: {self._violations} times, then {violations}")
        for number in range(2):
            if not self.arrived[STREAM_PORT + number]:
                raise NodesError(f"nothing has arrived by stream {number}")
        self.pair.check_logs()

    def _count_violations(self) -> list[int]:
        """How often each end has seen its peer break the rules."""
        here, there = self._ends
        return [end.peer(peer)["violations"] for end, peer in ((here, there), (there, here))]

    def _expect_nothing(self, end: Endpoint) -> None:
        """Raise if the device says that anything is in use."""

        def unused() -> bool:
            info = end.info()
            return not any(info[what] for what in COUNTERS)

        wait_until(unused, END_TIMEOUT, f"{end.name}: nothing left of {', '.join(COUNTERS)}")

    def summary(self) -> str:
        """What was done, for people."""
        kinds = ", ".join(f"{self.kills[kind]} {kind}" for kind in Kind)
        return (
            f"{self.kills.total()} kills ({kinds}); {self.arrived.total()} files of "
            f"{STREAM_BYTES >> 20} MiB arrived intact in the streams; the link came back within "
            f"{self.slowest:.1f} s each time"
        )
