# SPDX-License-Identifier: GPL-2.0
"""Load on both ends of a link, of which one may be made to fail and the other has to go on."""

from types import TracebackType
from typing import Self

from . import endpoints
from .agent import Job
from .cluster import Cluster
from .endpoints import Endpoint
from .errors import NodesError
from .polling import wait_until
from .streams import send_file

PORT = 840
SIZE = 1 << 16
START_TIMEOUT = 30.0
WITNESS_TIMEOUT = 30.0
METHODS = ("extended-shadow", "queue", "kernel")
ROUND = "round"


def again(*commands: str) -> str:
    """A script that runs commands for ever, whatever becomes of them."""
    return f"while :; do {'; '.join(commands)}; usleep 1000; done >/dev/null 2>&1"


class Load:
    """Transfers of both ends, and streams in both directions; use it as a context manager.

    The transfers of b are by its own memory: they have to go on whatever a's device does.
    """

    def __init__(self, a: Endpoint, b: Endpoint) -> None:
        self._a, self._b = a, b
        self._jobs: list[Job] = []
        self._witness: Job | None = None

    def __enter__(self) -> Self:
        for number, (here, there) in enumerate(((self._a, self._b), (self._b, self._a))):
            port = PORT + number
            wait = "--timeout 10"
            self._jobs += [
                there.node.spawn(again(there.command(f"listen {port} --once {wait}"))),
                here.node.spawn(
                    again(here.command(f"connect {there.number} {port} --wait {wait} </dev/zero"))
                ),
            ]
        transfers = [
            self._a.command(f"dma --size 256K --count 8 --timeout 3 --method {method}")
            for method in METHODS
        ]
        self._jobs.append(self._a.node.spawn(again(*transfers)))
        once = self._b.command("dma --size 64K --count 4 >/dev/null")
        self._witness = self._b.node.spawn(f"while {once}; do echo {ROUND}; done")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._witness:
            self._witness.end()

    def wait_flow(self) -> None:
        """Wait until there are connections, and b has transferred something."""
        wait_until(
            lambda: all(end.info()["connections"] >= 2 for end in (self._a, self._b)),
            START_TIMEOUT,
            "streams in both directions",
        )
        self.expect_witness()

    def expect_witness(self) -> None:
        """Wait until b has done another round: one that began, and ended well, from now on."""
        assert self._witness
        witness = self._witness
        enough = witness.text().count(ROUND) + 2

        def went_on() -> bool:
            return witness.text().count(ROUND) >= enough or not witness.running

        wait_until(went_on, WITNESS_TIMEOUT, f"{self._b.name} goes on")
        if not witness.running:
            witness.wait(WITNESS_TIMEOUT)
            raise NodesError(f"{self._b.name} was harmed:\n{witness.text('err')}")

    def stop(self) -> None:
        """End everything but the transfers of b."""
        for job in self._jobs:
            job.end()
        self._jobs.clear()


def works(pair: Cluster) -> None:
    """The link is up, and data crosses both ways."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)
    send_file(b, a, PORT, SIZE)
