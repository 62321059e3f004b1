# SPDX-License-Identifier: GPL-2.0
"""Messages between endpoints, by each technique of sending and of receiving."""

import itertools
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import endpoints, techniques
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..kernel import DEBUG
from ..polling import wait_until
from ..techniques import (
    BY_PROCESSOR,
    KERNEL,
    RECEIVING,
    REFUSED,
    SENDING,
    pieces,
    reports,
    work_of_receiver,
    work_of_sender,
)
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 900
TIMEOUT = 120.0
LIMIT = "--timeout 60"
# Not a multiple of any length of messages.
FILE = (1 << 20) + 13
# One piece, exactly one slot, and several slots.
LENGTHS = (1000, 65536, 300000)
# Exit codes of `uldma`.
FAILED = 1
USAGE = 2
TIMED_OUT = 4
PEER = 6
FIFO = "/tmp/messages"
SENT = "/tmp/sent-late"
LATE = 100 << 10
# Bytes per second of an engine that is slower than any node, and what it moves.
SLOW = 4_000_000
SLOT = 64 << 10
COUNT = 64
COUNTED = ("control_stores", "doorbells", "invalidations")
# Stores to registers while a program opens the device and ends, at most; no doorbells.
OPENING = 20


def finish(job: Job, what: str) -> None:
    """Wait for the end of a side, which must be a good one."""
    result = job.wait(TIMEOUT)
    expect(result.rc == 0, f"{what}: exit {result.rc} of {job.command}\n{result.stderr}")


@dataclass(frozen=True)
class Carried:
    """What the two sides report of a file that has crossed."""

    sent: dict[str, Any]
    received: dict[str, Any]


def carry(a: Endpoint, b: Endpoint, sending: str, receiving: str) -> Carried:
    """Let a file cross in messages."""
    a.node.check(f"head -c {FILE} /dev/urandom >/tmp/sent", TIMEOUT)
    receiver = b.spawn(f"recv {PORT} {LIMIT} --json {receiving} >/tmp/received")
    sender = a.spawn(f"send {b.number} {PORT} {LIMIT} --json --wait {sending} </tmp/sent")
    what = f"{sending} to {receiving}"
    try:
        finish(sender, what)
        finish(receiver, what)
        sums = [
            end.node.check(f"sha256sum <{path}", TIMEOUT)
            for end, path in ((a, "/tmp/sent"), (b, "/tmp/received"))
        ]
        expect(sums[0] == sums[1], f"{what}: the file has arrived changed")
        return Carried(json.loads(sender.text("err")), json.loads(receiver.text("err")))
    finally:
        sender.end()
        receiver.end()


def used(*ends: Endpoint) -> list[tuple[int, int, int]]:
    """Return the numbers of regions, of pages and of bytes of the window in use at each end."""
    infos = [end.info() for end in ends]
    return [(info["regions"], info["pages"], info["window_used"]) for info in infos]


@case_of(USUAL)
def all_pairs_arrive_unchanged(pair: Cluster) -> None:
    """Each technique of sending goes with each of receiving, with any length of messages.

    Their copies, pins and exchanges tell that the techniques are those that were named.
    """
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    assert pair.device
    for number, (sending, receiving) in enumerate(itertools.product(SENDING, RECEIVING)):
        if (sending, receiving) == REFUSED:
            # See what_the_driver_does_not_put_is_refused.
            continue
        # All of them take a debug kernel seven minutes.
        only = number % len(LENGTHS)
        for length in LENGTHS[only : only + 1] if DEBUG else LENGTHS:
            # A posted buffer, or a place, takes one whole message.
            slot = "512K" if receiving in ("v2p-dma", "direct-dma") else "64K"
            before = pair.device.node(a.number)["counters"]
            carried = carry(
                a,
                b,
                f"--technique {sending} --message {length} --slot {slot}",
                f"--technique {receiving} --slot {slot}",
            )
            after = pair.device.node(a.number)["counters"]
            window = techniques.by_window(sending, receiving, FILE)
            moved = {name: after[name] - before[name] for name in window}
            what = f"{sending} to {receiving}: {moved}, {carried}"
            expect(carried.received["bytes"] == FILE, what)
            messages = pieces(FILE, length)
            expect(carried.received["messages"] == len(messages), what)
            expect(moved == window, what)
            expect(reports(carried.sent, work_of_sender(sending, messages)), what)
            expect(reports(carried.received, work_of_receiver(receiving, messages)), what)
            # All buffers that were posted, also those that no message came for.
            pinned = carried.received["pages_pinned"]
            expect(receiving != "v2p-dma" or pinned > len(messages), what)


@case_of(USUAL)
def slots_are_used_in_turns(pair: Cluster) -> None:
    """One slot on each side, of a few bytes, carries what 64 do."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for slots in (1, 3, 64):
        options = f"--slots {slots} --slot 5000"
        carry(a, b, f"{options} --message 70000", options)
        kernel = f"{options} --technique {KERNEL}"
        carry(a, b, f"{kernel} --message 70000", kernel)
        carry(b, a, f"{options} --message 4999", "--technique v2p-dma --slots 2 --slot 5000")


@case_of(USUAL)
def a_sender_sleeps_for_several_messages(pair: Cluster) -> None:
    """A sender that waits for the engine takes less than a system call for a message.

    It sleeps until half of its slots are free. Its peer has room for many messages.
    """
    options = ["--bandwidth", str(SLOW)]
    with Cluster(f"{pair.scenario}-slow", pair.config, device_options=options) as slow:
        a, b = endpoints.of(slow)
        endpoints.wait_up((a, b))
        receiver = b.spawn(f"recv {PORT} {LIMIT} --slots {COUNT} --slot {SLOT} >/dev/null")
        command = f"send {b.number} {PORT} {LIMIT} --json --wait --slots 8 --slot {SLOT}"
        source = f"head -c {COUNT * SLOT} /dev/zero"
        sender = a.node.spawn(f"{source} | {a.command(f'{command} --message {SLOT}')}")
        try:
            finish(sender, "a slow engine")
            finish(receiver, "a slow engine")
        finally:
            sender.end()
            receiver.end()
        report = json.loads(sender.text("err"))
        expect(report["messages"] == COUNT, f"a slow engine: {report}")
        expect(report["syscalls"] < COUNT, f"a slow engine: {report}")
        slow.check_logs()


@case_of(USUAL)
def streams_are_matched_by_the_device(pair: Cluster) -> None:
    """Connections move bytes from endpoint to endpoint, or by calls if one side asks for that."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    run_program(a, b, "matched_stream")
    expect(used(a, b) == before, "memory of streams has remained")


@case_of(USUAL)
def a_stream_of_which_a_part_is_lost_is_reset(pair: Cluster) -> None:
    """The receiver of a matched stream gets ECONNRESET if the sender's process ends too early."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    # The end of the address space and that of the file race.
    for _ in range(20):
        run_program(a, b, "matched_stream", "exit", "lose")
    wait_until(lambda: used(a, b) == before, 10.0, "the memory of streams is free")


@case_of(USUAL)
def puts_arrive_where_the_sender_says(pair: Cluster) -> None:
    """Bytes are put into memory that the receiver offers, and nowhere else (C-022, C-034)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    run_program(a, b, "message_put")
    expect(used(a, b) == before, "memory for puts has remained")


@case_of(IVSHMEM, LOOPBACK)
def processors_carry_messages_through_the_window(pair: Cluster) -> None:
    """Without an engine, all pairs of two techniques carry messages of any length."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for sending in BY_PROCESSOR:
        for receiving in BY_PROCESSOR:
            for length, slot in ((1000, "64K"), (65536, "64K"), (300000, "5000"), (300000, "64K")):
                options = f"--slot {slot}"
                carried = carry(
                    a,
                    b,
                    f"--technique {sending} --message {length} {options}",
                    f"--technique {receiving} {options}",
                )
                what = f"{sending} to {receiving}: {carried}"
                expect(carried.received["messages"] == len(pieces(FILE, length)), what)
                # Into the window, out of it, and out of slots if it was put there before.
                expect(carried.sent["copied_by_library"] == FILE, what)
                most = FILE if receiving == "pio" else 2 * FILE
                expect(FILE <= carried.received["copied_by_library"] <= most, what)


@case_of(IVSHMEM)
def what_the_window_does_not_carry_is_refused(pair: Cluster) -> None:
    """Techniques that need an engine at both ends are refused by name where one has none."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    other = "copy-dma"
    refused = (("v2p-dma", other), ("pex-dma", other), (other, "pex-dma"), (other, "direct-dma"))
    for sending, receiving in refused:
        receiver = b.spawn(f"recv {PORT} {LIMIT} --technique {receiving}")
        sender = a.spawn(f"send {b.number} {PORT} {LIMIT} --wait --technique {sending} </dev/null")
        ends = [("sending", sending, sender), ("receiving", receiving, receiver)]
        try:
            for direction, technique, job in ends:
                result = job.wait(TIMEOUT)
                if technique == other:
                    # It learns only that the other side has ended.
                    expect(result.rc == PEER, f"exit {result.rc}\n{result.stderr}")
                    continue
                expect(result.rc == USAGE, f"exit {result.rc}\n{result.stderr}")
                text = f"{direction} by {technique}: messages go through the window"
                expect(text in result.stderr, result.stderr)
        finally:
            receiver.end()
            sender.end()


@case_of(USUAL)
def what_the_driver_does_not_put_is_refused(pair: Cluster) -> None:
    """A sender whose bytes the driver copies cannot name places, and says so."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    receiver = b.spawn(f"recv {PORT} {LIMIT} --technique direct-dma --slot 512K >/dev/null")
    command = a.command(f"send {b.number} {PORT} {LIMIT} --wait --technique {KERNEL}")
    sender = a.node.spawn(f"echo bytes | {command}")
    try:
        result = sender.wait(TIMEOUT)
        expect(result.rc == USAGE, f"exit {result.rc}\n{result.stderr}")
        expect(f"sending by {KERNEL}: the driver sends messages" in result.stderr, result.stderr)
        ended = receiver.wait(TIMEOUT)
        expect(ended.rc == PEER, f"exit {ended.rc}\n{ended.stderr}")
    finally:
        receiver.end()
        sender.end()


@case_of(USUAL)
def the_end_of_one_side_ends_the_other(pair: Cluster) -> None:
    """A side that is killed is noticed by the other one, which fails."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    # A side that sends by page exchange, or receives so, is killed in the middle of it.
    for killed, technique in (
        ("sender", "copy-dma"),
        ("receiver", "copy-dma"),
        ("sender", KERNEL),
        ("receiver", KERNEL),
        ("sender", "pex-dma"),
        ("receiver", "pex-dma"),
        ("sender", "pio"),
        ("receiver", "pio"),
    ):
        reader = f"{{ head -c {1 << 20} >/dev/null && echo begun; cat >/dev/null; }}"
        options = f"{LIMIT} --technique {technique}"
        recv = b.command(f"recv {PORT} {options}")
        receiver = b.node.spawn(f"set -o pipefail; {recv} | {reader}")
        sender = a.spawn(f"send {b.number} {PORT} {options} --wait </dev/zero")
        receiver.wait_output("begun", TIMEOUT)
        gone, left = (sender, receiver) if killed == "sender" else (receiver, sender)
        gone.kill()
        result = left.wait(TIMEOUT)
        # The device may end a transfer before the kernel reports the end of the peer. A sender says
        # that it does not know what the other side has taken.
        reasons = ("transfer",) if left is receiver else ("transfer", "taken by the other side")
        failed = result.rc == FAILED and any(reason in result.stderr for reason in reasons)
        expect(
            result.rc == PEER or failed,
            f"the {killed} was killed: exit {result.rc}\n{result.stderr}",
        )
    carry(a, b, "", "")
    wait_until(lambda: used(a, b) == before, TIMEOUT, "what the killed sides had is freed")


@case_of(USUAL)
def an_idle_side_is_missed(pair: Cluster) -> None:
    """A sender that is killed while it waits for its input ends a receiver that waits for it."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
    receiver = b.node.spawn(
        f"set -o pipefail; {b.command(f'recv {PORT} {LIMIT}')} | {{ head -c 1000; cat; }}"
    )
    writer = a.node.spawn(f"exec 3>{FIFO}; head -c 1000 /dev/zero | tr '\\0' x >&3; kill -STOP $$")
    sender = a.spawn(f"send {b.number} {PORT} {LIMIT} --wait --message 1000 <{FIFO}")
    try:
        receiver.wait_output("x", TIMEOUT)
        sender.kill()
        result = receiver.wait(TIMEOUT)
        expect(result.rc == PEER, f"exit {result.rc}\n{result.stderr}")
    finally:
        writer.end()
        receiver.end()


@case_of(USUAL)
def a_sender_waits_for_a_late_receiver(pair: Cluster) -> None:
    """What is in the receiver's memory is received, however late, and the sender ends well then."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"head -c {LATE} /dev/urandom >{SENT}", TIMEOUT)
    for technique in RECEIVING:
        b.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
        recv = b.command(f"recv {PORT} {LIMIT} --technique {technique} --slot 4K --slots 64")
        # Messages wait in slots until the output is read.
        receiver = b.node.spawn(f"{recv} >{FIFO}")
        holder = b.node.spawn(f"exec 3<>{FIFO}; echo open; kill -STOP $$")
        holder.wait_output("open", TIMEOUT)
        # More than a pipe holds, less than pipe and slots.
        options = f"{LIMIT} --wait --message 1K --slot 4K"
        sender = a.spawn(f"send {b.number} {PORT} {options} <{SENT}")
        try:
            found = b.node.check(f"head -c {LATE} {FIFO} | sha256sum", TIMEOUT)
            expect(found == a.node.check(f"sha256sum <{SENT}", TIMEOUT), f"{technique}: changed")
            finish(sender, technique)
            finish(receiver, technique)
        finally:
            sender.end()
            receiver.end()
            holder.end()


@case_of(USUAL)
def a_message_that_a_posted_buffer_cannot_take_fails(pair: Cluster) -> None:
    """It is too long for the slot that it is sent from as a whole, for the buffer, or its place."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for receiving, options, text in (
        ("v2p-dma", "--slot 4K", "a message of 8192 bytes is longer than 4096 bytes"),
        ("v2p-dma", "--technique direct-dma", "longer than the posted buffer"),
        ("direct-dma", "", "a message of 8192 bytes is longer than 4096 bytes"),
    ):
        receiver = b.spawn(f"recv {PORT} {LIMIT} --technique {receiving} --slot 4K >/dev/null")
        command = f"send {b.number} {PORT} {LIMIT} --wait --message 8K {options} </dev/zero"
        try:
            result = a.node.run(a.command(command), TIMEOUT)
            expect(result.rc == FAILED, f"{options}: exit {result.rc}\n{result.stderr}")
            expect(text in result.stderr, f"{options}: {result.stderr}")
        finally:
            receiver.end()


@case_of(USUAL)
def what_failed_first_is_reported(pair: Cluster) -> None:
    """Later messages fail because the receiver ended on the first, which is no explanation."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    # With memory for all messages, and with less, so that the first is waited for before the last.
    for technique, slots in itertools.product(("direct-dma", "v2p-dma"), (8, 4)):
        a.node.check(f"rm -f {FIFO} {FIFO}.go; mkfifo {FIFO} {FIFO}.go")
        receiver = b.spawn(f"recv {PORT} {LIMIT} --technique v2p-dma --slot 4K >/dev/null")
        writer = a.node.spawn(
            f"exec 3>{FIFO}; head -c 8192 /dev/zero >&3; "
            f"read _ <{FIFO}.go; head -c 32768 /dev/zero >&3"
        )
        options = f"--wait --message 8K --slots {slots} --technique {technique}"
        sender = a.spawn(f"send {b.number} {PORT} {LIMIT} {options} <{FIFO}")
        try:
            receiver.wait(TIMEOUT)
            a.node.check(f"echo >{FIFO}.go")
            result = sender.wait(TIMEOUT)
            expect(result.rc == FAILED, f"{technique}: exit {result.rc}\n{result.stderr}")
            expect("longer than the posted buffer" in result.stderr, result.stderr)
        finally:
            for process in (receiver, writer, sender):
                process.end()


@case_of(USUAL)
def a_receiver_that_posts_nothing_delays_only_its_sender(pair: Cluster) -> None:
    """With credits a send waits until its time is over; without, it fails at once."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for options, code, text in (
        ("--timeout 10", TIMED_OUT, "no buffer of the peer within 10s"),
        ("--timeout 10 --technique pio", TIMED_OUT, "no buffer of the peer within 10s"),
        ("--without-credits", FAILED, "has posted no buffer"),
    ):
        b.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
        # Nothing reads what it writes, so it takes no more messages.
        receiver = b.spawn(f"recv {PORT} {LIMIT} --slots 2 >{FIFO}")
        reader = b.node.spawn(f"exec 3<{FIFO}; echo open; kill -STOP $$")
        reader.wait_output("open", TIMEOUT)
        try:
            command = f"send {b.number} {PORT} --wait {options} </dev/zero"
            result = a.node.run(a.command(command), TIMEOUT)
            expect(result.rc == code, f"{options}: exit {result.rc}\n{result.stderr}")
            expect(text in result.stderr, f"{options}: {result.stderr}")
        finally:
            receiver.end()
            reader.end()


@case_of(USUAL)
def memory_that_changes_early(pair: Cluster) -> None:
    """With a device that holds the transfer, two techniques send what was written afterwards."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    device = pair.device
    assert device
    found_first = dict.fromkeys(("pio", "copy-dma", KERNEL, "pex-dma"), "1")
    found_first.update(dict.fromkeys(("direct-dma", "v2p-dma"), "2"))
    for technique, first in found_first.items():
        a.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
        receiver = b.spawn(f"recv {PORT} {LIMIT} >/tmp/received")
        program = f"/tests/message_hazard {b.number} {PORT} {technique}"
        sender = a.node.spawn(f"{program} <>{FIFO}")
        try:
            sender.wait_output("connected", TIMEOUT)
            device.hold(a.number)
            a.node.check(f"echo >{FIFO}", TIMEOUT)
            sender.wait_output("changed", TIMEOUT)
            wait_until(lambda: bool(device.node(a.number)["held"]), TIMEOUT, "a chunk is held")
            device.release(a.number)
            finish(sender, technique)
            finish(receiver, technique)
            found = b.node.check("head -c 1 /tmp/received; wc -c </tmp/received")
            expect("".join(found.split()) == f"{first}4096", f"{technique}: {found}")
        finally:
            device.release(a.number)
            sender.end()
            receiver.end()


def run_program(
    a: Endpoint, b: Endpoint, name: str, sending: str = "send", receiving: str = "receive"
) -> None:
    """Run the two sides of a test program."""
    receiver = b.node.spawn(f"/tests/{name} {receiving} {PORT}")
    sender = a.node.spawn(f"/tests/{name} {sending} {PORT} {b.number}")
    try:
        # One that fails lets the other fail, too.
        ended = [(job.command, job.wait(TIMEOUT)) for job in (sender, receiver)]
        failed = [f"exit {end.rc} of {command}\n{end.stderr}" for command, end in ended if end.rc]
        expect(not failed, "\n".join(failed))
    finally:
        sender.end()
        receiver.end()


@case_of(USUAL)
def pins_are_kept_for_the_next_message(pair: Cluster) -> None:
    """V2P_DMA pins for each message, with the pin cache for the first one (C-013, C-014)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    run_program(a, b, "message_pins")


@case_of(USUAL)
def buffers_give_classical_semantics(pair: Cluster) -> None:
    """A layer over V2P_DMA, and DIRECT_DMA from any memory, keep nothing of the program's."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    run_program(a, b, "message_buffered")


@case_of(USUAL)
def only_posted_buffers_are_waited_for(pair: Cluster) -> None:
    """A message to V2P_DMA waits for its buffer, or fails; others are buffered (C-001, C-006)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for technique in RECEIVING:
        # Its messages are puts, see puts_arrive_where_the_sender_says.
        if technique != "direct-dma":
            sides = (f"{side} {technique}" for side in ("send", "receive"))
            run_program(a, b, "message_unposted", *sides)


@case_of(USUAL)
def pages_are_exchanged_or_copied_for_a_reason(pair: Cluster) -> None:
    """Messages by page exchange arrive unchanged from and in all memory, with the right counts."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    run_program(a, b, "message_exchange")


@case_of(USUAL)
def late_messages_are_redirected(pair: Cluster) -> None:
    """What arrives while a call waits goes to its memory, and all else to slots (C-033)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    size, count = 65536, 10
    received, path = "/tmp/received", "/tmp/sent"
    a.node.check(
        f"rm -f {FIFO}; mkfifo {FIFO}; head -c {size * count} /dev/urandom >{path}", TIMEOUT
    )
    b.node.check(f": >{received}")
    before = b.info()["regions"]
    receiver = b.spawn(f"recv {PORT} {LIMIT} --technique redirect --json >{received}")
    sender = a.spawn(f"send {b.number} {PORT} {LIMIT} --wait --message {size} <{FIFO}")
    writer = a.node.spawn(f"exec 3<>{FIFO}; echo open; kill -STOP $$")
    writer.wait_output("open", TIMEOUT)

    def waits(number: int) -> bool:
        # Its slots of both directions, and the memory that it receives into.
        length = b.node.check(f"wc -c <{received}")
        return int(length) == number * size and b.info()["regions"] == before + 3

    try:
        for number in range(count):
            wait_until(partial(waits, number), TIMEOUT, "the receiver waits")
            part = f"dd if={path} bs={size} skip={number} count=1 2>/dev/null"
            a.node.check(f"{part} >{FIFO}", TIMEOUT)
        writer.end()
        finish(sender, "the sender")
        finish(receiver, "the receiver")
        report = json.loads(receiver.text("err"))
        counts = report["redirected"], report["from_slots"]
        # A message may come between the registration of the memory and the redirection; the
        # last one is empty.
        expect(sum(counts) == count + 1 and counts[0] > 1, f"{report}")
        sums = [end.node.check(f"sha256sum <{at}") for end, at in ((a, path), (b, received))]
        expect(sums[0] == sums[1], "the data has arrived changed")
    finally:
        writer.end()
        sender.end()
        receiver.end()


@case_of(USUAL)
def calls_that_end_early_withdraw_their_memory(pair: Cluster) -> None:
    """Calls whose time is over while messages arrive lose none, and get none afterwards."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    run_program(a, b, "message_redirect")


def fences_of(end: Endpoint) -> dict[str, int]:
    """How often the driver has waited for transfers that may use what it had retracted."""
    stat = json.loads(end.check("stat --json"))
    return dict(stat["debugfs"]["fences"])


@case_of(USUAL)
def the_threshold_of_exchanges_is_measured(pair: Cluster) -> None:
    """What is measured decides which messages are copied, and it can be shown (C-029)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    assert pair.device
    counters, fences = pair.device.node(0)["counters"], fences_of(a)
    report = json.loads(a.check("calibrate --json"))
    after = pair.device.node(0)["counters"]
    counted = {name: after[name] - counters[name] for name in COUNTED}
    made = {name: count - fences[name] for name, count in fences_of(a).items()}
    # The device says by its touch page that it does not use the pages that are exchanged. Only
    # while it moves something it has to invalidate them, which the driver's queue asks it for.
    stores = counted["control_stores"] - counted["doorbells"]
    expect(stores <= OPENING < made["all"], f"{counted}, {made}")
    expect(made["by_invalidation"] < made["all"] / 2, f"{made}")
    sizes = {size["bytes"]: size for size in report["sizes"]}
    expect(sorted(sizes) == [4096 << n for n in range(9)], f"{report}")
    for size in sizes.values():
        expect(min(size["copy_ns"], size["receive_ns"], size["send_ns"]) > 0, f"{size}")
    largest = sizes[max(sizes)]
    pays = max(largest["receive_ns"], largest["send_ns"]) <= largest["copy_ns"]
    threshold = report["exchange_from"]
    expect(pays == (threshold is not None), f"{report}")
    expect(threshold is None or threshold in sizes, f"{report}")
    options = "--technique pex-dma --exchange-from measured"
    for length in (4096, 65536):
        received = carry(a, b, f"{options} --message {length}", options).received
        start = received["exchange"]["from"]
        expect(start is None or start in sizes, f"{received}")
        copied = start is None or length < start
        expect((received["exchange"]["pages_exchanged"] == 0) == copied, f"{received}")
    expect(used(a, b) == before, "memory has remained")
