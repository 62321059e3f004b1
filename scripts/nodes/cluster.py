# SPDX-License-Identifier: GPL-2.0
"""Nodes, most often two, and what joins them."""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from . import initramfs, qemu
from .accel import ACCELERATOR, TCG
from .console import say
from .device import Device
from .errors import KernelReport, NodeDied, TimedOut, is_defect
from .ivshmem import IvshmemServer
from .locks import Lock
from .node import Node
from .paths import ARCHIVES, LOGS, RUN
from .qemu import Backend
from .servers import Server

# By the number of a node on its links.
NAMES = "abcdefgh"
# Nodes with a network.
NETWORKED = "ab"
# Bytes of the window that joins the nodes.
WINDOW = 64 << 20
# Devices of one machine's loopback.
LOOPBACK_NODES = 2


class Cluster:
    """Boots nodes a and b unless told otherwise; use it as a context manager.

    The scenario's name keeps its sockets and logs (build/logs/NAME-a.log) apart from others'. The
    i-th node is number i on every link.
    """

    def __init__(
        self,
        scenario: str,
        config: qemu.Config | None = None,
        *,
        names: str = "ab",
        window: int = WINDOW,
        device_options: list[str] | None = None,
    ) -> None:
        assert NAMES.startswith(names)
        self.scenario = scenario
        self.names = names
        self.config = _with_links(config or qemu.Config(), len(names))
        self.device: Device | None = None
        self.nodes: dict[str, Node] = {}
        self.run_dir = RUN / scenario
        self._ivshmem: IvshmemServer | None = None
        self._window = window
        self._device_options = device_options or []
        self._lock: Lock | None = None

    @property
    def a(self) -> Node:
        """Node A."""
        return self.nodes["a"]

    @property
    def b(self) -> Node:
        """Node B."""
        return self.nodes["b"]

    @property
    def c(self) -> Node:
        """Node C, of three or more."""
        return self.nodes["c"]

    def number(self, name: str) -> int:
        """A node's number on its links."""
        return NAMES.index(name)

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
        nodes = list(self.nodes.values())
        self.stop()
        if isinstance(error, Exception):
            _check_after(error, nodes)

    def _start(self) -> None:
        began = time.monotonic()
        self._lock = Lock(self.scenario)
        self._start_servers()
        for name in self.names:
            self._prepare(name)
        if self.names:
            accel = self._boot_all(ACCELERATOR.choose())
            say(
                f"{' and '.join(self.names)} up after {time.monotonic() - began:.1f} s "
                f"({accel.split(',')[0]}); log build/logs/{self.scenario}-a.log"
            )

    def _boot_all(self, accel: str) -> str:
        """Boot the nodes side by side, once more if that failed by what runs them; what did."""
        joints = self._joints()
        try:
            for name in self.names:
                self._boot(name, joints.get(name), accel)
            for joint in joints.values():
                for end in joint.ends():
                    end.close()
            for node in self.nodes.values():
                node.wait_ready()
        except (NodeDied, TimedOut) as error:
            if not ACCELERATOR.doubt(accel, str(error).splitlines()[0]):
                raise
            self._end_nodes()
            return self._boot_all(TCG)
        ACCELERATOR.proven(accel)
        return accel

    def _joints(self) -> dict[str, qemu.Joint]:
        """What joins two nodes beside uldma, by their names; nothing joins one node."""
        if len(self.names) < len(NETWORKED):
            return {}
        networks: Sequence[socket.socket] = socket.socketpair()
        characters: Sequence[socket.socket | None] = (None, None)
        if self.config.character:
            characters = socket.socketpair()
        joints = map(qemu.Joint, networks, characters)
        return dict(zip(NETWORKED, joints, strict=True))

    def _start_servers(self) -> None:
        backends = self.config.backends
        if Backend.ADAPTER in backends:
            log = LOGS / f"{self.scenario}-device.log"
            self.device = Device(self.names, self.run_dir, log, self._window, self._device_options)
        if Backend.IVSHMEM in backends:
            log = LOGS / f"{self.scenario}-ivshmem.log"
            vectors = [self.config.vectors_of(name).server for name in self.names]
            self._ivshmem = IvshmemServer(self.names, self.run_dir, log, self._window, vectors)

    def _prepare(self, name: str) -> None:
        """Make a node's file system, and forget the logs of earlier runs."""
        payload = initramfs.payload if self.config.tests else initramfs.small_payload
        parts = [initramfs.base(), payload()]
        if self.config.programs:
            parts.append(initramfs.programs())
        if name == "a" and self.config.files:
            archive = ARCHIVES / f"{self.scenario}-extra.cpio"
            parts.append(initramfs.extra(self.config.files, archive))
        if self.config.brought:
            archive = ARCHIVES / f"{self.scenario}-brought.cpio"
            parts.append(initramfs.archive_files(self.config.brought, archive))
        parts += self.config.archives
        initramfs.join(parts, self._initrd(name))
        for log in (self._log(name), self._log(name).with_suffix(".qemu.log")):
            log.unlink(missing_ok=True)

    def _initrd(self, name: str) -> Path:
        return ARCHIVES / f"{self.scenario}-{name}.cpio"

    def _log(self, name: str) -> Path:
        return LOGS / f"{self.scenario}-{name}.log"

    def _boot(
        self,
        name: str,
        joint: qemu.Joint | None,
        accel: str,
        config: qemu.Config | None = None,
    ) -> None:
        self.nodes[name] = Node(
            name,
            config=config or self.config,
            accel=accel,
            initrd=self._initrd(name),
            run=self.run_dir,
            log=self._log(name),
            device=self.device.sockets[name] if self.device else None,
            ivshmem=self._ivshmem.sockets[name] if self._ivshmem else None,
            joint=joint,
        )

    def revive(self, name: str, cmdline: str = "") -> None:
        """Boot a node that was killed anew, without a network, and with this for its kernel."""
        config = replace(self.config, cmdline=f"{self.config.cmdline} {cmdline}")
        self._boot(name, None, ACCELERATOR.choose(), config)
        self.nodes[name].wait_ready()

    def restart(self, name: str) -> None:
        """End a node as a power failure would, and boot it anew."""
        self.nodes[name].kill()
        self.revive(name)

    @property
    def _servers(self) -> list[Server]:
        return [server for server in (self.device, self._ivshmem) if server]

    def check_logs(self) -> None:
        """Raise if a kernel or a server has something to complain about."""
        with ThreadPoolExecutor(len(self.names) or 1) as pool:
            checks = [pool.submit(node.check_log) for node in self.nodes.values()]
            checks += [pool.submit(server.check) for server in self._servers]
        errors = [error for check in checks if (error := check.exception())]
        if errors:
            # A node that does not answer shall not hide what another one reports.
            raise max(errors, key=is_defect)

    def stop(self) -> None:
        """End everything."""
        self._end_nodes()
        for server in self._servers:
            server.stop()
        self.device = self._ivshmem = None
        if self._lock:
            self._lock.release()
            self._lock = None

    def _end_nodes(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self.nodes.clear()

    def abandon(self) -> None:
        """Let whatever waits for a node fail; it may be another thread that waits."""
        for node in list(self.nodes.values()):
            node.abandon()


def _check_after(error: Exception, nodes: Sequence[Node]) -> None:
    """Raise what kernels have reported, where a failure kept the logs from being checked."""
    for node in nodes:
        try:
            node.log.check()
        except KernelReport as report:
            raise KernelReport(f"{error}\n{report}") from error


def _with_links(config: qemu.Config, nodes: int) -> qemu.Config:
    """Tell the module what it cannot find out: how many nodes there are without an adapter."""
    module = dict(config.module)
    if Backend.IVSHMEM in config.backends:
        module.setdefault("ivshmem_nodes", str(nodes))
    if Backend.LOOPBACK in config.backends:
        module.setdefault("loopback", str(LOOPBACK_NODES))
    return replace(config, module=module)
