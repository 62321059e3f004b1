# SPDX-License-Identifier: GPL-2.0
"""Files that cross from one end of a link to another by a connection."""

from collections.abc import Sequence
from dataclasses import dataclass

from .agent import Job
from .endpoints import Endpoint
from .errors import NodesError

TIMEOUT = 120.0
# Of `uldma` itself, for the peer to listen or connect; shorter than that of its caller.
LIMIT = "--timeout 60"
BEGUN = 65536


@dataclass(frozen=True)
class FileTransfer:
    """A file of random bytes on its way from one end to another."""

    sender: Endpoint
    receiver: Endpoint
    sent: str
    received: str
    listener: Job
    client: Job

    @staticmethod
    def start(
        sender: Endpoint,
        receiver: Endpoint,
        port: int,
        size: int,
        options: str = "",
        accept: str = "--once",
    ) -> "FileTransfer":
        """Make the file, and start both ends: options of the connecting and the listening one."""
        sent, received = f"/tmp/sent-{port}", f"/tmp/received-{port}"
        sender.node.check(f"head -c {size} /dev/urandom >{sent}", TIMEOUT)
        listener = receiver.spawn(f"listen {port} {accept} {LIMIT} >{received}")
        client = sender.spawn(f"connect {receiver.number} {port} --wait {LIMIT} {options} <{sent}")
        return FileTransfer(sender, receiver, sent, received, listener, client)

    def finish(self) -> None:
        """Raise unless all bytes have arrived, and only these."""
        what = f"from {self.sender.name} to {self.receiver.name}"
        try:
            for job in (self.client, self.listener):
                result = job.wait(TIMEOUT)
                if result.rc:
                    raise NodesError(f"{what}: exit {result.rc} of {job.command}\n{result.stderr}")
            digests = [
                end.node.check(f"sha256sum {path} && rm {path}", TIMEOUT).split()[0]
                for end, path in ((self.sender, self.sent), (self.receiver, self.received))
            ]
            if digests[0] != digests[1]:
                raise NodesError(f"{what}: the file has arrived changed")
        finally:
            self.client.end()
            self.listener.end()


def discard_stream(receiver: Endpoint, port: int, accept: str = "--once") -> Job:
    """Let an end listen and throw away what comes; the job says "begun" when much has come."""
    listen = receiver.command(f"listen {port} {accept} {LIMIT}")
    reader = f"{{ head -c {BEGUN} >/dev/null && echo begun; cat >/dev/null; }}"
    return receiver.node.spawn(f"set -o pipefail; {listen} | {reader}")


def send_file(
    sender: Endpoint,
    receiver: Endpoint,
    port: int,
    size: int,
    options: str = "",
    accept: str = "--once",
) -> None:
    """Let a file cross, and raise unless it arrives unchanged."""
    FileTransfer.start(sender, receiver, port, size, options, accept).finish()


def send_files_each_way(ends: Sequence[Endpoint], port: int, size: int) -> None:
    """Let a file cross from every end to every other, all at the same time."""
    pairs = [(here, there) for here in ends for there in ends if here != there]
    transfers = [
        FileTransfer.start(here, there, port + number, size)
        for number, (here, there) in enumerate(pairs)
    ]
    for transfer in transfers:
        transfer.finish()
