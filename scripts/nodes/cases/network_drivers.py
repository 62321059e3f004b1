# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of network drivers, unmodified, with the other node as the remote."""

from dataclasses import replace

from .. import driver_tests, endpoints, network
from ..cluster import Cluster
from ..kernel import DEBUG
from ..ktap import TestCounts, without_successes
from ..network import Server
from .registry import Skip, case, expect

TIMEOUT = 400.0
PROGRAMS = ("ping.py", "stats.py")
# The network by which the tests control the remote, which is not the one that they test.
REMOTE = "10.0.0.2"
SSHD = "exec /usr/sbin/sshd -D -e -f /dev/null -h /tmp/host -o PidFile=none -o StrictModes=no"
# The tests run a command by ssh each time: all go over one connection.
SSH_CONFIG = """Host *
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  ControlMaster auto
  ControlPath /tmp/control-%h
  ControlPersist yes
"""


def share_key(pair: Cluster) -> None:
    """Let root of node A become root of node B without being asked."""
    for node, file in ((pair.a, "/root/.ssh/id_ed25519"), (pair.b, "/tmp/host")):
        node.check("mkdir -p -m 700 /root/.ssh && mkdir -p -m 755 /run/sshd")
        node.check(f"ssh-keygen -q -t ed25519 -N '' -f {file}")
    pair.a.check(f"cat >/root/.ssh/config <<'END'\n{SSH_CONFIG}END")
    key = pair.a.check("cat /root/.ssh/id_ed25519.pub").strip()
    pair.b.check(f"echo '{key}' >/root/.ssh/authorized_keys")


@case
def unmodified(pair: Cluster) -> None:
    """The tests of these programs pass."""
    if DEBUG:
        raise Skip("Python takes the debug kernel too long")
    config = replace(pair.config, archives=(driver_tests.archive(),))
    with Cluster(f"{pair.scenario}-drivers", config) as own:
        ends = endpoints.of(own)
        endpoints.wait_up(ends)
        a, b = network.up(ends)
        share_key(own)
        variables = (
            f"NETIF={a.name} LOCAL_V4={a.address} REMOTE_V4={b.address} "
            f"REMOTE_TYPE=ssh REMOTE_ARGS=root@{REMOTE}"
        )
        with Server.start(b, SSHD, 22):
            own.a.check(f"ssh root@{REMOTE} true", network.PROGRAM_TIMEOUT)
            for program in PROGRAMS:
                command = f"cd {driver_tests.TESTS} && {variables} python3 ./{program}"
                result = own.a.run(command, TIMEOUT)
                counts = TestCounts()
                count = counts.add_ktap(program, result.stdout)
                expect(
                    count > 0 and not counts.failed,
                    f"{program}: {without_successes(result.stdout)}{result.stderr}",
                )
        own.check_logs()
