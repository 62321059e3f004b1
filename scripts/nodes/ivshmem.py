# SPDX-License-Identifier: GPL-2.0
"""The process that gives unmodified QEMU's ivshmem-doorbell its memory and doorbells."""

from pathlib import Path

from .servers import Server


class IvshmemServer(Server):
    """uldma-ivshmem-server; the node's place in the names is its number."""

    def __init__(self, names: str, run: Path, log: Path, window: int) -> None:
        options = ["--size", str(window), "--vectors", "1"]
        super().__init__("uldma-ivshmem-server", names, run, log, options)
