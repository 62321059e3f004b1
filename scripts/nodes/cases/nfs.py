# SPDX-License-Identifier: GPL-2.0
"""NFS between two nodes, over the network interface: files, the root of a node, and its swap."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .. import endpoints, network
from ..cluster import Cluster
from ..errors import NodesError
from ..initramfs import BROUGHT
from ..kernel import DEBUG
from ..network import Interface
from ..paths import NETWORK
from ..topologies import USUAL
from .registry import Skip, case_of, expect

EXPORT = "/export"
NFSD = "/proc/fs/nfsd"
# What a node needs to go on with another root, and to show that it does.
ROOT = "/bin /sbin /lib /lib64 /etc /usr/bin /usr/sbin /usr/lib64 /usr/lib/x86_64-linux-gnu"
# Files are opened after the grace period of the server, which has no record of its clients. This is
# the shortest, in seconds.
GRACE = 10
START = f"""
mkdir -p {EXPORT} /var/lib/nfs /run/lock
touch /etc/exports /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t tmpfs tmpfs {EXPORT}
modprobe nfsd
mount -t nfsd nfsd {NFSD}
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check '*:{EXPORT}'
rpc.nfsd -N 3 -p 2049 -G {GRACE} 4
"""
STOP = f"rpc.nfsd 0; exportfs -ua; umount {NFSD} {EXPORT}"
MOUNT_TIMEOUT = 60.0
SWAP_MIB = 96
LEFT_MIB = 32
DATA_MIB = 96
FIO_TIMEOUT = 240.0
FIO = (
    f"{BROUGHT}/fio --name=nfs --directory=/mnt/nfs --size=8M --bs=16k --ioengine=psync "
    "--direct=1 --rw=randwrite --verify=crc32c --verify_fatal=1 --do_verify=1"
)
# A swap file on the other node, memory that cannot be swapped, which leaves little, and more data
# than that. The sum is that of the data as it was made.
PRESSURE = f"""
set -e
swapoff /dev/zram0
dd if=/dev/zero of=/mnt/nfs/swap bs=1M count={SWAP_MIB}
sync
chmod 600 /mnt/nfs/swap
mkswap /mnt/nfs/swap
swapon /mnt/nfs/swap
mkdir -p /filled /data
mount -t ramfs ramfs /filled
mount -t tmpfs -o size={SWAP_MIB}M tmpfs /data
echo 3 >/proc/sys/vm/drop_caches
available=$(awk '/^MemAvailable:/ {{ print int($2 / 1024) }}' /proc/meminfo)
dd if=/dev/zero of=/filled/all bs=1M count=$((available - {LEFT_MIB}))
"""
DATA = f"head -c {DATA_MIB << 20} /dev/urandom | tee /data/all | sha256sum"
# Once more than it was written: all of it passes through the little memory that is left.
READ = "sha256sum </data/all && sha256sum </data/all"
SWAPPED = "awk '/^pswpout / { print $2 }' /proc/vmstat"
NO_PRESSURE = """
rm -f /data/all /filled/all
swapoff /mnt/nfs/swap
umount /data /filled
rm /mnt/nfs/swap
"""
PRESSURE_TIMEOUT = 300.0


@contextmanager
def own_pair(pair: Cluster) -> Iterator[Cluster]:
    """Boot a pair of its own: fio is larger than all other programs together, and swap stays on."""
    if DEBUG:
        raise Skip("the debug kernel has no NFS")
    if not NETWORK:
        raise NodesError("there is no fio: scripts/root enter --network brings it")
    config = replace(pair.config, brought=(NETWORK / "root/usr/bin/fio",))
    with Cluster(f"{pair.scenario}-nfs", config) as own:
        yield own
        # That of the other node is checked when it is killed.
        own.b.check_log()


@contextmanager
def server(interface: Interface) -> Iterator[None]:
    """Let the kernel of a node serve a directory by NFS."""
    interface.end.node.check(f"set -e; {START}", MOUNT_TIMEOUT)
    mountd = interface.end.node.spawn("exec rpc.mountd --foreground --no-nfs-version 3")
    try:
        yield
    except BaseException as error:
        if mountd.running:
            raise
        raise NodesError(f"{error}\nrpc.mountd: {mountd.text('err')}") from error
    else:
        interface.end.node.check(f"set -e; {STOP}", MOUNT_TIMEOUT)
    finally:
        mountd.end()


@contextmanager
def mounted(here: Interface, there: Interface) -> Iterator[None]:
    """Mount what a node serves."""
    options = f"vers=4.2,addr={there.address},clientaddr={here.address}"
    here.check("modprobe nfsv4 && mkdir -p /mnt/nfs")
    here.check(f"mount -t nfs4 -o {options} {there.address}:/ /mnt/nfs", MOUNT_TIMEOUT)
    try:
        yield
    finally:
        here.check("umount /mnt/nfs", MOUNT_TIMEOUT)


@case_of(USUAL)
def files_and_root(pair: Cluster) -> None:
    """fio finds what it has written, and a node runs with its root on the other one."""
    with own_pair(pair) as own:
        ends = endpoints.of(own)
        endpoints.wait_up(ends)
        a, b = network.up(ends)
        with server(b):
            with mounted(a, b):
                said = a.check(FIO, FIO_TIMEOUT)
                expect("err= 0" in said, said)
                names = b.check(f"ls {EXPORT}")
                expect(names == "nfs.0.0\n", f"the server has {names}")
            b.check(f"rm {EXPORT}/* && tar -cf - {ROOT} | tar -xf - -C {EXPORT}")
            b.check(f"cd {EXPORT} && mkdir dev proc sys tmp root && echo b >etc/served-by")
            own.a.kill()
            own.revive("a", f"nodes.root={a.name},{a.address},{b.address}")
            root = own.a.check("grep ' / nfs4 ' /proc/mounts")
            expect(root.startswith(f"{b.address}:/ "), f"the root is {root}")
            expect(own.a.check("cat /etc/served-by") == "b\n", "this is another root")
            own.a.check("uldma info --json && echo written by a >/etc/written")
            expect(b.check(f"cat {EXPORT}/etc/written") == "written by a\n", "nothing was written")
            # Nothing of a root that is on the other node can be unmounted.
            own.a.kill()


def sessions(here: endpoints.Endpoint, there: endpoints.Endpoint) -> tuple[int, int]:
    """How often the link came up, and how often the other node broke its rules."""
    peer = here.peer(there)
    return peer["generation"], peer["violations"]


@case_of(USUAL)
def swap_does_not_end_the_link(pair: Cluster) -> None:
    """A node without free memory swaps to a file of the other one: data and the session stay."""
    with own_pair(pair) as own:
        ends = endpoints.of(own)
        endpoints.wait_up(ends)
        a, b = network.up(ends)
        node = own.a
        with server(b), mounted(a, b):
            before = sessions(a.end, b.end), sessions(b.end, a.end)
            node.check(PRESSURE, PRESSURE_TIMEOUT)
            try:
                made = node.check(DATA, PRESSURE_TIMEOUT)
                found = node.check(READ, PRESSURE_TIMEOUT)
                swapped = int(node.check(SWAPPED))
            finally:
                node.check(NO_PRESSURE, PRESSURE_TIMEOUT)
            expect(found == 2 * made, f"{made} is {found}")
            least = DATA_MIB // 8 << 20 >> 12
            expect(swapped > least, f"only {swapped} pages were swapped out, and not {least}")
            after = sessions(a.end, b.end), sessions(b.end, a.end)
            expect(after == before, f"the link was {before}, and is {after}")
