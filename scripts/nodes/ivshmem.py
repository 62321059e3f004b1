# SPDX-License-Identifier: GPL-2.0
"""The process that gives unmodified QEMU's ivshmem-doorbell its memory and doorbells."""

from pathlib import Path

from .servers import Server

WINDOW = 64 << 20


class IvshmemServer(Server):
    """uldma-ivshmem-server; the node's place in the names is its number."""

    def __init__(self, names: str, run: Path, log: Path) -> None:
        options = ["--size", str(WINDOW), "--vectors", "1"]
        super().__init__("uldma-ivshmem-server", names, run, log, options)
