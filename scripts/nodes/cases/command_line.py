# SPDX-License-Identifier: GPL-2.0
"""What `uldma` says, and which exit status it has, where something goes wrong between two ends."""

import json
from typing import Any

from .. import endpoints, network
from ..agent import Result
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..streams import LIMIT
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case, case_of, expect

PORT = 820
START_TIMEOUT = 30.0
END_TIMEOUT = 30.0
# Of `uldma`, for what is not going to happen.
BRIEFLY = "--timeout 1"
# The only one that a node has without a program for others; what is written there is in the log.
TERMINAL = "/dev/ttyS0"
# Bytes that are worth a bar.
FILE_BYTES = 16 << 20
# At one server, at once.
PINGS = 3
# More than any ring.
STREAM_BYTES = 1 << 20
# Exit status.
USAGE = 2
TIMED_OUT = 4
MISMATCH = 5
LOST = 6


def refused(end: Endpoint, arguments: str, status: int) -> dict[str, Any]:
    """Run `uldma`, which must fail with that status; the error that it tells."""
    return error_of(end.node.run(end.command(f"{arguments} --json </dev/null")), status)


def error_of(result: Result, status: int) -> dict[str, Any]:
    """The error that a command has told, which must have that status."""
    text = f"exit {result.rc} of {result.command}\n{result.stdout}{result.stderr}"
    expect(result.rc == status, text)
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert isinstance(error, dict)
    return error


def expect_words(text: str, *words: str) -> None:
    """Fail unless all of the words are in the text."""
    missing = [word for word in words if word not in text]
    expect(not missing, f"{missing} not in: {text}")


@case_of(LOOPBACK)
def waiting_in_vain_is_a_timeout(pair: Cluster) -> None:
    """`connect --wait` to a port at which no process listens."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    error = refused(a, f"connect {b.number} {PORT} --wait {BRIEFLY}", TIMED_OUT)
    expect(error["kind"] == "timeout", str(error))
    expect_words(error["message"], f"port {PORT} of node {b.number}")


@case_of(LOOPBACK)
def peers_that_cannot_be_are_explained(pair: Cluster) -> None:
    """The own node, and one that is not there, in every command that names a peer."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    commands = (
        f"connect {{}} {PORT}",
        f"connect {{}} {PORT} --ring",
        "ping --node {}",
        f"send-file /proc/version --port {PORT} --node {{}}",
    )
    for command in commands:
        error = refused(a, f"{command.format(a.number)} {BRIEFLY}", USAGE)
        expect_words(error["message"], f"node {a.number} is this node itself")
        expect_words(error["hint"], f"the peer is node {b.number}")
        error = refused(a, f"{command.format(7)} {BRIEFLY}", USAGE)
        expect_words(error["message"], "there is no node 7")
        expect_words(error["hint"], f"this is node {a.number}, the peer is node {b.number}")


@case
def words_come_back_in_messages(pair: Cluster) -> None:
    """What is not there in time is called as the user has called it."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    error = refused(a, f"atomic letters --add 1 {BRIEFLY}", TIMED_OUT)
    expect_words(error["message"], "region letters")


@case_of(LOOPBACK)
def missing_peers_are_told(pair: Cluster) -> None:
    """Both sides of a file and of a ping say what they have waited for."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    connection = f"no connection to port {PORT} within 1s"
    listener = f"no listener with room at port {PORT} of the peer within 1s"
    for command, missing in (
        (f"recv-file --port {PORT}", connection),
        (f"send-file /proc/version --port {PORT}", listener),
        (f"ping --serve --port {PORT}", connection),
        (f"ping --port {PORT}", listener),
    ):
        error = refused(a, f"{command} {BRIEFLY}", TIMED_OUT)
        expect(error["kind"] == "timeout", str(error))
        expect_words(error["message"], missing)


@case_of(LOOPBACK)
def peers_that_are_killed_are_told(pair: Cluster) -> None:
    """Both sides of a file end when the other one is killed; a server of pings has served it."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    # These say nothing of their own accord, or take what is said and do not answer.
    connect = f"sleep 600 | {a.command(f'connect {b.number} {PORT} --wait --ring')} {LIMIT}"
    for command, capacity, status in (("recv-file", "1M", LOST), ("ping --serve", "64K", 0)):
        waiting = b.spawn(f"{command} --port {PORT} --json {LIMIT}")
        other = a.node.spawn(f"{connect} --capacity {capacity}")
        try:
            wait_until(lambda: b.info()["connections"] > 0, START_TIMEOUT, "a connection")
            other.kill()
            result = waiting.wait(END_TIMEOUT)
            expect(result.rc == status, f"{result}")
        finally:
            other.end()
            waiting.end()
    listener = b.spawn(f"listen {PORT} --ring --capacity 1M {LIMIT} </dev/null")
    sender = a.spawn(f"send-file /proc/version --port {PORT} --json {LIMIT}")
    try:
        listener.wait_output("offer", START_TIMEOUT)
        listener.kill()
        expect(error_of(sender.wait(END_TIMEOUT), LOST)["kind"] == "peer", "not told")
    finally:
        listener.end()
        sender.end()


@case_of(LOOPBACK)
def rings_of_two_sizes_carry_a_stream(pair: Cluster) -> None:
    """Each side of a stream receives in a ring of its own size, whatever that of the other is."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"head -c {STREAM_BYTES} /dev/urandom >/tmp/sent")
    for here, there in (("16K", "256K"), ("256K", "16K")):
        command = f"listen {PORT} --ring --capacity {there} {LIMIT} </dev/null >/tmp/came"
        listener = b.spawn(command)
        try:
            options = f"--wait --ring --capacity {here} {LIMIT}"
            a.check(f"connect {b.number} {PORT} {options} </tmp/sent")
            expect(listener.wait(END_TIMEOUT).rc == 0, listener.text("err"))
        finally:
            listener.end()
        a.node.check("cmp /tmp/sent /tmp/came")


@case_of(LOOPBACK)
def pings_are_answered_in_turn(pair: Cluster) -> None:
    """Those that come while the server has another one wait, and it ends after so many."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    server = b.spawn(f"ping --serve --sessions {PINGS} --port {PORT} {LIMIT}")
    jobs = [a.spawn(f"ping --count 100 --port {PORT} {LIMIT}") for _ in range(PINGS)]
    try:
        for job in (*jobs, server):
            result = job.wait(END_TIMEOUT)
            expect(result.rc == 0, f"{result}")
    finally:
        for job in (*jobs, server):
            job.end()


@case_of(USUAL, IVSHMEM, LOOPBACK)
def a_ring_and_a_stream_do_not_join(pair: Cluster) -> None:
    """--ring on one side only: the side that connects fails at once, and the other one waits on."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    send = f"echo data | {a.command(f'connect {b.number} {PORT} --wait')} --json {LIMIT}"
    for wrong, right, of_listener in (
        ("--ring", "", ""),
        ("", "--ring", "--ring"),
        ("--ring", "", "--once"),
    ):
        listener = b.spawn(f"listen {PORT} --json {LIMIT} {of_listener} </dev/null >/tmp/came")
        client = a.node.spawn(f"{send} {wrong}")
        error = error_of(client.wait(END_TIMEOUT), MISMATCH)
        expect(error["kind"] == "mismatch", str(error))
        expect_words(error["message"], f"port {PORT} of node {b.number}", "another kind")
        expect_words(error["hint"], "--ring")
        expect(b.node.check("cat /tmp/came") == "", "something came")
        a.node.check(f"{send} {right}", END_TIMEOUT)
        result = listener.wait(END_TIMEOUT)
        expect(result.rc == 0 and b.node.check("cat /tmp/came") == "data\n", f"{result}")


@case
def stat_shows_all_processes(pair: Cluster) -> None:
    """What another process has, while it has it."""
    export = pair.a.spawn("exec uldma export shown --size 1M")
    try:
        export.wait_output("exporting", START_TIMEOUT)
        stat = json.loads(pair.a.check("uldma stat --json"))
        [open_file] = stat["open_files"]
        expect(open_file["command"] == "uldma", str(open_file))
        expect((open_file["regions"], open_file["region_bytes"]) == (1, 1 << 20), str(open_file))
        expect(stat["debugfs"]["usage"]["regions"]["used"] == 1, str(stat))
        words = pair.a.check("uldma stat")
        expect_words(words, f"process {open_file['pid']} (uldma)", "region bytes 1048576")
    finally:
        export.kill()
        export.wait(END_TIMEOUT)
    expect(json.loads(pair.a.check("uldma stat --json"))["open_files"] == [], "export is left")


@case
def stat_finds_files_by_number(pair: Cluster) -> None:
    """A file of the device that was opened by another path is found; and all files are seen."""
    numbers = "$((0x$(stat -c %t /dev/uldma0))) $((0x$(stat -c %T /dev/uldma0)))"
    pair.a.check(f"rm -f /run/other && mknod /run/other c {numbers}")
    holder = pair.a.spawn("exec 3</run/other; echo open; exec sleep 600")
    try:
        holder.wait_output("open", START_TIMEOUT)
        stat = json.loads(pair.a.check("uldma stat --json"))
        [open_file] = stat["open_files"]
        expect((open_file["command"], open_file["fd"]) == ("sleep", 3), str(open_file))
        expect(stat["all_files"] is True, str(stat))
        inside = pair.a.check("unshare -p -f -m --mount-proc uldma stat --json")
        stat = json.loads(inside)
        expect((stat["open_files"], stat["all_files"]) == ([], False), str(stat))
    finally:
        holder.end()
        pair.a.check("rm /run/other")


@case
def net_tells_of_other_namespaces(pair: Cluster) -> None:
    """An interface in another network namespace is not taken for none; its name does not matter."""
    [end, _] = endpoints.of(pair)
    interface = network.Interface.of(end)

    def shown() -> dict[str, Any]:
        [device] = json.loads(end.check("net --json"))["devices"]
        assert isinstance(device, dict)
        return device

    expect(shown()["interface_elsewhere"] is False, str(shown()))
    interface.check("ip link set {name} down && ip link set {name} name other")
    try:
        expect(shown()["interface"]["name"] == "other", str(shown()))
    finally:
        interface.check("ip link set other name {name}")
    holder = end.node.spawn(network.HOLD)
    try:
        holder.wait_output("held", START_TIMEOUT)
        number = int(holder.text().split()[0])
        interface.check(f"ip link set {{name}} netns {number}")
        device = shown()
        expect((device["interface"], device["interface_elsewhere"]) == (None, True), str(device))
        expect_words(end.check("net"), "in another network namespace")
    finally:
        holder.end()
    wait_until(interface.exists, END_TIMEOUT, "the interface is back")


@case_of(LOOPBACK)
def files_are_read_to_their_end(pair: Cluster) -> None:
    """Files of which the file system says another size than they have, and a pipe, arrive whole."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check("rm -f /tmp/pipe && mkfifo /tmp/pipe")
    # These say 0, 0, and a page.
    sources = ("/tmp/pipe", "/proc/version", "/sys/devices/system/cpu/possible")
    writer = a.node.spawn("exec cat /proc/version >/tmp/pipe")
    try:
        for source in sources:
            receiver = b.spawn(f"recv-file --port {PORT} --out /tmp/came {LIMIT}")
            options = f"--port {PORT} --method window --json {LIMIT}"
            report = json.loads(a.check(f"send-file {source} {options}"))
            expect(receiver.wait(END_TIMEOUT).rc == 0, receiver.text("err"))
            whole = "/proc/version" if source == "/tmp/pipe" else source
            expected = a.node.check(f"cat {whole}")
            expect(report["bytes"] == len(expected) > 0, f"{source}: {report}")
            expect(b.node.check("cat /tmp/came") == expected, f"{source} has arrived changed")
    finally:
        writer.end()
    error = refused(a, f"send-file /dev/zero --port {PORT} {BRIEFLY}", 1)
    expect_words(error["message"], "/dev/zero", "more than")


@case
def output_that_cannot_be_written(pair: Cluster) -> None:
    """Commands fail whose output cannot be written, silently if its reader has gone."""
    commands = ("info", "stat", "lmm", "charge", "peers", "net", "register", "dma --count 1")
    for command in commands:
        for options in ("", "--json"):
            result = pair.a.run(f"uldma {command} {options} >/dev/full")
            expect(result.rc == 1 and "No space" in result.stderr, f"{result}")
            result = pair.a.run(f"uldma {command} {options} >&-")
            expect(result.rc == 1 and "standard output" in result.stderr, f"{result}")
        # Waits until the reader has gone.
        fifo = "rm -f /tmp/gone && mkfifo /tmp/gone && exec 3<>/tmp/gone 4>/tmp/gone 3<&-"
        result = pair.a.run(f"{fifo}; exec uldma {command} >&4")
        expect((result.rc, result.stderr) == (1, ""), f"{result}")


@case
def net_shows_interfaces(pair: Cluster) -> None:
    """The interface of the device and what crosses it, as long as it is up."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    [here, there] = network.up(ends)

    def shown() -> dict[str, Any]:
        [device] = json.loads(here.end.check("net --json"))["devices"]
        [peer] = device["peers"]
        expect((peer["node"], peer["link"]) == (there.end.number, "up"), str(device))
        interface = device["interface"]
        expect(interface["name"] == here.name, str(interface))
        assert isinstance(interface, dict)
        return interface

    before = shown()
    expect((before["state"], before["carrier"]) == ("up", True), str(before))
    expect(before["mac"] == here.attribute("address"), str(before))
    network.ping(here, there.address)
    after = shown()["counters"]
    for name in ("rx_packets", "tx_packets"):
        expect(after[name] > before["counters"][name], f"no {name} of a ping: {after}")
    here.check("ip link set {name} down")
    expect(shown()["carrier"] is None, "an interface that is down has a carrier")
    peer = f"{'peer':<18} {there.end.number:>14}"
    expect_words(here.end.check("net"), f"{here.name} {before['mac']}", "not up", peer)
    here.up()
    network.wait_reachable((here, there))


@case_of(LOOPBACK)
def progress_is_shown_where_it_can_be_seen(pair: Cluster) -> None:
    """On a terminal, and with --progress; a pipe gets nothing that it has not asked for."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"head -c {FILE_BYTES} /dev/zero >/tmp/much; stty -F {TERMINAL} rows 24 cols 80")
    connect = a.command(f"connect {b.number} {PORT} --wait {LIMIT}")
    for options in ("", "--ring", f"2>{TERMINAL}"):
        of_listener = options if options == "--ring" else ""
        listener = b.spawn(f"listen {PORT} {of_listener} {LIMIT} --progress >/dev/null")
        client = a.node.run(f"TERM=linux {connect} </tmp/much {options}", END_TIMEOUT)
        received = listener.wait(END_TIMEOUT)
        expect((client.rc, received.rc) == (0, 0), f"{client}\n{received}")
        expect_words(received.stderr.splitlines()[-1], f": {FILE_BYTES} bytes")
        expect(client.stdout + client.stderr == "", f"{options}: {client}")
    pair.a.log.wait_for("send [", START_TIMEOUT)
