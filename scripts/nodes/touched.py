# SPDX-License-Identifier: GPL-2.0
"""Which tests are about what: from the files of a change to the tests that it touches.

All are regular expressions; those of files have to match the whole name, those of tests any part.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from .sources import Selftests

CASES = "scripts/nodes/cases/"
SELFTESTS = "tools/testing/selftests/uldma/"
# Modules of the cases that hold none.
WITHOUT_CASES = ("__init__", "registry")


def _programs(*names: str) -> tuple[str, ...]:
    return tuple(f":uldma_{name}$" for name in names)


OPTIMISTIC = (
    *_programs(
        "optimistic",
        "optimistic_wait",
        "peer_optimistic",
        "optimistic_age",
        "peer_stamps",
        "optimistic_files",
        "optimistic_stamps",
    ),
    "nodes:(optimistic|misses)",
    "nodes:registering",
    "nodes:held",
)
FAILING = _programs("fail_nth", "fail_nth_objects", "fail_nth_devices", "fail_nth_exchange")
MEMORY = (
    *_programs(
        "region",
        "memlock",
        "end",
        "user",
        "lmm",
        "blocks",
        "memory",
        "shared",
        "cache",
        "pressure",
        "allocations",
    ),
    ":uldma_devices$",
    "nodes:registering",
)
STALE = _programs("stale", "stale_event", "stale_race", "kept")
METHODS = (
    *_programs("method", "key", "repeated", "single_store", "shrimp", "atomic", "peer_atomic"),
    "nodes:methods",
    "nodes:initiation",
)
CONTEXTS = (
    *_programs("context", "lend", "stopped", "mmap", "user", "charged"),
    "nodes:waits",
)
QUEUES = _programs("queue", "queue_abuse")
MESSAGES = (
    *_programs("endpoint", "endpoint_size", "msg", "peer_message", "peer_msg"),
    "nodes:(messages|set_up)",
)
EXCHANGE = (
    *_programs("exchange", "exchange_send", "exchange_swap", "exchange_fault", "peer_message"),
    "nodes:(messages|stalled)",
)
TRANSFERS = (
    *_programs("dma", "refuse", "isolation", "inflight", "event"),
    "nodes:(stalled|faults|busy)",
)
EXPORTS = (*_programs("export", "segment", "peer", "charged"), "nodes:alone")
LINK = ("nodes:link", "nodes:loss", "nodes:hostile", "nodes:soak")
CONNECTIONS = (
    *_programs("conn_size", "conn_offer", "conn_ring", "conn_state", "conn_memory"),
    *_programs("conn_wait", "conn_close"),
    "nodes:ring",
    "nodes:set_up",
    "nodes:samples",
    "nodes:matched",
)
INTERFACE = (*_programs("query", "conn_size", "refuse"), *FAILING, "nodes:fuzz")
LIFE = (*_programs("unbind", "decode", "files", "slow_fork"), "nodes:(module|unplug|sleep|waits)")
NETWORK = ("nodes:network", "nodes:hostile")
MAPPED = ("^iommu-", "nodes:bounced")
LOOPBACK = ("^loopback/",)
UNITS = ("^kunit$",)
# What crosses each part once: for changes of which nothing else is known.
BROAD = (
    *UNITS,
    *_programs("query", "region", "lmm", "stale", "context", "method", "queue", "mmap"),
    *_programs("dma", "event", "export", "segment", "peer", "conn_state", "conn_memory"),
    *LIFE,
    r"nodes:(link|ring)\.files_arrive_unchanged",
    "nodes:loss.by_unbinding",
    "^iommu-.*:uldma_dma$",
)

DRIVER: Mapping[str, tuple[str, ...]] = {
    r"\.kunitconfig": (),
    r"(Kconfig|Makefile|kernel_ext/shims\.[ch])": BROAD,
    r"(uapi|uldma_main|params|device/limits)\.rs": BROAD,
    r"(dma|hw|kernel_ext|mem|user|user_abi)\.rs": BROAD,
    r"hw/(layout(/.*)?|registers|geometry|le)\.rs": BROAD,
    r"hw/(health|wait|adapter(/.*)?)\.rs": ("nodes:(stalled|faults|busy)", *BROAD),
    r"kernel_ext/(plain|ratelimit)\.rs": BROAD,
    r"device(/(ask|binding|progress))?\.rs|driver(/adapter)?\.rs": (*LIFE, *BROAD),
    r"hw/gate\.rs|kernel_ext/(pci|gate|sleep|compat(/.*)?|irq_mask(/.*)?)\.rs": (*LIFE, *BROAD),
    r"ring(/.*)?\.rs": (*LINK, "nodes:(ring|ring_streams)"),
    r"hw/doorbell\.rs": (*LINK, *NETWORK, *EXPORTS),
    r"driver/ivshmem\.rs|hw/ivshmem\.rs": (*LIFE, *LINK),
    r"(driver|hw)/loopback\.rs|kernel_ext/faux\.rs": (*LIFE, *LOOPBACK),
    r"mem/(lmm(/.*)?|charge.*)\.rs|user_abi/(access|ledger)\.rs|user/(ioctl/)?region\.rs": (
        *MEMORY,
        *STALE,
        "nodes:held",
        *FAILING,
    ),
    r"kernel_ext/(accounting|global|gup|mmu_notifier|shared_pins|shrinker|sort)\.rs": (
        *MEMORY,
        *OPTIMISTIC,
        *STALE,
        *FAILING,
    ),
    r"kernel_ext/(dma|page_list)\.rs|hw/(table(/.*)?|touch)\.rs|mem/tpt(/.*)?\.rs": (
        *MEMORY,
        *OPTIMISTIC,
        *TRANSFERS,
        *MAPPED,
        "nodes:held",
        *FAILING,
    ),
    r"dma/(context(/.*)?|sched_notify)\.rs|user_abi/(status_page|mmap_offset)\.rs": (
        *CONTEXTS,
        *METHODS,
        *FAILING,
    ),
    r"user/ioctl/context\.rs|kernel_ext/sched_switch\.rs": (
        *CONTEXTS,
        *METHODS,
        *QUEUES,
        *FAILING,
    ),
    r"mem/exchange(/.*)?\.rs|user/(ioctl/exchange|region/[bdew][a-z]+)\.rs": (
        *MEMORY,
        *EXCHANGE,
        *FAILING,
    ),
    r"kernel_ext/(hmm\.(c|h|rs)|(mmu_ageing|interval_tree)\.rs)|hw/page_requests\.rs"
    r"|user_abi/miss_policy\.rs"
    r"|(mem|user/region)/optimistic(/.*)?\.rs": (
        *OPTIMISTIC,
        *LIFE,
        *FAILING,
    ),
    r"user/region/pinned\.rs": (*MEMORY, *STALE, "nodes:held", *FAILING),
    r"user/region/imported\.rs": (*EXPORTS, *FAILING),
    r"mem/slots\.rs|user/(ioctl/|region/)?(message(/.*)?|slots)\.rs|dma/descriptor\.rs": (
        *MESSAGES,
        *FAILING,
    ),
    r"mem/own_pages\.rs": (*MESSAGES, *EXCHANGE, *FAILING, *_programs("stopped")),
    r"kernel_ext/(changes|mapping|timed_lock|vma)\.rs": (
        *CONTEXTS,
        *EXPORTS,
        *METHODS,
        *LIFE,
        *EXCHANGE,
    ),
    r"dma/method\.rs|kernel_ext/random\.rs": METHODS,
    r"dma/engine\.rs|kernel_ext/wait\.rs": (
        *TRANSFERS,
        *CONNECTIONS,
        *FAILING,
        *_programs("stopped"),
    ),
    r"user_abi/events\.rs|kernel_ext/eventfd\.rs": (
        *TRANSFERS,
        *STALE,
        *CONNECTIONS,
        *FAILING,
        *_programs("files"),
    ),
    r"dma/endpoint\.rs|user/(ioctl/)?endpoint\.rs": (*MESSAGES, *FAILING),
    r"dma/queue(/.*)?\.rs|hw/command\.rs|kernel_ext/bh_lock\.rs": (
        *STALE,
        *TRANSFERS,
        *CONNECTIONS,
        *NETWORK,
        *FAILING,
    ),
    r"link/(export|segment(/.*)?)\.rs|kernel_ext/range_alloc\.rs": (
        *EXPORTS,
        *CONNECTIONS,
        *FAILING,
    ),
    r"link/(lane|window_(alloc|range))\.rs": (
        r"nodes:three\.",
        *LINK,
        *CONNECTIONS,
        *EXPORTS,
        *NETWORK,
        *FAILING,
    ),
    r"link(/(?!export|segment|lane|window_).*)?\.rs": (*LINK, *CONNECTIONS, *EXPORTS, *FAILING),
    r"kernel_ext/((window|workqueue|wakeup|noio)\.rs|window\.[ch])": (
        *LINK,
        *CONNECTIONS,
        *EXPORTS,
        *LIFE,
    ),
    r"(kernel_ext/)?net(/.*)?\.rs|dma/send_queue\.rs|hw/lists\.rs": (*NETWORK, *LIFE),
    r"kernel_ext/net(dev|dma|idle|skb)\.[ch]": (*NETWORK, *LIFE),
    r"connection(/.*)?\.rs|user/(ioctl/connection|attachment)\.rs"
    r"|user_abi/offer\.rs|kernel_ext/list\.rs": (
        *CONNECTIONS,
        *LINK,
        *FAILING,
    ),
    r"user/(file|ioctl(/argument)?|watched|open_file(/objects)?)\.rs|user_abi/handles\.rs": (
        *INTERFACE,
        *LIFE,
        *BROAD,
    ),
    r"kernel_ext/(errno|capability|chardev|nospec)\.rs": (*INTERFACE, *LIFE, *BROAD),
    r"user/debugfs\.rs": ("nodes:module", "nodes:registering"),
}

TABLE: Mapping[str, tuple[str, ...]] = {
    **{f"drivers/uldma/(?:{files})": (*tests, *UNITS) for files, tests in DRIVER.items()},
    r"samples/.*": ("nodes:samples", "nodes:tun"),
    r"tools/uldma/(lib|cli|papers/lib)/.*": (
        "nodes:(link|ring|methods|registering|command_line|listeners|tun)",
        "nodes:samples",
        "nodes:soak",
    ),
    # What no node with the debug kernel runs.
    r"tools/uldma/(fuzz|ivshmem|papers/(bench|interleave|touch))/.*|tools/uldma/clippy\.toml": (),
    r"(Documentation|LICENSES)/.*|.*\.(md|rst)|\.gitignore": (),
    r"scripts/(lint|docs|kunit|ruff\.toml|unsafe\.allowed)": (),
    r"scripts/root\.d/(kunit|rdma|network|pytools)\.sh": (),
    r"scripts/nodes/((tests|report)/.*|(machine|probes|results)\.py)": (),
    r"scripts/nodes/fuzzing\.py": ("nodes:fuzz",),
    r"scripts/nodes/commands/(bench|fuzz|initiation|link|lmm|network|report|run)\.py": (),
    r"scripts/nodes/commands/(optimistic|semantics|shell|soak|soft_roce)\.py": (),
}


def patterns(files: Iterable[str], selftests: Selftests, cases: Mapping[str, str]) -> Iterator[str]:
    """What the names of the tests contain that a change of these files touches.

    The cases are the texts of their modules, by name: some run programs of their own.
    """
    for file in files:
        programs = selftests.programs_of(file.removeprefix(SELFTESTS))
        if file.startswith(CASES):
            yield from _of_cases(file.removeprefix(CASES).removesuffix(".py"))
        elif file.startswith(SELFTESTS) and programs:
            for program in programs:
                yield f":{program}$"
                yield from _running(program, cases)
        else:
            yield from _of_file(file)


def _of_cases(module: str) -> Iterable[str]:
    return BROAD if module in WITHOUT_CASES else (rf"nodes:{module}\.",)


def _running(program: str, cases: Mapping[str, str]) -> Iterator[str]:
    for module, text in cases.items():
        if re.search(rf"\b{program}\b", text):
            yield rf"nodes:{module}\."


def _of_file(file: str) -> Iterator[str]:
    """What the table has; a file that it does not know may be about anything."""
    rows = [tests for files, tests in TABLE.items() if re.fullmatch(files, file)]
    for tests in rows or [BROAD]:
        yield from tests
