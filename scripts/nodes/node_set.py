# SPDX-License-Identifier: GPL-2.0
"""One set of nodes, from its boot to its end, and the tests that run on it one by one."""

import time
import traceback
from collections.abc import Callable, Iterator

from . import leaks, leftovers
from .bodies import Body, case
from .cases.registry import Skip
from .cluster import Cluster
from .errors import NodesError, is_defect
from .kernel import DEBUG, SUFFIX
from .outcome import Outcome
from .topologies import Topology


class NodeSet:
    """The nodes of a topology, as the number-th set of this run."""

    def __init__(self, topology: Topology, number: int) -> None:
        self._topology = topology
        # The first set has the topology's own name.
        self._again = f"-{number}" if number > 1 else ""
        parts = filter(None, ("test", topology.name, SUFFIX.lstrip("-")))
        scenario = "-".join(parts) + self._again
        self._nodes = Cluster(scenario, topology.config, names=topology.nodes)
        # Whether the next test may rely on these nodes.
        self.usable = True

    def boot(self) -> None:
        """Boot the nodes."""
        self._nodes.__enter__()

    def stop(self) -> None:
        """End the nodes."""
        self._nodes.stop()

    def abandon(self) -> None:
        """Let whatever waits for the nodes fail; it may be another thread that waits."""
        self._nodes.abandon()

    def run(self, name: str, body: Body) -> Outcome:
        """Run a test, read the kernel logs after it, and let what it had pinned go."""
        outcome = Outcome(name, scenario=self._nodes.scenario)
        began = time.monotonic()
        self._step(outcome, name, lambda: body(self._nodes, outcome))
        self._step(outcome, f"{name}: kernel log", self._nodes.check_logs)
        if self.usable and self._topology.nodes:
            self._step(outcome, f"{name}: pins", lambda: leftovers.wait_unpinned(self._nodes))
        outcome.seconds = time.monotonic() - began
        return outcome

    def _step(self, outcome: Outcome, what: str, step: Callable[[], None]) -> None:
        """Take a step of a test; no other test shall suffer from what a failure leaves behind."""
        try:
            step()
        except Skip as why:
            outcome.counts.add_skip(what, str(why))
        except Exception as error:
            known = isinstance(error, NodesError)
            outcome.fail(what, str(error) if known else traceback.format_exc())
            outcome.defect |= is_defect(error)
            self.usable = False

    def finish(self) -> Iterator[Outcome]:
        """Look for what the tests have left."""
        checks = [("nodes:leftovers", leftovers.check)]
        if DEBUG:
            checks.append(("nodes:leaks", leaks.check))
        for name, check in checks:
            if self.usable and self._topology.nodes:
                yield self.run(self._topology.full_name(name + self._again), case(check))
