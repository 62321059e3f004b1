# SPDX-License-Identifier: GPL-2.0
"""Owners of memory that nothing pins, while they are killed, stopped or short, and missed."""

import errno
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..qemu import Backend
from ..streams import send_file
from ..topologies import THREE
from .registry import case, case_of, expect

PROGRAM = "/kselftest/uldma/uldma_misses"
MIB = 1 << 20
PORT = 790
SIZE = MIB
TIMEOUT = 60.0
# Of two owners on one node.
NAME, OTHER_NAME = 3000, 6000
# How transfers to a page that is missing end.
AT_ONCE, LOOK_UP, PAGE_IN = range(3)
# How a read has ended: what the owner has written was there, or a page that nobody had touched; an
# address without memory, or no page within the limit.
OK, ZEROES = 0, 1000
NO_MAPPING, NOT_LOCKED = 21, 22
# How accesses to what has ended do: on their way (it is revoked), or when they are to begin.
ENDED = {24, -errno.EACCES}
# Microseconds that are waited to the end, and those that are not.
SHORT, LONG = 100_000, 8_388_608
GROUPS = "/tmp/misses"
# Of the other process, none of which are touched.
FRESH = 32


class Group:
    """Processes of a node whose memory is limited, or that are frozen."""

    def __init__(self, end: Endpoint, limits: dict[str, str]) -> None:
        self._node = end.node
        self._path = f"{GROUPS}/group"
        self._node.check(
            f"mkdir -p {GROUPS} && mount -t cgroup2 none {GROUPS} && "
            f"echo +memory >{GROUPS}/cgroup.subtree_control && mkdir {self._path}"
        )
        for name, value in limits.items():
            self.put(name, value)

    @property
    def enter(self) -> str:
        """What a shell does to be part of it."""
        return f"echo 0 >{self._path}/cgroup.procs; "

    def put(self, name: str, value: str) -> None:
        """Write to one of its files."""
        self._node.check(f"echo {value} >{self._path}/{name}")

    def count(self, file: str, name: str) -> int:
        """Return a number of one of its files."""
        lines = self._node.check(f"cat {self._path}/{file}").splitlines()
        return int(dict(line.split() for line in lines)[name])

    def end(self) -> None:
        """Remove it; none of its processes is left."""
        self._node.run(f"rmdir {self._path}; umount {GROUPS}; rmdir {GROUPS}")


@contextmanager
def group(end: Endpoint, **limits: str) -> Iterator[Group]:
    """Have a group with these limits: memory_max="1M" is one of memory.max."""
    it = Group(end, {name.replace("_", "."): value for name, value in limits.items()})
    try:
        yield it
    finally:
        it.end()


# What is done with an owner.
Act = Callable[[], None]


class Owner:
    """A process that has memory for others: `filled` of its pages have been touched."""

    def __init__(self, end: Endpoint, name: int, pages: int, filled: int, limit: int) -> None:
        self.end_point = end
        self.name = name
        self.pages = pages
        self._fifo = f"/tmp/misses-{name}"
        self._arguments = f"own {self._fifo} {name} {pages} {filled} {limit}"
        self._job: Job | None = None

    @contextmanager
    def running(self, enter: str = "", options: str = "") -> Iterator[Job]:
        """Start it, and end it afterwards."""
        end = self.end_point
        end.node.check(f"rm -f {self._fifo}; mkfifo {self._fifo}")
        start = f"{enter}ULDMA_DEVICE={end.path} exec {PROGRAM} {self._arguments} {options}"
        job = end.node.spawn(start)
        try:
            job.wait_output("ready", TIMEOUT)
            expect(job.running, f"no owner: {job.text('err')}")
            yield job
        finally:
            job.end()

    def grow(self) -> None:
        """Let it take all the memory that there is."""
        self.end_point.node.check(f"echo >{self._fifo}")

    def read(
        self, peer: Endpoint, way: int, first: int, count: int, verb: str = "read"
    ) -> list[int]:
        """Have a peer read pages, or write them, one at a time; how each has ended."""
        arguments = f"{verb} {self.end_point.number} {self.name} {way} {first} {count}"
        command = f"ULDMA_DEVICE={peer.path} {PROGRAM} {arguments}"
        return [int(word) for word in peer.node.check(command, 4 * TIMEOUT).split()]

    @contextmanager
    def used_by(self, peer: Endpoint, verb: str, begun: str) -> Iterator[Job]:
        """Have a peer do something with the memory until it ends; from when it has begun."""
        arguments = f"{verb} {self.end_point.number} {self.name}"
        job = peer.node.spawn(f"ULDMA_DEVICE={peer.path} exec {PROGRAM} {arguments}")
        try:
            job.wait_output(begun, 4 * TIMEOUT)
            expect(job.running, f"{verb} has ended: {job.text()}{job.text('err')}")
            yield job
        finally:
            job.end()


def count(end: Endpoint, name: str) -> int:
    """Return a counter of the driver of what is optimistic."""
    lines = end.node.check(f"cat /sys/kernel/debug/uldma{end.device}/optimistic").splitlines()
    return int(dict(line.rsplit(maxsplit=1) for line in lines)[name])


@contextmanager
def ends_as_before(a: Endpoint, b: Endpoint) -> Iterator[None]:
    """The session of two nodes lives on, and no page stays entered at the first one."""
    endpoints.wait_up((a, b))
    before = a.peer(b)["generation"]
    entered = count(a, "entered")
    yield
    after = a.peer(b)
    expect(after["link"] == "up" and after["generation"] == before, f"another session: {after}")
    wait_until(lambda: count(a, "entered") <= entered, TIMEOUT, "no page is entered any more")
    send_file(b, a, PORT, SIZE)


def expect_fresh(owner: Owner, peer: Endpoint, first: int) -> None:
    """Fail unless pages of an owner come that nobody has touched."""
    found = owner.read(peer, PAGE_IN, first, FRESH)
    expect(found == FRESH * [ZEROES], f"pages of the other process: {found}")


@case
def killed_for_its_memory(pair: Cluster) -> None:
    """The owner takes too much and is killed while a peer uses its pages: only these end."""
    a, b = endpoints.of(pair)
    owner = Owner(a, NAME, 256, 256, LONG)
    limits = {"memory_max": "16M", "memory_swap_max": "0"}
    with ends_as_before(a, b), group(a, **limits) as limited:
        with owner.running(limited.enter) as job, owner.used_by(b, "use", "using") as use:
            owner.grow()
            result = job.wait(TIMEOUT)
            expect(result.rc == 128 + signal.SIGKILL, f"the owner has ended: {result}")
            used = use.wait(TIMEOUT)
        expect(limited.count("memory.events", "oom_kill") == 1, "it was another who killed it")
        expect(used.rc == 0, f"exit {used.rc}: {used.stdout}{used.stderr}")
        ways = {int(word) for word in used.stdout.split()[-3:]}
        expect(ways <= ENDED, f"accesses to what has ended: {used.stdout}")

        def is_free() -> bool:
            return limited.count("memory.stat", "anon") == 0

        wait_until(is_free, TIMEOUT, "the pages are free")


def expect_served(owner: Owner, other: Owner, b: Endpoint, stop: Act, go_on: Act) -> None:
    """Fail if transfers to the pages of an owner that stands still do not end, or others' do not.

    It has touched eight pages, and brings the rest when it is asked.
    """

    def comes(first: int, pages: int) -> bool:
        return owner.read(b, PAGE_IN, first, pages) == pages * [OK]

    for first in range(8, owner.pages, 8):
        wait_until(partial(comes, first, 1), TIMEOUT, "the owner brings a page")
        stop()
        found = owner.read(b, LOOK_UP, 0, 8)
        expect(found == 8 * [OK], f"pages that are there: {found}")
        found = owner.read(b, PAGE_IN, first + 1, 3)
        expect(found == 3 * [NOT_LOCKED], f"pages that do not come: {found}")
        expect_fresh(other, b, first)
        found = owner.read(b, PAGE_IN, first + 4, 1)
        expect(found == [NOT_LOCKED], f"the owner goes on: {found}")
        go_on()
        wait_until(partial(comes, first + 1, 4), TIMEOUT, "late pages are there")


@case
def stopped_while_transfers_wait(pair: Cluster) -> None:
    """An owner that handles its faults is stopped: transfers end in time, and others' go on."""
    a, b = endpoints.of(pair)
    owner, other = Owner(a, NAME, 24, 8, SHORT), Owner(a, OTHER_NAME, 24 * FRESH, 0, LONG)
    with ends_as_before(a, b), other.running(), owner.running(options="serve") as job:
        expect_served(
            owner,
            other,
            b,
            lambda: job.kill(signal.SIGSTOP),
            lambda: job.kill(signal.SIGCONT),
        )


@case
def frozen_while_transfers_wait(pair: Cluster) -> None:
    """The same, by the freezer of its control group."""
    a, b = endpoints.of(pair)
    owner, other = Owner(a, NAME, 24, 8, SHORT), Owner(a, OTHER_NAME, 24 * FRESH, 0, LONG)
    with ends_as_before(a, b), group(a) as frozen, other.running():

        def freeze(wanted: int) -> None:
            def is_so() -> bool:
                return frozen.count("cgroup.events", "frozen") == wanted

            frozen.put("cgroup.freeze", str(wanted))
            wait_until(is_so, TIMEOUT, f"the owner is frozen: {wanted}")

        with owner.running(frozen.enter, "serve"):
            expect_served(owner, other, b, lambda: freeze(1), lambda: freeze(0))


@case
def at_its_limit_while_it_is_used(pair: Cluster) -> None:
    """An owner has less memory than pages: a peer finds in each what it had, and others go on."""
    a, b = endpoints.of(pair)
    owner, other = Owner(a, NAME, 1024, 1024, LONG), Owner(a, OTHER_NAME, 4 * FRESH, 0, LONG)
    with ends_as_before(a, b), group(a, memory_max="2M") as limited, other.running():
        with owner.running(limited.enter), owner.used_by(b, "use", "using") as use:

            def meets_limit(before: int) -> bool:
                return limited.count("memory.events", "max") > before

            for first in range(0, 4 * FRESH, FRESH):
                before = limited.count("memory.events", "max")
                expect_fresh(other, b, first)
                what = "the group meets its limit"
                wait_until(partial(meets_limit, before), TIMEOUT, what)
            expect(use.running, f"the peer does not use it any more: {use.text()}")
        expect(limited.count("memory.events", "oom_kill") == 0, "the owner was killed")


@case
def above_its_limit_while_pages_come(pair: Cluster) -> None:
    """An owner is to have less memory than a peer brings: pages come all the same, and others'."""
    a, b = endpoints.of(pair)
    owner, other = Owner(a, NAME, 1024, 0, LONG), Owner(a, OTHER_NAME, FRESH, 0, LONG)
    limits = {"memory_high": "1M", "memory_swap_max": "0"}
    with (
        ends_as_before(a, b),
        group(a, **limits) as limited,
        other.running(),
        owner.running(limited.enter),
    ):
        found = owner.read(b, PAGE_IN, 0, 1024, "write")
        expect(set(found) == {OK}, f"pages above the limit: {found}")
        expect(limited.count("memory.stat", "anon") > MIB, "the group is within its limit")
        expect_fresh(other, b, 0)
        found = owner.read(b, PAGE_IN, 0, 1024)
        expect(set(found) == {OK}, f"pages that were written: {found}")


@case
def killed_by_pages_that_come(pair: Cluster) -> None:
    """A peer has an owner page in more than its group may have, which kills it alone."""
    a, b = endpoints.of(pair)
    owner, other = Owner(a, NAME, 1024, 0, LONG), Owner(a, OTHER_NAME, FRESH, 0, LONG)
    limits = {"memory_max": "1M", "memory_swap_max": "0"}
    with ends_as_before(a, b), group(a, **limits) as limited, other.running():
        with owner.running(limited.enter) as job:
            found = owner.read(b, PAGE_IN, 0, 1024, "write")
            result = job.wait(TIMEOUT)
            expect(result.rc == 128 + signal.SIGKILL, f"the owner has ended: {result}")
        expect(limited.count("memory.events", "oom_kill") == 1, "it was another who killed it")
        ends = set(found)
        expect(ends <= {OK, NO_MAPPING, NOT_LOCKED, *ENDED}, f"writes have ended: {ends}")
        expect_fresh(other, b, 0)


@case_of(THREE)
def flood_of_misses(pair: Cluster) -> None:
    """A node misses pages all the time; what another one misses comes, also of the same process."""
    a, b, c = endpoints.find(pair, Backend.ADAPTER)
    endpoints.wait_up((a, b, c))
    owner, other = (Owner(a, name, 16 * FRESH, 0, LONG) for name in (NAME, OTHER_NAME))
    with owner.running(), other.running(), owner.used_by(c, "flood", "flooding") as flood:

        def goes_on(before: int) -> bool:
            return count(a, "requests") > before + FRESH

        for first in range(0, 8 * FRESH, FRESH):
            for it in (other, owner):
                before = count(a, "requests")
                expect_fresh(it, b, first)
                wait_until(partial(goes_on, before), TIMEOUT, "the flood goes on")
            expect(flood.running, f"the flood has ended: {flood.text('err')}")
