# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of network drivers, unmodified, with the other node as the remote."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .. import driver_tests, endpoints, interrupts, network
from ..cluster import Cluster
from ..kernel import DEBUG
from ..ktap import TestCounts, without_successes
from ..network import Interface, Server
from .registry import Skip, case, expect

TIMEOUT = 400.0
# With the choice of their tests, where not all of them apply: testing.rst says why.
PROGRAMS = (
    "ping.py",
    "stats.py",
    "napi_id.py",
    "queues.py -t get_queues -t check_down",
    "hw/irq.py -t check_irqs_reported",
)
DIRECTIONS = ("rx", "tx")
# The queue for groups, and that of the only peer.
QUEUES = (0, 1)
# The interrupts whose handlers have the queues polled: by the vector of the network, or, where the
# kernel hands out no third vector, by that of the control channel.
HANDLERS = ("uldma-network", "uldma-control")
# The network by which the tests control the remote, which is not the one that they test.
REMOTE = "10.0.0.2"
SSHD = "exec /usr/sbin/sshd -D -e -f /dev/null -h /tmp/host -o PidFile=none -o StrictModes=no"
# The tests run a command by ssh each time: all go over one connection.
SSH_CONFIG = """Host *
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  ControlMaster auto
  ControlPath /tmp/control-%h
  ControlPersist yes
"""


def share_key(pair: Cluster) -> None:
    """Let root of node A become root of node B without being asked."""
    for node, file in ((pair.a, "/root/.ssh/id_ed25519"), (pair.b, "/tmp/host")):
        node.check("mkdir -p -m 700 /root/.ssh && mkdir -p -m 755 /run/sshd")
        node.check(f"ssh-keygen -q -t ed25519 -N '' -f {file}")
    pair.a.check(f"cat >/root/.ssh/config <<'END'\n{SSH_CONFIG}END")
    key = pair.a.check("cat /root/.ssh/id_ed25519.pub").strip()
    pair.b.check(f"echo '{key}' >/root/.ssh/authorized_keys")


@contextmanager
def nodes_with_python(pair: Cluster) -> Iterator[tuple[Cluster, Interface, Interface]]:
    """Nodes of their own, and their interfaces, which are up."""
    if DEBUG:
        raise Skip("Python takes the debug kernel too long")
    config = replace(pair.config, archives=(driver_tests.archive(),))
    with Cluster(f"{pair.scenario}-drivers", config) as own:
        ends = endpoints.of(own)
        endpoints.wait_up(ends)
        a, b = network.up(ends)
        yield own, a, b
        own.check_logs()


def run_program(here: Interface, there: Interface, program: str) -> None:
    """Run a test program of the kernel, with its options; none of its tests fails."""
    variables = (
        f"NETIF={here.name} LOCAL_V4={here.address} REMOTE_V4={there.address} "
        f"REMOTE_TYPE=ssh REMOTE_ARGS=root@{REMOTE}"
    )
    folder, _, file = f"{driver_tests.TESTS}/{program}".partition(" ")[0].rpartition("/")
    options = program.partition(" ")[2]
    result = here.run(f"cd {folder} && {variables} python3 ./{file} {options}", TIMEOUT)
    counts = TestCounts()
    count = counts.add_ktap(program, result.stdout)
    expect(
        count > 0 and not counts.failed,
        f"{program}: {without_successes(result.stdout)}{result.stderr}",
    )


def netdev(here: Interface, request: str, **attributes: object) -> list[dict[str, Any]]:
    """What the kernel answers to a dump request of the netdev family about an interface."""
    asked = json.dumps({"ifindex": int(here.attribute("ifindex")), **attributes})
    command = f"{driver_tests.NETLINK} --spec {driver_tests.NETDEV_FAMILY} --dump {request}"
    answer: list[dict[str, Any]] = json.loads(
        here.end.node.check(f"{command} --json '{asked}'", network.PROGRAM_TIMEOUT)
    )
    return answer


def interrupt_of_packets(here: Interface) -> int:
    """The interrupt that has queues polled: of the first handler of those that there are."""
    found = [interrupts.counts(here.end.node, name) for name in HANDLERS]
    [number] = next(filter(None, found))
    return number


def each_queue_has_a_napi_context(here: Interface) -> None:
    """Both directions of a queue have one context, which no other queue has, and its interrupt."""
    queues = {(it["type"], it["id"]): it["napi-id"] for it in netdev(here, "queue-get")}
    expected = {(way, number) for way in DIRECTIONS for number in QUEUES}
    expect(set(queues) == expected, f"other queues: {queues}")
    contexts = [{queues[way, number] for way in DIRECTIONS} for number in QUEUES]
    expect(all(len(ids) == 1 for ids in contexts), f"two contexts for one queue: {queues}")
    told = {it["id"]: it.get("irq") for it in netdev(here, "napi-get")}
    expect(set(told) == set.union(*contexts), f"{told}, {queues}")
    expect(len(told) == len(QUEUES), f"one context for two queues: {queues}")
    irq = interrupt_of_packets(here)
    expect(set(told.values()) == {irq}, f"{told} are not interrupt {irq}")


def packets_count_for_their_queue(here: Interface, there: Interface) -> None:
    """Those of a ping count in both directions of the queue of the peer."""

    def packets() -> dict[tuple[str, int], int]:
        found = netdev(here, "qstats-get", scope="queue")
        ways = [(it["queue-type"], it["queue-id"], it) for it in found]
        return {(way, number): it[f"{way}-packets"] for way, number, it in ways}

    before = packets()
    network.ping(here, there.address)
    after = packets()
    group, peer = QUEUES
    for way in DIRECTIONS:
        expect(after[way, peer] >= before[way, peer] + 3, f"{before}, {after}")
        # Those for groups count in the queues of the peers that get them.
        expect(after[way, group] == 0, f"{after}")


@case
def unmodified(pair: Cluster) -> None:
    """Netlink has the queues of the interface, their NAPI contexts and their counters; unmodified
    tests of the kernel pass.
    """
    with nodes_with_python(pair) as (own, a, b):
        each_queue_has_a_napi_context(a)
        packets_count_for_their_queue(a, b)
        share_key(own)
        with Server.start(b, SSHD, 22):
            own.a.check(f"ssh root@{REMOTE} true", network.PROGRAM_TIMEOUT)
            for program in PROGRAMS:
                run_program(a, b, program)
