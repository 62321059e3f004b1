# SPDX-License-Identifier: GPL-2.0
"""Network interfaces over the link: one for each device, and what programs need of them."""

import ipaddress
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .agent import Job, Result
from .endpoints import LOSS_TIMEOUT, UP_TIMEOUT, Endpoint
from .errors import NodesError
from .node import Node
from .polling import wait_until

# The driver's names of interfaces, by the number of the device.
INTERFACE = "ul{}"
# Each device's nodes are a network of their own.
NETWORK = "10.117.{}.0/24"
# One that is much slower than any interface.
PROGRAM_TIMEOUT = 120.0
CAPTURE_TIMEOUT = 30.0
FLOW_TIMEOUT = 60.0
# By which one sees that a stream goes on.
SOME = 1 << 20
# Where iperf3 and netserver listen.
IPERF_PORT = 5201
NETPERF_PORT = 12865
# A program that waits for packets says so.
CAPTURING = "listening on"
# Of an address that may be another node's, too: IFA_F_TENTATIVE.
TENTATIVE = 0x40
# The shell of a node has programs of this name itself.
PING = "/usr/bin/ping"
# Holds a network namespace until it is ended, with the files about its interfaces.
HOLD = (
    "exec unshare -n -m sh -c "
    "'mount -t sysfs sysfs /sys && ip link set lo up && echo $$ held && exec tail -f /dev/null'"
)


@dataclass(frozen=True)
class Interface:
    """A network interface of a node, and the IPv4 address that it gets or has.

    If it is in a network namespace of its own, its commands run there: in that of this process.
    """

    end: Endpoint
    name: str
    address: str
    holder: int | None = None

    @staticmethod
    def of(end: Endpoint) -> "Interface":
        """The one that the driver makes for a device."""
        return Interface(end, INTERFACE.format(end.device), address_of(end, NETWORK))

    @property
    def local_address(self) -> str:
        """The IPv6 address that it has by itself, without the interface."""
        listing = self.check("ip -6 addr show dev {name} scope link")
        for word in listing.split():
            if word.startswith("fe80:"):
                return word.partition("/")[0]
        raise NodesError(f"{self}: no address of the link: {listing}")

    def __str__(self) -> str:
        return f"{self.name} of node {self.end.node.name}"

    def attribute(self, name: str) -> str:
        """A file of the interface in sysfs."""
        return self.check(f"cat /sys/class/net/{{name}}/{name}").strip()

    def check(self, command: str, timeout: float = PROGRAM_TIMEOUT) -> str:
        """Run a command with {name} and {address}, which must succeed; its output."""
        return self.end.node.check(self._fill(command), timeout)

    def run(self, command: str, timeout: float = PROGRAM_TIMEOUT) -> Result:
        """Run a command with {name} and {address} to its end, whatever its exit status."""
        return self.end.node.run(self._fill(command), timeout)

    def spawn(self, command: str) -> Job:
        """Start a command with {name} and {address}."""
        return self.end.node.spawn(self._fill(command))

    def _fill(self, command: str) -> str:
        filled = command.format(name=self.name, address=self.address)
        if self.holder is None:
            return filled
        return f"exec nsenter -t {self.holder} -n -m sh -c {shlex.quote(filled)}"

    def up(self) -> None:
        """Bring it up with its address."""
        self.check("ip link set {name} up && ip addr replace {address}/24 dev {name}")

    def has_link(self) -> bool:
        """Whether it can reach any peer."""
        return self.check("cat /sys/class/net/{name}/carrier 2>/dev/null || true").strip() == "1"

    def has_local_address(self) -> bool:
        """Whether packets can have its own IPv6 address of the link as their source."""
        for line in self.check("cat /proc/net/if_inet6").splitlines():
            address, _, _, _, flags, name = line.split()
            if name == self.name and address.startswith("fe80"):
                return not int(flags, 16) & TENTATIVE
        return False

    def exists(self) -> bool:
        """Whether there is such an interface."""
        return not self.run("test -e /sys/class/net/{name}").rc


def address_of(end: Endpoint, networks: str) -> str:
    """An address on the network of a device; the numbers of nodes are unique on a link."""
    network = ipaddress.ip_network(networks.format(end.device))
    return str(network[1 + end.number])


def up(ends: Sequence[Endpoint]) -> list[Interface]:
    """Bring the interfaces of these ends up, and wait until each reaches every other."""
    found = [Interface.of(end) for end in ends]
    up_all(found)
    return found


def up_all(interfaces: Sequence[Interface]) -> None:
    """Bring these up, and wait until each reaches every other."""
    for interface in interfaces:
        interface.up()
    wait_reachable(interfaces)
    for interface in interfaces:
        wait_until(interface.has_local_address, UP_TIMEOUT, f"IPv6 address of {interface}")


@contextmanager
def apart(end: Endpoint, peer: Endpoint) -> Iterator[Interface]:
    """Move the interface of an end into a network namespace of its own, as another machine's.

    It gets an address on the network of the peer's, which has another device of the same node.
    """
    address = address_of(replace(end, device=peer.device), NETWORK)
    interface = replace(Interface.of(end), address=address)
    holder = end.node.spawn(HOLD)
    try:
        holder.wait_output("held", PROGRAM_TIMEOUT)
        number = int(holder.text().split()[0])
        interface.check(f"ip link set {{name}} netns {number}")
        yield replace(interface, holder=number)
    finally:
        holder.end()


def wait_link(interface: Interface) -> None:
    """Wait until an interface can reach any peer."""
    wait_until(interface.has_link, UP_TIMEOUT, f"link of {interface}")


def wait_no_link(interface: Interface) -> None:
    """Wait until an interface has noticed that it reaches no peer."""
    wait_until(lambda: not interface.has_link(), LOSS_TIMEOUT, f"no link of {interface}")


def wait_reachable(interfaces: Sequence[Interface]) -> None:
    """Wait until each interface reaches every other, as their peers have to be known first."""

    def reaches(here: Interface, there: Interface) -> bool:
        return not here.run(f"{PING} -c 1 -W 1 -I {here.name} {there.address}").rc

    for here in interfaces:
        wait_link(here)
        for there in interfaces:
            if here != there:
                wait_until(partial(reaches, here, there), UP_TIMEOUT, f"{here} reaches {there}")


def ping(here: Interface, address: str, options: str = "") -> None:
    """Let packets go and come back, and raise if one is missing or changed.

    One at a time, as ping waits for the last of many no longer than two round trips.
    """
    command = f"{PING} -n -c 1 -W 20 {options} -I {here.name} {address}"
    said = here.check(f"for i in 1 2 3; do {command} || exit 1; done")
    # ping compares the bytes, and says if they differ, but ends well.
    if "wrong data" in said or "DUP!" in said:
        raise NodesError(f"{here}: {command}: {said}")


@dataclass(frozen=True)
class Server:
    """A program that waits on a port of an interface until it is ended."""

    job: Job

    @staticmethod
    def start(there: Interface, command: str, port: int) -> "Server":
        """Start it, and wait until the port is open."""
        server = Server(there.spawn(command))
        open_port = f"netstat -tln | grep -q ':{port} '"

        def ready() -> bool:
            if not server.job.running:
                raise NodesError(f"{there}: {command}: {server.job.text('err')}")
            return not there.run(open_port).rc

        try:
            wait_until(ready, PROGRAM_TIMEOUT, f"{there}: port {port} of {command}")
        except BaseException:
            server.job.end()
            raise
        return server

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.job.end()


@contextmanager
def netserver(there: Interface) -> Iterator[str]:
    """A server of netperf; the command that makes round trips of one byte, to add options to."""
    with Server.start(there, f"exec netserver -D -L {{address}} -p {NETPERF_PORT}", NETPERF_PORT):
        yield f"netperf -P 0 -H {there.address} -p {NETPERF_PORT} -t TCP_RR"


@contextmanager
def busy_polling(nodes: Sequence[Node], microseconds: int) -> Iterator[None]:
    """Let calls that wait for packets poll interfaces for so long before they sleep."""

    def switch(value: int) -> None:
        for node in nodes:
            node.check(f"sysctl net.core.busy_read={value} net.core.busy_poll={value}")

    switch(microseconds)
    try:
        yield
    finally:
        switch(0)


def iperf(here: Interface, there: Interface, options: str) -> dict[str, Any]:
    """Run iperf3 against a server that is there; its report."""
    result = here.run(f"iperf3 -J -c {there.address} {options}")
    try:
        report: dict[str, Any] = json.loads(result.stdout)
    except ValueError as error:
        raise NodesError(f"iperf3 {options}: {result}") from error
    if result.rc or "error" in report:
        raise NodesError(f"iperf3 {options}: exit {result.rc}: {report.get('error')}")
    return report


def wait_flow(there: Interface) -> None:
    """Wait until more of a stream has arrived."""

    def received() -> int:
        return int(there.attribute("statistics/rx_bytes"))

    before = received()
    wait_until(lambda: received() > before + SOME, FLOW_TIMEOUT, f"more bytes for {there}")


def capture(there: Interface, count: int, expression: str) -> Job:
    """Let tcpdump take packets of an interface, and wait until it does."""
    job = there.spawn(f"exec tcpdump -Z root -nn -U -i {{name}} -c {count} '{expression}'")
    job.wait_output(CAPTURING, CAPTURE_TIMEOUT)
    return job
