# SPDX-License-Identifier: GPL-2.0
"""Programs that know nothing of uldma, and whose sockets go over it by `uldma run`."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..kernel import DEBUG
from ..network import SOCKETS
from ..polling import wait_until
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

HTTP_PORT = 8180
RAW_PORT = 8181
SSH_PORT = 2322
IPERF_PORT = 5301
TIMEOUT = 180.0
LIMIT = "--timeout 30"
SIZE = (2 if DEBUG else 8) << 20
CLIENTS = 4
# Exit codes of curl: no connection; an error while it receives.
REFUSED = 7
RECEIVING = 56
SSHD = (
    f"/usr/sbin/sshd -D -e -f /dev/null -p {SSH_PORT} -h /tmp/ssh/host -o PidFile=none "
    "-o AuthorizedKeysFile=/tmp/ssh/allowed -o StrictModes=no -o UsePAM=no"
)
SSH_OPTIONS = (
    "-i /tmp/ssh/own -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
    "-o BatchMode=yes -o LogLevel=ERROR"
)


def address(end: Endpoint) -> str:
    """The address that means a node for programs."""
    return SOCKETS.format(end.number)


def run(end: Endpoint, program: str, options: str = "") -> str:
    """The command line that runs a program."""
    return end.command(f"run {LIMIT} {options} -- {program}")


def ends_of(pair: Cluster) -> tuple[Endpoint, Endpoint]:
    """Both ends, linked."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    return a, b


@contextmanager
def serving(there: Endpoint, program: str, port: int, options: str = "") -> Iterator[Job]:
    """Run a server until it is no longer needed."""
    job = there.node.spawn(f"exec {run(there, program, options)}")

    def ready() -> bool:
        expect(job.running, f"{program}: {job.text('err')}")
        return not there.node.run(f"netstat -tln | grep -q ':{port} '").rc

    try:
        wait_until(ready, TIMEOUT, f"port {port} of {program}")
        yield job
    finally:
        job.end()


def report(job_errors: str) -> dict[str, Any]:
    """What `uldma run --json` says behind what its program has."""
    found: dict[str, Any] = json.loads(job_errors.strip().splitlines()[-1])
    return found


def digest(end: Endpoint, path: str) -> str:
    """The checksum of a file."""
    return end.node.check(f"sha256sum <{path}", TIMEOUT)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def clients_of_a_server(pair: Cluster) -> None:
    """Several curls get a file at once, which arrives whole; the server is linked statically."""
    a, b = ends_of(pair)
    before = [end.info()["connections"] for end in (a, b)]
    b.node.check(f"mkdir -p /tmp/web && head -c {SIZE} /dev/urandom >/tmp/web/file", TIMEOUT)
    server = f"httpd -f -p {HTTP_PORT} -h /tmp/web"
    with serving(b, server, HTTP_PORT, f"--serve {HTTP_PORT}"):
        url = f"http://{address(b)}:{HTTP_PORT}/file"
        get = " & ".join(f"curl -sS --fail -o /tmp/got{n} {url}" for n in range(CLIENTS))
        # The shell knows no connection; its children, which it forks, have them.
        shell = f"sh -c '{get} & wait'"
        result = a.node.run(run(a, shell, "--json"), TIMEOUT)
        expect(result.rc == 0, f"{result}")
        sent = digest(b, "/tmp/web/file")
        for number in range(CLIENTS):
            expect(digest(a, f"/tmp/got{number}") == sent, f"file {number} has changed")
        counts = report(result.stderr)
        expect(counts["connected"] == CLIENTS, f"{counts}")
        expect(counts["bytes_received"] > CLIENTS * SIZE, f"{counts}")
        expect((counts["refused"], counts["reset"]) == (0, 0), f"{counts}")
        # Another name of the node, and the devices move the data where they can.
        other = f"--peer 10.9.8.7={b.number} --matched"
        url = f"http://10.9.8.7:{HTTP_PORT}/file"
        a.node.check(run(a, f"curl -sS --fail -o /tmp/got0 {url}", other), TIMEOUT)
        expect(digest(a, "/tmp/got0") == sent, "the file has changed")
        # Addresses of others are the kernel's.
        plain = a.node.run(run(a, "curl -sS http://127.0.0.1:1/"), TIMEOUT)
        expect(plain.rc == REFUSED, f"{plain}")
    wait_until(
        lambda: [end.info()["connections"] for end in (a, b)] == before, TIMEOUT, "no connection"
    )
    a.node.check("rm -f /tmp/got*")
    b.node.check("rm -rf /tmp/web")


@case_of(USUAL, IVSHMEM)
def streams(pair: Cluster) -> None:
    """iperf3 on both nodes: two streams at once, either way."""
    a, b = ends_of(pair)
    for options in ("-P 2", "-P 2 -R", "--bidir"):
        with serving(b, f"iperf3 -s -1 -p {IPERF_PORT}", IPERF_PORT):
            client = f"iperf3 -J -c {address(b)} -p {IPERF_PORT} -n {SIZE} {options}"
            result = a.node.run(run(a, client), TIMEOUT)
            expect(result.rc == 0, f"{options}: {result}")
            end = json.loads(result.stdout)["end"]
            expect(end["sum_received"]["bytes"] > 0, f"{options}: {end}")


@case_of(USUAL)
def secure_shell(pair: Cluster) -> None:
    """sshd, which forks and executes, serves ssh and scp: a file arrives whole, both ways."""
    a, b = ends_of(pair)
    for end, key in ((a, "own"), (b, "host")):
        end.node.check("mkdir -p /tmp/ssh /run/sshd && chmod 755 /run/sshd && rm -f /tmp/ssh/*")
        end.node.check(f"ssh-keygen -q -t ed25519 -N '' -f /tmp/ssh/{key}", TIMEOUT)
    allowed = a.node.check("cat /tmp/ssh/own.pub").strip()
    b.node.check(f"echo '{allowed}' >/tmp/ssh/allowed")
    a.node.check(f"head -c {SIZE} /dev/urandom >/tmp/sent", TIMEOUT)
    with serving(b, SSHD, SSH_PORT):
        login = f"{SSH_OPTIONS} -p {SSH_PORT} root@{address(b)}"
        said = a.node.check(run(a, f"ssh {login} hostname"), TIMEOUT)
        expect(said == "node-b\n", f"another node has answered: {said}")
        # The end of the input arrives behind all of it, and the answer after that.
        back = run(a, f"ssh {login} 'tee /tmp/copy'")
        a.node.check(f"{back} </tmp/sent >/tmp/back", TIMEOUT)
        for end, path in ((b, "/tmp/copy"), (a, "/tmp/back")):
            expect(digest(end, path) == digest(a, "/tmp/sent"), f"{path} has changed")
        copy = f"scp -O -q -P {SSH_PORT} {SSH_OPTIONS} /tmp/sent root@{address(b)}:/tmp/other"
        a.node.check(run(a, copy), TIMEOUT)
        expect(digest(b, "/tmp/other") == digest(a, "/tmp/sent"), "the copy has changed")
    for end in (a, b):
        end.node.check("rm -rf /tmp/ssh /tmp/sent /tmp/copy /tmp/back /tmp/other")


@case_of(USUAL, IVSHMEM)
def refusals(pair: Cluster) -> None:
    """Without a listener, room or a node, connect() fails as it does for any socket."""
    a, b = ends_of(pair)
    get = f"curl -sSv -m 60 http://{address(b)}:{HTTP_PORT}/"

    def refused(what: str, said: str, command: str = get, options: str = "") -> None:
        result = a.node.run(run(a, command, options), TIMEOUT)
        right = result.rc == REFUSED and said in result.stderr
        expect(right, f"{what}: {result}")

    refused("no process listens", "Connection refused")
    with broker(b):
        refused("only uldma listens", "Connection refused")
    result = a.node.run(run(a, f"curl -sS -m 60 http://127.117.108.99:{HTTP_PORT}/"), TIMEOUT)
    expect(result.rc == REFUSED, f"no such node: {result}")
    missing = a.node.run(run(a, "/nonexistent"), TIMEOUT)
    expect(missing.rc == 1 and "/nonexistent" in missing.stderr, f"{missing}")
    status = a.node.run(run(a, "sh -c 'exit 37'"), TIMEOUT)
    expect(status.rc == 37, f"{status}")


@contextmanager
def broker(end: Endpoint) -> Iterator[None]:
    """Listen over uldma, where no program does."""
    job = end.node.spawn(f"exec {run(end, 'sleep 600', f'--serve {HTTP_PORT}')}")
    try:
        wait_until(lambda: end.info()["user"]["listeners"] > 0, TIMEOUT, "a listener")
        yield
    finally:
        job.end()


@case_of(USUAL, IVSHMEM)
def losses(pair: Cluster) -> None:
    """A stream that is cut off is an error for its reader, and no end: by a kill, by the link."""
    lose_peer(pair)
    lose_link(pair)


def lose_peer(pair: Cluster, options: str = "") -> dict[str, Any]:
    """All of the peer is killed. Returns what the reader's `uldma run` counted."""
    a, b = ends_of(pair)
    return cut_off(a, b, options, lambda server: server.kill(signal.SIGKILL))


def lose_link(pair: Cluster, options: str = "") -> dict[str, Any]:
    """The peer's driver is unbound. Returns what the reader's `uldma run` counted."""
    a, b = ends_of(pair)
    unbind, bind = b.binding()
    counts = cut_off(a, b, options, lambda _: b.node.check(unbind))
    b.node.check(bind)
    endpoints.wait_up((a, b))
    return counts


def cut_off(
    a: Endpoint, b: Endpoint, options: str, lose: Callable[[Job], object]
) -> dict[str, Any]:
    """Cut a stream off; its reader gets an error."""
    # In lines, as curl looks for the end of the first one.
    source = f"nc -l -p {RAW_PORT} -e yes"
    # The answer is no HTTP and has no end of its own: only an error tells that it was cut off.
    get = f"curl -sS --http0.9 -o /tmp/endless http://{address(b)}:{RAW_PORT}/"
    with serving(b, source, RAW_PORT, f"--serve {RAW_PORT} {options}") as server:
        reader = a.node.spawn(f"exec {run(a, get, f'--json {options}')}")

        def begun() -> bool:
            expect(reader.running, f"{reader.text('err')}")
            return not a.node.run("test -s /tmp/endless").rc

        try:
            wait_until(begun, TIMEOUT, "a stream")
            lose(server)
            result = reader.wait(LOSS_TIMEOUT)
            expect(result.rc == RECEIVING, f"{result}")
            return report(result.stderr)
        finally:
            reader.end()
            a.node.check("rm -f /tmp/endless")
