# SPDX-License-Identifier: GPL-2.0
"""Three nodes that everything joins at once: adapter, ivshmem, and each with itself."""

import json
import re

from .. import endpoints, network
from ..agent import Job
from ..cluster import LOOPBACK_NODES, Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..module import reload
from ..network import ping
from ..qemu import Backend
from ..streams import LIMIT, FileTransfer, discard_stream, send_file, send_files_each_way
from ..topologies import THREE
from .registry import case_of, expect

PORT = 760
# Where uldma_conn_peer listens, and the attacker knocks.
SERVED = 7000
SIZE = 4 << 20
# Long enough to be on its way while a node goes.
LONG = 32 << 20
START_TIMEOUT = 30.0
PROGRAM_TIMEOUT = 240.0
# Longer than the asking of the others takes.
FLOOD_SECONDS = 60
# In which the others exchange something at least once; the attack takes its own time besides.
TRESPASS_SECONDS = 10
# Exit status of `uldma` for a name that the peer does not have.
TIMED_OUT = 4
SHARED = (Backend.ADAPTER, Backend.IVSHMEM)


@case_of(THREE)
def all_backends_are_there(pair: Cluster) -> None:
    """One module drives all kinds of devices of a node at the same time."""
    for backend in Backend:
        found = endpoints.find(pair, backend)
        each = LOOPBACK_NODES if backend is Backend.LOOPBACK else 1
        expect(len(found) == each * len(pair.nodes), f"{backend}: {found}")
        for node in pair.nodes.values():
            own = [end for end in found if end.node is node]
            expect(len(own) == each, f"{backend}: node {node.name} has {own}")


@case_of(THREE)
def every_two_exchange_data(pair: Cluster) -> None:
    """All nodes send to all others at the same time, by either device."""
    for backend in SHARED:
        found = endpoints.find(pair, backend)
        endpoints.wait_up(found)
        send_files_each_way(found, PORT, SIZE)


@case_of(THREE)
def backends_do_not_disturb_each_other(pair: Cluster) -> None:
    """Data crosses by all devices at the same time."""
    joined = [endpoints.find(pair, backend) for backend in SHARED]
    alone = [end for end in endpoints.find(pair, Backend.LOOPBACK) if end.node is pair.a]
    transfers = []
    for number, (here, there, *_) in enumerate((*joined, alone)):
        endpoints.wait_up((here, there))
        transfers.append(FileTransfer.start(here, there, PORT + number, SIZE))
    for transfer in transfers:
        transfer.finish()


@case_of(THREE)
def one_process_has_two_devices(pair: Cluster) -> None:
    """Its pages are pinned once; the driver is unbound from one device while the other works."""
    ends = [endpoints.find(pair, backend)[0] for backend in SHARED]
    for first, second in (ends, ends[::-1]):
        devices = f"ULDMA_DEVICE={first.path} ULDMA_DEVICE2={second.path}"
        result = pair.a.run(f"{devices} /kselftest/uldma/uldma_devices", PROGRAM_TIMEOUT)
        expect(result.rc == 0, f"{devices}: {result.stdout}{result.stderr}")
    for backend in SHARED:
        endpoints.wait_up(endpoints.find(pair, backend))


@case_of(THREE)
def named_peers_only(pair: Cluster) -> None:
    """A node that is given names of peers begins sessions with these, and no others."""
    a, b, c = endpoints.find(pair, Backend.ADAPTER)
    endpoints.wait_up((a, b, c))
    try:
        reload(pair.a, f"link_peers={1 << b.number}")
        endpoints.wait_up((a, b))
        endpoints.wait_up((b, c))
        send_file(a, b, PORT, SIZE)
        unnamed = a.peer(c)
        expect(unnamed["link"] != "up" and unnamed["generation"] == 0, f"{unnamed}")
        reload(pair.a, f"link_peers={1 << b.number | 1 << c.number}")
        endpoints.wait_up((a, b, c))
        send_file(c, a, PORT, SIZE)
    finally:
        reload(pair.a)
    endpoints.wait_up((a, b, c))


@case_of(THREE)
def exports_are_for_the_node_they_name(pair: Cluster) -> None:
    """A third node that knows the name of an export finds it only if it is for all (C-034)."""
    a, b, c = endpoints.find(pair, Backend.ADAPTER)
    endpoints.wait_up((a, b, c))
    for options, importers in ((f"--to {b.number}", {b}), (f"--to {c.number}", {c}), ("", {b, c})):
        job = a.spawn(f"export for-one --size 4K --access read-write {options}")
        try:
            job.wait_output("exporting", START_TIMEOUT)
            added = 0
            for end in (b, c, b, c):
                command = f"atomic for-one --node {a.number} --add 1 --json --timeout 2"
                result = end.node.run(end.command(command), START_TIMEOUT)
                what = f"{end.name}, {options}: exit {result.rc}\n{result.stdout}{result.stderr}"
                if end not in importers:
                    expect(result.rc == TIMED_OUT, what)
                    continue
                expect(result.rc == 0 and json.loads(result.stdout)["before"] == added, what)
                added += 1
            expect(added == 2 * len(importers), f"{options}: {added} additions")
        finally:
            job.end()


@case_of(THREE)
def peer_that_takes_nothing(pair: Cluster) -> None:
    """A node asks and takes no answer; the answers to the other are not behind those to it."""
    joined = [endpoints.find(pair, backend) for backend in SHARED]
    for found in joined:
        endpoints.wait_up(found)
    again = [c.unbind() for _, _, c in joined]
    attacker = pair.c.spawn(
        "cd /kselftest/uldma && ./uldma_hostile --nodes 3 "
        f"--victim {joined[0][0].number} --time {FLOOD_SECONDS} takes-nothing"
    )
    try:
        attacker.wait_output("flooding", START_TIMEOUT)
        for a, b, _ in joined:
            result = b.node.run(b.command(f"connect {a.number} {PORT} </dev/null"), START_TIMEOUT)
            expect("no process listens" in result.stderr, f"{b.name} was not refused: {result}")
        expect(attacker.running, f"the flood was over before: {attacker.text('out')}")
    finally:
        attacker.end()
        for command in again:
            pair.c.check(command)
    for found in joined:
        endpoints.wait_up(found)


@case_of(THREE)
def peer_that_connects_to_all(pair: Cluster) -> None:
    """A node fills the backlog of a program that accepts nobody; the other one still finds room."""
    joined = [endpoints.find(pair, backend) for backend in SHARED]
    for found in joined:
        endpoints.wait_up(found)
    again = [c.unbind() for _, _, c in joined]
    a, b, _ = joined[0]
    jobs = []
    try:
        # Serves one connection at a time, and that of the flood never ends.
        server = a.node.spawn(f"ULDMA_DEVICE={a.path} /kselftest/uldma/uldma_conn_peer serve")
        jobs.append(server)
        server.wait_output("ready", START_TIMEOUT)
        attacker = pair.c.spawn(
            "cd /kselftest/uldma && ./uldma_hostile --nodes 3 "
            f"--victim {a.number} --time {FLOOD_SECONDS} connect-flood"
        )
        jobs.append(attacker)
        attacker.wait_output("port is full", START_TIMEOUT)
        expect(a.info()["user"]["connections"] > 0, "no connection was made")
        command = b.command(f"connect {a.number} {SERVED} --timeout 1 </dev/null")
        result = b.node.run(command, START_TIMEOUT)
        expect("no process listens" not in result.stderr, f"{b.name} was refused: {result}")
        expect(attacker.running, f"the flood was over before: {attacker.text('out')}")
    finally:
        for job in jobs:
            job.end()
        for command in again:
            pair.c.check(command)
    for found in joined:
        endpoints.wait_up(found)


@case_of(THREE)
def trespassers_get_nothing(pair: Cluster) -> None:
    """A node reads and writes what two others write for each other, which go on; it gets nothing.

    By ivshmem, which lets every node reach all of the window, the same node reads it all: so the
    attack is one.
    """
    joined = {backend: endpoints.find(pair, backend) for backend in SHARED}
    for found in joined.values():
        endpoints.wait_up(found)
    interfaces = network.up(joined[Backend.ADAPTER][:2])
    again = [c.unbind() for _, _, c in joined.values()]
    try:
        a, b, _ = joined[Backend.ADAPTER]
        before = a.peer(b)["generation"]
        attacker = _trespass(pair, a, TRESPASS_SECONDS)
        attacker.wait_output("trespass", START_TIMEOUT)
        rounds = 0
        while attacker.running:
            send_file(a, b, PORT, SIZE, "--ring", "--once --ring")
            send_file(b, a, PORT + 1, SIZE)
            ping(interfaces[0], interfaces[1].address, "-s 1400")
            rounds += 1
        result = attacker.wait(START_TIMEOUT)
        expect("0 words of others were read, 0 written" in result.stdout, f"{result}")
        expect(result.rc == 0 and rounds > 0, f"{rounds} rounds, {result}")
        expect(a.peer(b)["generation"] == before, f"another session with {b.name}: {a.peer(b)}")
        result = _trespass(pair, joined[Backend.IVSHMEM][0], 0, "--ivshmem").wait(START_TIMEOUT)
        said = re.search(r"(\d+) words of others were read, 0 written", result.stdout)
        expect(said is not None and int(said[1]) > 0, f"ivshmem shows nothing: {result}")
        expect(result.rc == 1, f"{result}")
    finally:
        for command in again:
            pair.c.check(command)
    for ends in joined.values():
        endpoints.wait_up(ends)


def _trespass(pair: Cluster, victim: Endpoint, seconds: int, options: str = "") -> Job:
    return pair.c.spawn(
        f"cd /kselftest/uldma && ./uldma_hostile --nodes 3 --victim {victim.number} "
        f"--time {seconds} {options} trespass"
    )


@case_of(THREE)
def two_go_on_without_the_third(pair: Cluster) -> None:
    """A node is lost; its peers are told, and what the others send each other arrives."""
    joined = [endpoints.find(pair, backend) for backend in SHARED]
    for found in joined:
        endpoints.wait_up(found)
    transfers = []
    told = []
    for number, (a, b, c) in enumerate(joined):
        port = PORT + 10 * number
        reader = discard_stream(c, port + 1)
        told.append(b.spawn(f"connect {c.number} {port + 1} --wait {LIMIT} </dev/zero"))
        reader.wait_output("begun", START_TIMEOUT)
        transfers.append(FileTransfer.start(a, b, port, LONG))
    pair.c.kill()
    for job in told:
        expect(job.wait(LOSS_TIMEOUT).rc != 0, f"no error after the loss: {job.command}")
    for transfer in transfers:
        transfer.finish()
    pair.revive("c")
    for backend in SHARED:
        a, _, c = found = endpoints.find(pair, backend)
        endpoints.wait_up(found)
        send_file(c, a, PORT, SIZE)
