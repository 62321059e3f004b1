# SPDX-License-Identifier: GPL-2.0
"""Programs that know nothing of uldma, over the network interface of two nodes."""

from .. import endpoints, network
from ..cluster import Cluster
from ..kernel import DEBUG
from ..network import IPERF_PORT, PING, Interface, Server, capture, iperf, ping
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import Skip, case_of, expect

SSH_PORT = 2222
HTTP_PORT = 8080
# Of a stream; what a stream over TCP carries is compared by checksum.
STREAM = 8 << 20
# Buffers of sockets that are short of a stream.
WINDOW = " -w 512K"
# Ciphers take many times longer on the debug kernel.
COPIED = (16 if DEBUG else 100) << 20
COPY_TIMEOUT = 240.0
# All of these datagrams fit in a socket's buffer, so that none may be lost.
DATAGRAM = 1400
DATAGRAMS = 48
SSHD = (
    f"/usr/sbin/sshd -D -e -f /dev/null -p {SSH_PORT} -h /tmp/ssh/host -o PidFile=none "
    "-o ListenAddress={address} -o AuthorizedKeysFile=/tmp/ssh/allowed -o StrictModes=no "
    "-o UsePAM=no"
)
SSH_OPTIONS = (
    "-i /tmp/ssh/own -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    "-o BatchMode=yes -o LogLevel=ERROR"
)


def both_ways(pair: Cluster) -> list[tuple[Interface, Interface]]:
    """The two interfaces, each in turn first."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = network.up(ends)
    return [(a, b), (b, a)]


def digest(interface: Interface, path: str, size: int | None = None) -> str:
    """The checksum of a file, or of its first bytes."""
    source = f"cat {path}" if size is None else f"head -c {size} {path}"
    return interface.check(f"{source} | sha256sum")


@case_of(USUAL, IVSHMEM)
def pinging(pair: Cluster) -> None:
    """Echo requests of all sizes are answered, by IPv4, and by IPv6 without an address given."""
    for here, there in both_ways(pair):
        mtu = int(here.attribute("mtu"))
        local = f"{there.local_address}%{here.name}"
        # Of IPv4 and ICMP 28 bytes; more than the MTU is fragmented.
        for size in sorted({0, 56, 1400, mtu - 28, 65507}):
            ping(here, there.address, f"-s {size}")
        for size in (56, mtu - 48):
            ping(here, local, f"-6 -s {size}")
        here.check(f"/usr/bin/ping6 -c 1 -W 10 -I {here.name} {local}")
        ping(here, there.address, f"-M do -s {mtu - 28}")


@case_of(USUAL, IVSHMEM)
def streams(pair: Cluster) -> None:
    """iperf3 by TCP: one stream and eight, either way, both ways at once; a file arrives whole."""
    [(a, b), _] = both_ways(pair)
    for options, count in (("", 1), ("-R", 1), ("-P 8", 8), ("-P 8 -R", 8), ("--bidir", 2)):
        # The receiver stops before it has read what is in the buffers of the sockets.
        buffers = " -w 64K" if count > 2 else WINDOW
        with Server.start(b, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
            report = iperf(a, b, f"-n {STREAM} {options}{buffers}")
        end = report["end"]
        expect(len(end["streams"]) == count, f"{options}: {end}")
        sums = ("sum_received", "sum_received_bidir_reverse")
        received = [end[it]["bytes"] for it in sums if it in end]
        # Both ways end when one has sent all.
        whole = max(received) > STREAM // 2 and min(received) > 0
        expect(whole, f"{options}: {received} bytes have arrived")
    a.check(f"head -c {STREAM} /dev/urandom >/tmp/stream")
    with Server.start(b, "exec iperf3 -s -1 -B {address} -F /tmp/stream", IPERF_PORT) as server:
        iperf(a, b, f"-n {STREAM} -F /tmp/stream{WINDOW}")
        server.job.wait(network.PROGRAM_TIMEOUT)
    size = int(b.check("stat -c %s /tmp/stream"))
    expect(size > STREAM // 2, f"{size} bytes of a file have arrived")
    expect(digest(a, "/tmp/stream", size) == digest(b, "/tmp/stream"), "a file has arrived changed")


@case_of(USUAL, IVSHMEM)
def datagrams(pair: Cluster) -> None:
    """iperf3 by UDP: what fits in the receiver's buffer arrives, all of it and in order."""
    for here, there in both_ways(pair):
        with Server.start(there, "exec iperf3 -s -1 -J -B {address}", IPERF_PORT):
            total = DATAGRAM * DATAGRAMS
            report = iperf(here, there, f"-u -b 0 -l {DATAGRAM} -n {total} --get-server-output")
        [stream] = report["server_output_json"]["end"]["streams"]
        udp = stream["udp"]
        found = (udp["packets"], udp["lost_packets"], udp["out_of_order"])
        expect(found == (DATAGRAMS, 0, 0), f"from {here}: {udp}")


@case_of(USUAL, IVSHMEM)
def secure_shell(pair: Cluster) -> None:
    """ssh runs a command there, and scp carries a large file there."""
    [(a, b), _] = both_ways(pair)
    for interface, key in ((a, "own"), (b, "host")):
        interface.check("mkdir -p /tmp/ssh /run/sshd && chmod 755 /run/sshd && rm -f /tmp/ssh/*")
        interface.check(f"ssh-keygen -q -t ed25519 -N '' -f /tmp/ssh/{key}")
    allowed = a.check("cat /tmp/ssh/own.pub").strip()
    b.check(f"echo '{allowed}' >/tmp/ssh/allowed")
    with Server.start(b, f"exec {SSHD}", SSH_PORT):
        said = a.check(f"ssh {SSH_OPTIONS} -p {SSH_PORT} root@{b.address} hostname")
        expect(said == "node-b\n", f"another node has answered: {said}")
        a.check(f"head -c {COPIED} /dev/urandom >/tmp/sent")
        copy = f"scp -O -q -P {SSH_PORT} {SSH_OPTIONS}"
        a.check(f"{copy} /tmp/sent root@{b.address}:/tmp/copy", COPY_TIMEOUT)
        expect(digest(a, "/tmp/sent") == digest(b, "/tmp/copy"), "the copy there has changed")
    for interface in (a, b):
        interface.check("rm -rf /tmp/ssh /tmp/sent /tmp/copy")


@case_of(USUAL, IVSHMEM)
def web(pair: Cluster) -> None:
    """curl gets a file from a web server, over IPv4 and IPv6."""
    for here, there in both_ways(pair):
        there.check(f"mkdir -p /tmp/web && head -c {STREAM} /dev/urandom >/tmp/web/file")
        with Server.start(there, f"exec httpd -f -p {HTTP_PORT} -h /tmp/web", HTTP_PORT):
            for host in (there.address, f"[{there.local_address}%25{here.name}]"):
                url = f"http://{host}:{HTTP_PORT}/file"
                here.check(f"curl -sS --fail -g -o /tmp/got '{url}'")
                same = digest(here, "/tmp/got") == digest(there, "/tmp/web/file")
                expect(same, f"{url} has arrived changed")
        here.check("rm -f /tmp/got")
        there.check("rm -rf /tmp/web")


@case_of(USUAL, IVSHMEM)
def capturing(pair: Cluster) -> None:
    """tcpdump sees packets on both sides, and their addresses."""
    [(a, b), _] = both_ways(pair)
    expression = f"icmp and host {a.address} and host {b.address}"
    jobs = [capture(interface, 2, expression) for interface in (a, b)]
    try:
        ping(a, b.address)
        for job in jobs:
            seen = job.wait(network.CAPTURE_TIMEOUT).stdout.splitlines()
            request, reply = (f"{it.address} > {other.address}" for it, other in ((a, b), (b, a)))
            right = len(seen) == 2 and request in seen[0] and reply in seen[1]
            expect(right and "echo request" in seen[0], f"{job.command}: {seen}")
    finally:
        for job in jobs:
            job.end()


@case_of(USUAL, IVSHMEM)
def kept_apart(pair: Cluster) -> None:
    """Only programs in the network namespace of an interface use it, and it returns from there."""
    if DEBUG:
        raise Skip("the debug kernel has no network namespaces")
    [(outside, there), _] = both_ways(pair)
    command = f"{PING} -n -c 1 -W 1 {there.address}"
    outside.check(command)
    with network.apart(outside.end, there.end) as inside:
        network.up_all((inside, there))
        inside.check(command)
        with Server.start(inside, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
            iperf(there, inside, f"-n {STREAM}{WINDOW}")
        expect(not outside.exists(), f"{outside} is still there")
        found = outside.run(command)
        expect(found.rc != 0, f"a program outside of the namespace reaches {there}: {found}")
    wait_until(outside.exists, network.PROGRAM_TIMEOUT, f"{outside} again")
    network.up_all((outside, there))
