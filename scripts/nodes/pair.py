# SPDX-License-Identifier: GPL-2.0
"""Two nodes with the device between them."""

import fcntl
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from . import accel, initramfs, qemu
from .device import Device
from .errors import NodesError
from .node import Node
from .paths import ARCHIVES, BINARIES, LOGS, RUN


def say(message: str) -> None:
    """Progress for people."""
    print(f"nodes: {message}", flush=True)


def boots_with(accelerator: str) -> bool:
    """Whether a guest comes up with this accelerator."""
    run = RUN / f"trial-{os.getpid()}"
    run.mkdir(exist_ok=True)
    node = None
    try:
        node = Node(
            "a",
            config=qemu.Config(load=False, boot_timeout=20.0),
            accel=accelerator,
            initrd=initramfs.base(),
            run=run,
            log=LOGS / f"trial-{accelerator}.log",
        )
        node.wait_ready()
        return True
    except NodesError:
        return False
    finally:
        if node:
            node.stop()
        run.rmdir()


class Pair:
    """Boots node a, and b unless told otherwise; use it as a context manager.

    The scenario's name keeps its sockets and logs (build/logs/NAME-a.log) apart from others'.
    """

    def __init__(
        self,
        scenario: str,
        config: qemu.Config | None = None,
        *,
        names: str = "ab",
        device: bool | None = None,
        device_options: list[str] | None = None,
    ) -> None:
        self.scenario = scenario
        self.config = config or qemu.Config()
        self.names = names
        self.device: Device | None = None
        self.nodes: dict[str, Node] = {}
        self.run_dir = RUN / scenario
        self._with_device = (BINARIES / "uldma-device").exists() if device is None else device
        self._device_options = device_options or []
        self._lock: int | None = None

    @property
    def a(self) -> Node:
        """Node A."""
        return self.nodes["a"]

    @property
    def b(self) -> Node:
        """Node B."""
        return self.nodes["b"]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> None:
        began = time.monotonic()
        self.run_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.run_dir / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise NodesError(f"another 'make {self.scenario}' runs in this tree") from error
        self._lock = lock
        accelerator = accel.choose(boots_with)
        archives = [initramfs.base(), initramfs.payload()]
        if self._with_device:
            log = LOGS / f"{self.scenario}-device.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            self.device = Device(self.run_dir, log, self._device_options)
        networks = dict(zip("ab", socket.socketpair(), strict=True))
        for name in self.names:
            self.nodes[name] = Node(
                name,
                config=self.config,
                accel=accelerator,
                initrd=self._initrd(name, archives),
                run=self.run_dir,
                log=LOGS / f"{self.scenario}-{name}.log",
                device=self.device.sockets[name] if self.device else None,
                network=networks[name] if len(self.names) > 1 else None,
            )
        for end in networks.values():
            end.close()
        for node in self.nodes.values():
            node.wait_ready()
        say(
            f"{' and '.join(self.names)} up after {time.monotonic() - began:.1f} s "
            f"({accelerator.split(',')[0]}); log build/logs/{self.scenario}-a.log"
        )

    def _initrd(self, name: str, archives: list[Path]) -> Path:
        parts = list(archives)
        if name == "a" and self.config.files:
            archive = ARCHIVES / f"{self.scenario}-extra.cpio"
            parts.append(initramfs.extra(self.config.files, archive))
        return initramfs.join(parts, ARCHIVES / f"{self.scenario}-{name}.cpio")

    def check_logs(self) -> None:
        """Raise if a kernel or the device model has something to complain about."""
        for node in self.nodes.values():
            node.check_log()
        if self.device:
            self.device.check()

    def stop(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.stop()
        self.nodes.clear()
        if self.device:
            self.device.stop()
            self.device = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
