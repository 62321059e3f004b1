# SPDX-License-Identifier: GPL-2.0
"""Rings by connections: the kernel sets them up and tells their end."""

from .. import endpoints
from ..cluster import Cluster
from ..streams import LIMIT, discard_stream, send_file
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 800
FILE = 16 << 20
SHORT = 1 << 20
START_TIMEOUT = 30.0
# The kernel tells the end of a process at once; the other one has to wake and to end.
END_TIMEOUT = 10.0
# Exit status of a side that has lost the other.
LOST = 1


@case_of(USUAL, IVSHMEM, LOOPBACK)
def files_arrive_unchanged(pair: Cluster) -> None:
    """Random bytes, written into the other side's memory by the sender."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, FILE, "--ring", "--ring")
    send_file(b, a, PORT, SHORT, "--ring", "--ring")
    # Much smaller than the file, and not a multiple of the messages' size.
    small = "--ring --capacity 4K"
    send_file(a, b, PORT, SHORT + 7, f"{small} --buffer 1000", small)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def killing_one_side_ends_the_other(pair: Cluster) -> None:
    """The side that is left gets an error in time and can connect again."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for killed in ("sender", "receiver"):
        receiver = discard_stream(b, PORT, "--ring")
        sender = a.spawn(f"connect {b.number} {PORT} --ring --wait {LIMIT} </dev/zero")
        receiver.wait_output("begun", START_TIMEOUT)
        gone, left = (sender, receiver) if killed == "sender" else (receiver, sender)
        gone.kill()
        result = left.wait(END_TIMEOUT)
        expect(result.rc == LOST, f"the {killed} was killed: exit {result.rc}\n{result.stderr}")
        expect("went away" in result.stderr, f"the {killed} was killed: {result.stderr}")
    send_file(a, b, PORT, SHORT, "--ring", "--ring")
