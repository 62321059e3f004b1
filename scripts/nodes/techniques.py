# SPDX-License-Identifier: GPL-2.0
"""The techniques of messages, and the work by which each of them can be told from the others."""

from collections.abc import Sequence
from typing import Any

KERNEL = "copy-dma-kernel"
SENDING = ("pio", "copy-dma", KERNEL, "direct-dma", "v2p-dma", "pex-dma")
RECEIVING = ("pio", "copy-dma", KERNEL, "direct-dma", "v2p-dma", "pex-dma", "redirect")
# The driver puts nothing.
REFUSED = (KERNEL, "direct-dma")
# Those that work without an engine, too. The library copies each message.
BY_PROCESSOR = ("pio", "copy-dma")
PAGE = 4096
# Default of --exchange-from.
EXCHANGED_FROM = 16 << 10


def pieces(size: int, length: int) -> list[int]:
    """Returns the lengths of the messages that a file crosses in."""
    return [min(length, size - start) for start in range(0, size, length)]


def long_ones(messages: Sequence[int]) -> list[int]:
    """Returns those that are long enough to be exchanged."""
    return [length for length in messages if length >= EXCHANGED_FROM]


def by_window(sending: str, receiving: str, size: int) -> dict[str, int]:
    """Returns how many bytes the sender's device has to move from the window, and to it."""
    return {
        "bytes_from_window": size if sending == "pio" else 0,
        "bytes_to_window": size if receiving == "pio" else 0,
    }


def work_of_sender(technique: str, messages: Sequence[int]) -> dict[str, int]:
    """Returns what a sender has to report."""
    work = {"pages_pinned": 0, "copied_by_library": 0, "copied_by_driver": 0}
    if technique in BY_PROCESSOR:
        work["copied_by_library"] = sum(messages)
    elif technique == KERNEL:
        work["copied_by_driver"] = sum(messages)
    elif technique == "v2p-dma":
        work["pages_pinned"] = sum(-(-length // PAGE) for length in messages)
    elif technique == "pex-dma":
        work["copied_by_library"] = sum(messages) - sum(long_ones(messages))
        work["sent"] = len(long_ones(messages))
    return work


def work_of_receiver(technique: str, messages: Sequence[int]) -> dict[str, int]:
    """Returns what a receiver whose slots are whole pages has to report."""
    work = {"copied_by_library": 0, "copied_by_driver": 0}
    if technique not in ("v2p-dma", "redirect"):
        work["pages_pinned"] = 0
    if technique in BY_PROCESSOR:
        work["copied_by_library"] = sum(messages)
    elif technique == KERNEL:
        work["copied_by_driver"] = sum(messages)
    elif technique == "pex-dma":
        pages = sum(length // PAGE for length in long_ones(messages))
        work["copied_by_library"] = sum(messages) - pages * PAGE
        work["pages_exchanged"] = pages
    elif technique == "redirect":
        # How many messages come before the call that receives them is a matter of time.
        del work["copied_by_library"]
    return work


def reports(report: dict[str, Any], work: dict[str, int]) -> bool:
    """Returns true if a report of `uldma send` or `uldma recv` has this work."""
    all_of_it = report | report.get("exchange", {})
    return all(all_of_it.get(name) == value for name, value in work.items())
