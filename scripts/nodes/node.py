# SPDX-License-Identifier: GPL-2.0
"""A node: one running guest."""

import socket
import subprocess
import time
from pathlib import Path

from . import processes, qemu
from .accel import KVM
from .agent import Agent, Job, Result
from .errors import NodeDied, NodesError, TimedOut
from .kernel_log import SerialLog

MARK_TIMEOUT = 30.0
QUIT_TIMEOUT = 5.0
# In which a node falls asleep: its drivers have to release their devices.
SLEEP_TIMEOUT = 60.0
# How QEMU calls the state of a machine that stands still since KVM has failed.
GIVEN_UP = "internal-error"


class Node:
    """Runs commands in a guest and watches its kernel's log."""

    def __init__(
        self,
        name: str,
        *,
        config: qemu.Config,
        accel: str,
        initrd: Path,
        run: Path,
        log: Path,
        device: Path | None = None,
        ivshmem: Path | None = None,
        joint: qemu.Joint | None = None,
    ) -> None:
        """The logs of a node that is booted anew are appended to."""
        self.name = name
        self.console = run / f"console-{name}"
        self.console.unlink(missing_ok=True)
        self._config = config
        self._accel = accel
        self._marks = 0
        pairs = [socket.socketpair() for _ in range(3)]
        wiring = qemu.Wiring(
            serial=pairs[0][1],
            agent=pairs[1][1],
            monitor=pairs[2][1],
            console=self.console,
            device=device,
            ivshmem=ivshmem,
            joint=joint,
        )
        self._emulator_log = log.with_suffix(".qemu.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._emulator_log.open("ab") as output:
            self._process = processes.start(
                qemu.command(name, config, accel, initrd, wiring),
                output=output,
                keep=wiring.descriptors(),
            )
        for _, theirs in pairs:
            theirs.close()
        self.log = SerialLog(pairs[0][0], log)
        self._agent = Agent(f"node {name}", pairs[1][0])
        self.monitor = qemu.Monitor(pairs[2][0])

    def wait_ready(self) -> None:
        """Wait until the node has booted."""
        try:
            self._agent.wait_ready(self._config.boot_timeout, self._check_processors)
        except (NodeDied, TimedOut) as error:
            emulator = self._emulator_log.read_text().strip()
            raise type(error)(
                f"{error} (QEMU: {self._process.poll()})\n{emulator}\n{self.log.tail()}\n"
                f"({self.log.path})"
            ) from error

    def _check_processors(self) -> None:
        """Raise if KVM has given the guest up: QEMU stays, for a debugger."""
        if self._accel == KVM and self.monitor.execute("query-status")["status"] == GIVEN_UP:
            raise NodeDied(f"node {self.name}: KVM could not execute an instruction")

    def spawn(self, command: str, *, uid: int = 0, stream: bool = False) -> Job:
        """Start a shell command; with stream its output is taken by the job's pieces()."""
        return self._agent.spawn(command, uid=uid, stream=stream)

    def run(self, command: str, timeout: float = 60.0, *, uid: int = 0) -> Result:
        """Run a shell command to its end, whatever its exit status."""
        return self.spawn(command, uid=uid).wait(timeout)

    def check(self, command: str, timeout: float = 60.0, *, uid: int = 0) -> str:
        """Run a command that must succeed; its output."""
        result = self.run(command, timeout, uid=uid)
        if result.rc:
            raise NodesError(
                f"node {self.name}: exit {result.rc} of: {command}\n{result.stdout}{result.stderr}"
            )
        return result.stdout

    def check_log(self) -> None:
        """Raise if the kernel has reported something bad since the last check."""
        self._marks += 1
        mark = f"uldma-mark-{self._marks}."
        try:
            # What the kernel logged before the mark has reached us with it.
            self.run(f"echo '<6>{mark}' >/dev/kmsg", MARK_TIMEOUT)
            self.log.wait_for(mark, MARK_TIMEOUT)
        except (NodeDied, TimedOut):
            self.log.wait_end(QUIT_TIMEOUT)
            self.log.check()
            raise
        self.log.check()

    def freeze(self) -> None:
        """Stop all processors: for others the node hangs."""
        self.monitor.execute("stop")

    def thaw(self) -> None:
        """Let the processors go on."""
        self.monitor.execute("cont")

    def sleep(self) -> Job:
        """Suspend the machine to its memory; the job that goes on when it is awake."""
        job = self.spawn("echo mem >/sys/power/state")
        self._wait_status("suspended", SLEEP_TIMEOUT)
        return job

    def wake(self) -> None:
        """Wake the machine, as its power button would."""
        self.monitor.execute("system_wakeup")

    def _wait_status(self, wanted: str, timeout: float = QUIT_TIMEOUT) -> None:
        """Wait until the machine's state is called so: QEMU answers first and acts then."""
        deadline = time.monotonic() + timeout
        while (status := self.monitor.execute("query-status")["status"]) != wanted:
            if time.monotonic() > deadline:
                raise TimedOut(f"node {self.name} is {status} instead of {wanted}")

    def reset(self) -> None:
        """Reset the machine, as its button would, and wait until it has booted."""
        self.freeze()
        self._agent.forget()
        self.monitor.execute("set-action", reboot="reset")
        self.monitor.execute("system_reset")
        self._wait_status("prelaunch")
        self.thaw()
        self.wait_ready()
        # Not before: the firmware resets once more.
        self.monitor.execute("set-action", reboot="shutdown")

    def kill(self) -> None:
        """End the emulator without a message, and raise if the kernel had reported a defect."""
        self._process.kill()
        self._process.wait()
        self.log.wait_end(QUIT_TIMEOUT)
        self.console.unlink(missing_ok=True)
        self.log.check()

    def abandon(self) -> None:
        """End the emulator, even if a thread waits for the node."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        """Whether the emulator runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the guest at once, as a power failure would."""
        if self.alive:
            try:
                self.monitor.execute("quit")
                self._process.wait(QUIT_TIMEOUT)
            except (NodesError, OSError, ValueError, subprocess.TimeoutExpired):
                pass
        processes.stop(self._process)
        self.log.wait_end(QUIT_TIMEOUT)
        self.console.unlink(missing_ok=True)
