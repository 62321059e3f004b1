# SPDX-License-Identifier: GPL-2.0
"""The process that gives unmodified QEMU's ivshmem-doorbell its memory and doorbells."""

from collections.abc import Sequence
from pathlib import Path

from .servers import Server


class IvshmemServer(Server):
    """uldma-ivshmem-server; the node's place in the names is its number."""

    def __init__(
        self, names: str, run: Path, log: Path, window: int, vectors: Sequence[int]
    ) -> None:
        options = ["--size", str(window)]
        for number in vectors:
            options += ["--vectors", str(number)]
        super().__init__("uldma-ivshmem-server", names, run, log, options)
