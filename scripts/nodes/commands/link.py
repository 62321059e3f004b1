# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about the link: round trips and streams by size, on every backend."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from .. import broadcasts, endpoints, handlers, probes, results
from ..agent import Job
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..qemu import Backend, Config
from ..report.link import relate
from ..results import Figure

TIMEOUT = 300.0
# Bytes per second of an engine that is slow beside the host's processor.
PACE = 250_000_000


@dataclass(frozen=True)
class Setting:
    """How nodes differ from the usual ones; a boot each, since parameters can be set only once."""

    module: Mapping[str, str] = field(default_factory=dict)
    device: tuple[str, ...] = ()


# By the word that figures end with.
SETTINGS: Mapping[str, Setting] = {
    "poll": Setting({"link_poll_us": "20"}),
    "busy_poll0": Setting({"link_busy_poll_us": "0"}),
    "busy_poll1000": Setting({"wakeup_us": "1000"}),
    "uncached": Setting({"window_wc": "0"}),
    "paced": Setting(device=("--bandwidth", str(PACE))),
}
# Keeps a processor busy, at the same priority as the probe.
SPINNER = "while :; do :; done"


def run(here: Endpoint, there: Endpoint, options: str = "") -> list[Figure]:
    """Returns the figures of uldma-bench link between two ends, compared with each other."""
    return relate(probes.run_with_server(here, there, f"link {options}", TIMEOUT))


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Keeps every processor of every node busy."""
    spinners: list[Job] = [
        node.spawn(SPINNER) for node in cluster.nodes.values() for _ in range(cluster.config.cpus)
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()


def rings(pair: Cluster) -> list[Figure]:
    """Measures rings between two adapters, beside bare words, copies into the window and TCP."""
    [here, there] = endpoints.of(pair)
    say("measuring rings ...")
    figures = run(here, there, "--rings")
    results.write("ring", figures)
    return figures


def measure(pair: Cluster) -> list[Figure]:
    """Measures between two adapters: all sizes, then in brief under load."""
    [here, there] = endpoints.of(pair)
    say("measuring the link ...")
    figures = run(here, there)
    say("measuring the link of nodes that are busy ...")
    with load(pair):
        figures += run(here, there, "--brief --suffix loaded")
    figures += handlers.measure((here, there))
    figures += broadcasts.measure(here, there)
    results.write("link", figures)
    return figures


def other_backends(config: Config) -> list[Figure]:
    """Measures without an adapter: ivshmem between two nodes, the loopback within one."""
    config = replace(config, backends=(Backend.IVSHMEM, Backend.LOOPBACK))
    figures = []
    with Cluster("bench-link", config) as pair:
        for backend in config.backends:
            say(f"measuring the link by {backend} ...")
            found = endpoints.find(pair, backend)
            # On a loopback each node is a link of its own.
            here, there = found[:2]
            figures += run(here, there)
        pair.check_logs()
    return figures


def other_settings(config: Config) -> list[Figure]:
    """Measures between adapters in brief, in each of the other ways."""
    figures = []
    for word, setting in SETTINGS.items():
        other = replace(config, module={**config.module, **setting.module})
        with Cluster("bench-link", other, device_options=list(setting.device)) as pair:
            [here, there] = endpoints.of(pair)
            options = [f"{name}={value}" for name, value in setting.module.items()]
            say(f"measuring the link with {' '.join([*options, *setting.device])} ...")
            figures += run(here, there, f"--brief --suffix {word}")
            pair.check_logs()
    return figures


def add(figures: list[Figure]) -> None:
    """Writes all figures again, with those that came later."""
    results.write("link", figures)
