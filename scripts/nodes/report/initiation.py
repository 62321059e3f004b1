# SPDX-License-Identifier: GPL-2.0
"""Initiation methods: how their figures are compared, as tables and as drawings."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..results import Figure
from . import paper
from .drawing import Drawing, Line
from .fits import Accesses, Model, Point, model, slope
from .tables import Aim, Cell, aims_table, number, plain, ratio, row, table
from .values import Values

KERNEL = "kernel"
# Names that say which methods were measured.
METHOD = re.compile(r"init\.([\w-]+)\.(?:time|min|mmio_stores)|latency\.([\w-]+)\.\d+")
PROCESSES = ("2", "3", "4")
DESTINATIONS = (1, 2, 4, 8, 16)
DESTINATION_METHODS = ("shrimp-1", "shrimp-2-abort")
TOUCHES = {"remote_write": "remote write", "dma": "DMA"}
EMULATED = """\
The nodes are emulated: an access to the device leaves the guest and is carried out by another process, so
it costs more than a system call, where on the paper's machine it cost a fraction of one. Times and
ratios to the kernel's therefore say little of real devices; accesses, system calls and errors by switch
do, and the cost model says what each access costs here.
"""  # noqa: E501


def methods_of(values: Values) -> list[str]:
    """Returns the methods that were measured, in the order of the figures."""
    found = (METHOD.fullmatch(name) for name in values.names())
    return list(dict.fromkeys(match[1] or match[2] for match in found if match))


def user_level(values: Values) -> list[str]:
    """Returns all methods but the kernel's."""
    return [method for method in methods_of(values) if method != KERNEL]


def points(values: Values) -> dict[str, Accesses]:
    """Returns accesses and shortest time of each method."""
    found = {}
    for method in user_level(values):
        cells = [values.get(f"init.{method}.{it}") for it in ("mmio_stores", "mmio_loads", "min")]
        known = [cell for cell in cells if cell is not None]
        if len(known) == len(cells):
            found[method] = Accesses(*known)
    return found


def by_latency(values: Values, method: str) -> list[Point]:
    """Returns latency of the device and time of a method, in nanoseconds."""
    prefix = f"latency.{method}."
    figures = values.starting_with(prefix)
    return sorted((float(it.name.removeprefix(prefix)), it.value) for it in figures)


def of_latency(figures: Sequence[Figure], latency: int) -> list[Figure]:
    """Returns the shortest times under the name latency.METHOD.NANOSECONDS."""
    values = Values(figures)
    return [
        Figure(f"latency.{method}.{latency}", time, "ns")
        for method in methods_of(values)
        if (time := values.get(f"init.{method}.min")) is not None
    ]


def relate(figures: Sequence[Figure]) -> list[Figure]:
    """Compares all times with the kernel's and that with an empty ioctl; appends init.ratio.METHOD
    (the kernel's time by the method's, beside the paper's) and init.model.*."""
    values = Values(figures)
    kernel, nop = values.get("init.kernel.time"), values.get("syscall.nop.time")
    rivals = {f"init.{method}.time" for method in (*user_level(values), "queue.batch")}
    found = []
    for figure in figures:
        if figure.name in rivals:
            found.append(replace(figure, rival=kernel))
        elif figure.name == "init.kernel.time":
            found.append(replace(figure, floor=nop))
        else:
            found.append(figure)
    for method in user_level(values):
        own = ratio(kernel, values.get(f"init.{method}.time"))
        if own is not None:
            beside = ratio(paper.INITIATION[KERNEL], paper.INITIATION.get(method))
            found.append(Figure(f"init.ratio.{method}", own, "ratio", rival=beside))
    if fitted := model(list(points(values).values())):
        for part in ("fixed", "store", "load"):
            found.append(Figure(f"init.model.{part}", getattr(fitted, part), "ns"))
    return found


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    return [
        table_1(values),
        cost_model(values),
        latencies(values),
        destinations(values),
        touches(values),
        switches(values),
        EMULATED if values.emulated and points(values) else None,
        aims_table(aims(values)),
    ]


def table_1(values: Values) -> str | None:
    """The paper's table 1."""
    kernel = values.micro("init.kernel.time")
    rows = []
    methods = methods_of(values)
    for method in (*methods, "queue.batch"):
        time = values.micro(f"init.{method}.time")
        if time is None:
            continue
        beside = paper.INITIATION.get(method)
        name = f"init.{method}"
        cells = [time, *(values.micro(f"{name}.{it}") for it in ("min", "mean", "data.time"))]
        cells.append(beside)
        for what in ("stores", "loads"):
            mmio = values.get(f"{name}.mmio_{what}")
            cells.append(values.get(f"{name}.control_{what}") if mmio is None else mmio)
        cells.append(values.get(f"{name}.syscalls"))
        cells += [ratio(kernel, time), ratio(paper.INITIATION[KERNEL], beside)]
        rows.append(row(method, cells))
    nop = values.micro("syscall.nop.time")
    if nop is not None:
        rows.append(row("(empty ioctl)", [nop, *[None] * 9]))
    return table(
        "Table 1: one initiation, us, arguments only; the paper's times beside",
        [
            *("method", "median", "shortest", "mean", "with data", "paper"),
            *("stores", "loads", "syscalls", "kernel by it", "paper"),
        ],
        rows,
    )


def cost_model(values: Values) -> str | None:
    """The cost model, and how far each method is from it."""
    found = points(values)
    fitted = model(list(found.values()))
    if fitted is None:
        return None
    rows = []
    for method, point in found.items():
        said = fitted.cost(point.stores, point.loads)
        rows.append(row(method, [point.time / 1e3, said / 1e3, ratio(point.time, said)]))
    rows += kernel_row(values, fitted)
    fixed, store, load = (number(it / 1e3) for it in (fitted.fixed, fitted.store, fitted.load))
    return table(
        f"Cost model: {fixed} us + {store} us for each store + {load} us for each load",
        ["method", "shortest us", "model us", "ratio"],
        rows,
    )


def kernel_row(values: Values, fitted: Model) -> list[list[str]]:
    """The kernel's accesses by the model, and an empty system call."""
    nop, time = values.get("syscall.nop.time"), values.get("init.kernel.min")
    if nop is None or time is None:
        return []
    said = nop + fitted.cost(*paper.KERNEL_ACCESSES)
    name = "kernel: empty ioctl, 3 stores, 1 load"
    return [row(name, [time / 1e3, said / 1e3, ratio(time, said)])]


def latencies(values: Values) -> str | None:
    """How the time of each method grows with the latency of an access."""
    rows = []
    for method in methods_of(values):
        found = by_latency(values, method)
        growth = slope(found)
        if growth is not None:
            accesses = paper.KERNEL_ACCESSES if method == KERNEL else paper.accesses(method)
            ends = (found[0][1] / 1e3, found[-1][1] / 1e3)
            rows.append(row(method, [*ends, growth, sum(accesses)]))
    return table(
        "A slower device: us at the shortest and the longest latency, and growth by latency",
        ["method", "shortest", "longest", "growth", "accesses"],
        rows,
    )


def destinations(values: Values) -> str | None:
    """What transfers from one page to several destinations in turn cost (section 2.4)."""
    rows = []
    for count in DESTINATIONS:
        cells: list[Cell] = []
        for method in DESTINATION_METHODS:
            name = f"destinations.{method}.{count}"
            cells += [values.micro(f"{name}.time"), values.get(f"{name}.syscalls")]
        if any(cell is not None for cell in cells):
            rows.append(row(str(count), [*cells, ratio(cells[0], cells[2])]))
    remap = number(values.micro("map_out.time"))
    nop = number(values.micro("syscall.nop.time"))
    return table(
        f"Destinations in turn, of one source page: us of each initiation; to map it out anew "
        f"takes {remap} us, an empty ioctl {nop} us",
        ["destinations", "shrimp-1", "syscalls", "shrimp-2-abort", "syscalls", "by it"],
        rows,
    )


def touches(values: Values) -> str | None:
    """How often each word crosses the memory bus of the host that sends it (section 1)."""
    rows = []
    for way, title in TOUCHES.items():
        cells = [values.get(f"touches.{way}.{who}") for who in ("processor", "device")]
        known = [cell for cell in cells if cell is not None]
        if len(known) == len(cells):
            rows.append(row(title, [*known, sum(known), paper.TOUCHES[way]]))
    return table(
        "Accesses of the sending host's memory bus, for each word that is sent",
        ["", "processor", "device", "both", "paper"],
        rows,
    )


def switches(values: Values) -> str | None:
    """Errors by switch, beside those of the paper and of simulations."""
    rows = []
    for processes in PROCESSES:
        names = (
            *("errors_per_100", "fails_per_100", "switches_per_s"),
            *("errors_per_s", "started_per_s"),
        )
        cells: list[Cell] = [values.get(f"switch.{processes}.{name}") for name in names]
        if cells[0] is not None:
            rows.append(row(f"{processes} processes", cells))
    if not rows:
        return None
    errors, fails = ("-".join(map(plain, it)) for it in (paper.ERRORS, paper.FAILS))
    rows.append(["the paper", errors, fails, "100", errors, "-"])
    for name, simulated in (
        ("its machine, simulated", paper.SIMULATED),
        ("a re-arming one, simulated", paper.REARMING),
    ):
        rows.append(row(name, [*simulated, None, None, None]))
    return table(
        "Verification run: repeated-5 in turns of 10 ms on one CPU",
        [
            *("", "errors per 100 switches", "FAILs per 100"),
            *("switches/s", "errors/s", "started/s"),
        ],
        rows,
    )


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""

    def share(what: str, one: str, other: str) -> Cell:
        return ratio(values.get(f"init.{one}.{what}"), values.get(f"init.{other}.{what}"))

    # Other load on the machine prolongs some batches, and not the same for all methods.
    yield Aim("kernel by queue, shortest times", share("min", KERNEL, "queue"), least=50)
    together = share("min", KERNEL, "queue.batch")
    yield Aim("kernel by queue, submitted together, shortest", together, least=50)
    rate = values.get("model.queue.rate")
    yield Aim("descriptors per second, in the model", rate, least=5e6)
    # One lucky batch of either would decide otherwise: both wait for the device.
    store = share("time", "single-store", "extended-shadow")
    yield Aim("single-store by extended-shadow, medians", store, most=1)
    for method in user_level(values):
        counts = dict(zip(("mmio_stores", "mmio_loads"), paper.accesses(method), strict=True))
        for what, count in (counts | {"syscalls": 0.0}).items():
            value = values.get(f"init.{method}.{what}")
            # A device that sleeps has to be woken, once at most; how often depends on other load.
            wakes = method == "queue" and what == "mmio_stores"
            least, most = (None, 1.0) if wakes else (count, count)
            yield Aim(f"{method}: {what}", value, least, most)
    yield from touch_aims(values)
    yield Aim("switch: errors_per_100", values.get("switch.errors_per_100"), 108, 116)
    yield Aim("switch: fails_per_100", values.get("switch.fails_per_100"), 92, 99)


def touch_aims(values: Values) -> Iterator[Aim]:
    """Yields the accesses of the memory bus; those that start a transfer add a little to DMA."""
    for way, title in TOUCHES.items():
        processor, device = (values.get(f"touches.{way}.{it}") for it in ("processor", "device"))
        both = None if processor is None or device is None else processor + device
        paper_has = paper.TOUCHES[way]
        yield Aim(f"touches of each word: {title}", both, paper_has, paper_has + 0.01)


def drawings(values: Values) -> list[Drawing]:
    """Returns all drawings."""
    lines = [
        (method, [(latency / 1e3, time / 1e3) for latency, time in by_latency(values, method)])
        for method in methods_of(values)
    ]
    return [
        Drawing(
            "initiation-accesses.svg",
            "One initiation, by the accesses to the device that it makes",
            "stores and loads",
            "us",
            by_accesses(values),
            logarithmic=False,
        ),
        Drawing(
            "initiation-latency.svg",
            "One initiation, by the time that the device adds to each access",
            "us for each access",
            "us",
            lines,
            logarithmic=False,
        ),
    ]


def by_accesses(values: Values) -> list[Line]:
    """A dot for each method, and the model's line."""
    found = points(values)
    lines: list[Line] = [
        (method, [(it.stores + it.loads, it.time / 1e3)]) for method, it in found.items()
    ]
    if fitted := model(list(found.values())):
        said = [
            (it.stores + it.loads, fitted.cost(it.stores, it.loads) / 1e3) for it in found.values()
        ]
        lines.append(("cost model", sorted(said)))
    return lines
