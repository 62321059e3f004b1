# SPDX-License-Identifier: GPL-2.0
"""The link: it comes up by itself, whatever becomes of a peer, and carries connections."""

from collections.abc import Callable

from .. import broadcasts, endpoints, handlers
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..module import reload
from ..streams import send_file
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case, case_of, expect

PORT = 700
FILE = 16 << 20
SHORT = 1 << 20
# The driver's limit for what a wake-up costs, in ns.
LONGEST_WAKEUP = 20_000_000
CONNECTIONS = 2
# How the module can be told to talk over the link.
TALKING = ("link_poll_us=1000", "link_slots=1")

# The threads of the module's queues that work where there is no memory for another thread.
RESCUERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep '^kworker/R-uldma' | sort"


def generation(here: Endpoint, there: Endpoint) -> int:
    """How often the link to the other end has come up."""
    return int(here.peer(there)["generation"])


def comes_back(pair: Cluster, lose: Callable[[], None]) -> None:
    """Lose the peer, b, and get it back; the link comes up anew, and carries data both ways."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = generation(a, b)
    lose()
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    expect(generation(a, b) > before, f"{a.name} has not noticed that the peer was gone")
    send_file(a, b, PORT, SHORT)
    send_file(b, a, PORT, SHORT)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def comes_up(pair: Cluster) -> None:
    """Every end reaches the other, and both speak the same."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    here, there = a.peer(b), b.peer(a)
    for what in ("version", "features"):
        expect(here[what] == there[what], f"{what} differs: {here}, {there}")
    for end in (a, b):
        info = end.info()
        expect(info["node"] == end.number, f"{end.name} is another node: {info}")
        expect(info["backend"] == pair.config.backends[0], f"{end.name}: {info}")


@case
def heartbeat_needs_no_new_thread(pair: Cluster) -> None:
    """Where there is no memory for a thread, the heartbeat and the worker have one each."""
    for node in pair.nodes.values():
        found = node.check(RESCUERS).split()
        wanted = [f"kworker/R-uldma-{name}" for name in ("heartbeat", "progress")]
        expect(found == wanted, f"node {node.name} has these threads: {found}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def cost_of_a_doorbell_is_measured(pair: Cluster) -> None:
    """While nothing else is to be done, each driver measures it, with some messages in all."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    endpoints.wait_measured((a, b))
    sent = [int(here.peer(there)["sent"]) for here, there in ((a, b), (b, a))]
    for end in (a, b):
        found = end.intake()
        for what in ("doorbell_ns", "completion_ns"):
            expect(0 < found[what] <= LONGEST_WAKEUP, f"{end.name}: {what}: {found}")
    again = [int(here.peer(there)["sent"]) for here, there in ((a, b), (b, a))]
    expect(sent == again, f"the measurement is not over: {sent}, {again}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def cost_of_a_doorbell_is_followed(pair: Cluster) -> None:
    """Messages of programs show it to the end that rings a sleeping peer and gets an answer."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    endpoints.wait_measured((a, b))
    for here, there in ((a, b), (b, a)):
        before = here.intake()["doorbell_followed"]
        # Nodes can be awake when a program connects, but hardly each time.
        for _ in range(CONNECTIONS):
            send_file(here, there, PORT, SHORT)
        found = here.intake()
        expect(found["doorbell_followed"] > before, f"{here.name} does not follow: {found}")
        expect(0 < found["doorbell_ns"] <= LONGEST_WAKEUP, f"{here.name}: {found}")


@case
def cost_of_a_doorbell_can_be_given(pair: Cluster) -> None:
    """The administrator's cost is for all wake-ups, and peers are not asked."""
    reload(pair.a, "wakeup_us=1234")
    try:
        a, b = endpoints.of(pair)
        endpoints.wait_up((a, b))
        found = a.intake()
        for what in ("doorbell_ns", "completion_ns"):
            expect(found[what] == 1_234_000, f"{what}: {found}")
        send_file(a, b, PORT, SHORT)
        expect(a.intake()["doorbell_ns"] == 1_234_000, f"followed: {a.intake()}")
    finally:
        reload(pair.a)


@case_of(USUAL, IVSHMEM)
def survives_module_reload(pair: Cluster) -> None:
    """The peer's module goes and comes."""
    comes_back(pair, lambda: reload(pair.b))


@case_of(USUAL, IVSHMEM)
def survives_unbind(pair: Cluster) -> None:
    """The peer's driver is unbound and bound again."""

    def rebind() -> None:
        _, b = endpoints.of(pair)
        b.node.check(b.unbind())

    comes_back(pair, rebind)


@case_of(USUAL, IVSHMEM)
def survives_power_failure(pair: Cluster) -> None:
    """The peer's machine is gone, without a word, and another boots in its place."""
    comes_back(pair, lambda: pair.restart("b"))


@case_of(USUAL, IVSHMEM)
def survives_reset(pair: Cluster) -> None:
    """The peer's machine is reset while its driver runs."""
    comes_back(pair, pair.b.reset)


@case_of(USUAL)
def survives_pulled_cable(pair: Cluster) -> None:
    """The hardware says that the link is down, and later that it is up."""
    device = pair.device
    assert device
    a, b = endpoints.of(pair)

    def pull() -> None:
        device.control("link", up=False)
        try:
            for here, there in ((a, b), (b, a)):
                endpoints.wait_down(here, there)
        finally:
            device.control("link", up=True)

    comes_back(pair, pull)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def files_arrive_unchanged(pair: Cluster) -> None:
    """Random bytes, pushed by the sender."""
    a, b = endpoints.of(pair)
    send_file(a, b, PORT, FILE)
    send_file(b, a, PORT, SHORT)


@case_of(USUAL, LOOPBACK)
def files_can_be_pulled(pair: Cluster) -> None:
    """Random bytes, pulled by the receiver."""
    a, b = endpoints.of(pair)
    send_file(a, b, PORT, FILE, "--pull")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def talks_as_it_is_told(pair: Cluster) -> None:
    """Without interrupts, or one message at a time as by a mailbox, data arrives as well."""
    for options in TALKING:
        try:
            for node in pair.nodes.values():
                reload(node, options)
            a, b = endpoints.of(pair)
            endpoints.wait_up((a, b))
            send_file(a, b, PORT, FILE)
            if options.startswith("link_slots"):
                expect(a.peer(b)["slots"] == 1, f"more than a mailbox: {a.peer(b)}")
        finally:
            for node in pair.nodes.values():
                reload(node)


@case
def lost_doorbells_delay(pair: Cluster) -> None:
    """Where doorbells are lost, messages are found when their time has come."""
    assert pair.device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    pair.device.control("fault", kind="drop-doorbell", on=True)
    before = a.peer(b), b.peer(a)
    try:
        send_file(a, b, PORT, SHORT)
        send_file(b, a, PORT, SHORT)
        after = a.peer(b), b.peer(a)
    finally:
        pair.device.control("fault", kind="drop-doorbell", on=False)
    for old, new in zip(before, after, strict=True):
        expect(old["interrupts"] == new["interrupts"], f"doorbells were not lost: {old}, {new}")
        expect(old["generation"] == new["generation"], f"the link was lost: {old}, {new}")


@case
def storm_of_doorbells(pair: Cluster) -> None:
    """A doorbell that never stops is counted, and leaves the node enough time."""
    assert pair.device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = a.peer(b)
    pair.device.control("fault", kind="storm", on=True, node=a.number)
    try:
        send_file(a, b, PORT, SHORT)
        send_file(b, a, PORT, SHORT)
        during = a.peer(b)
    finally:
        pair.device.control("fault", kind="storm", on=False, node=a.number)
    grown = {what: during[what] - before[what] for what in ("interrupts", "received")}
    # A doorbell is rung for one message, or for several.
    expect(grown["interrupts"] > grown["received"], f"no storm: {grown}")
    expect(during["generation"] == before["generation"], "the link was lost in the storm")


@case
def handlers_take_time(pair: Cluster) -> None:
    """The time of interrupt handlers and of the progress worker is measured."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    found = handlers.traced(a, b)
    for name in ("uldma-event", handlers.WORKER):
        expect(min(found.get(name, [0])) > 0, f"{name}: {sorted(found)}")


@case
def broadcasts_move_data_once(pair: Cluster) -> None:
    """One transfer reaches two processes that share a segment; by connections it takes two."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    found = {figure.name: figure.value for figure in broadcasts.measure(a, b)}
    for size in ("4k", "4m"):
        expect(found[f"broadcast.shared.{size}.copies"] == 1, f"{found}")
        expect(found[f"broadcast.two.{size}.copies"] == 2, f"{found}")
