# SPDX-License-Identifier: GPL-2.0
"""The file system of a node: cpio archives that the kernel unpacks one over the other.

The base (busybox, agent, kernel modules) changes rarely and is cached; the payload holds what this
tree builds; others bring programs that talk over networks, and the files of a single run.
"""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .errors import NodesError
from .kernel import DEBUG
from .once import once
from .paths import (
    ARCHIVES,
    BINARIES,
    KDIR,
    KREL,
    MODULE,
    NETWORK,
    RDMA,
    REPO,
    SAMPLES,
    SELFTESTS,
)

GUEST = Path(__file__).parent / "guest"
BUSYBOX = "/usr/bin/busybox"
# kselftest's runner needs more of these two than busybox offers.
PROGRAMS = ("/usr/bin/timeout", "/usr/bin/stdbuf")
PRELOADED = "/usr/libexec/coreutils/libstdbuf.so"
KERNEL_MODULES = ("virtio_net", "virtio_blk", "zram")
# What soft-RoCE needs of the kernel's modules, of its own files, and which of these are programs.
RDMA_MODULES = ("ib_uverbs", "udp_tunnel", "ip6_udp_tunnel")
RDMA_DRIVER = "etc/libibverbs.d/rxe.driver"
RDMA_PROGRAMS = ("usr/bin/rdma", "usr/bin/ib_read_lat", "usr/lib/*/libibverbs/librxe-*.so")
# What people use over a network, as Debian has it, and the kernel's modules for it. Those of
# the stage are PPP's, which the stock kernel was built without; the debug kernel has its own.
NETWORK_PROGRAMS = (
    "usr/bin/ping",
    "usr/bin/ping6",
    "usr/bin/iperf3",
    "usr/bin/netperf",
    "usr/bin/netserver",
    "usr/bin/tcpdump",
    "usr/bin/curl",
    "usr/bin/ssh",
    "usr/bin/ssh-keygen",
    "usr/bin/scp",
    "usr/sbin/sshd",
    "usr/lib/openssh/sshd-session",
    "usr/lib/openssh/sshd-auth",
    "usr/sbin/pppd",
    "usr/sbin/ethtool",
    "usr/sbin/exportfs",
    "usr/sbin/rpc.mountd",
    "usr/sbin/rpc.nfsd",
)
# Where libraries are, below the usual place; those of fio's storage have a directory of their own.
LIBRARIES = ("", "ceph")
# pppd does not start without it.
NETWORK_LIBRARIES = ("usr/lib/x86_64-linux-gnu/ossl-modules/legacy.so",)
NETWORK_MODULES = ("tun", "nfsv4", "nfsd", "8021q", "bridge")
MODULES = f"usr/lib/modules/{KREL}"
# Where a node has what its user has brought.
BROUGHT = "/files"
BINARY_NAMES = ("uldma", "uldma-bench")
SAMPLE_NAMES = (
    "broadcast",
    "copy",
    "optimistic",
    "stale",
    "connection",
    "channels",
    "irregular",
    "ring_shift",
    "tun",
    "ways",
)
# Samples that run on a node as they are.
SAMPLE_SCRIPTS = ("ppp.sh",)
# Tests in Rust that need a device.
TEST_NAMES = (
    "locked_memory",
    "matched_end",
    "matched_stream",
    "message_buffered",
    "message_exchange",
    "message_hazard",
    "message_mute",
    "message_pins",
    "message_put",
    "message_redirect",
    "message_unposted",
    "packets_peer",
    "ring_stream",
    "shared_pages",
)

PASSWD = """root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534:sshd:/run/sshd:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
user:x:1000:1000:user:/tmp:/bin/sh
"""
GROUP = """root:x:0:
nogroup:x:65534:
user:x:1000:
"""
PROFILE = r"""export PATH=/usr/bin:/usr/sbin:/bin:/sbin:/kselftest
export TERM=${TERM:-linux}
PS1='\h:\w\$ '
"""


def pack(tree: Path, archive: Path) -> None:
    """Make an archive whose files belong to root, for any user."""
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    new = archive.with_suffix(".new")
    with new.open("wb") as out:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
            input="".join(f"{name}\n" for name in names).encode(),
            stdout=out,
            cwd=tree,
            check=True,
        )
    new.rename(archive)


def copy(source: Path, target: Path) -> None:
    """Copy a file, and make the directories above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def _libraries(binaries: Iterable[Path], root: Path) -> set[Path]:
    """The shared libraries that the binaries load, from below `root` where they are there."""
    found: set[Path] = set()
    place = root / "usr/lib/x86_64-linux-gnu"
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(str(place / it) for it in LIBRARIES)}
    for binary in binaries:
        listing = subprocess.run(
            ["ldd", binary], capture_output=True, text=True, check=False, env=environment
        )
        if "not found" in listing.stdout:
            raise NodesError(
                f"{binary.name} needs libraries that the toolchain root has not; "
                f"link it statically, or build it inside (scripts/root enter):\n{listing.stdout}"
            )
        found.update(Path(name) for name in re.findall(r"(/\S+) \(0x", listing.stdout))
    return found


def stage_libraries(tree: Path, binaries: Iterable[Path], root: Path = Path("/")) -> None:
    """Copy the shared libraries that the binaries load, from below `root` where they are there."""
    for library in _libraries(binaries, root):
        place = library.relative_to(root if library.is_relative_to(root) else "/")
        copy(library, tree / "usr" / str(place).removeprefix("usr/"))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _stage_modules(tree: Path, names: Iterable[str]) -> None:
    """Copy the kernel's modules of these names, uncompressed, with what they depend on."""
    source = KDIR / "modules" / "lib/modules" / KREL
    wanted = [f"{name}.ko" for name in names]
    (tree / MODULES).mkdir(parents=True, exist_ok=True)
    for line in (source / "modules.dep").read_text().splitlines():
        module, _, dependencies = line.partition(":")
        if Path(module).name.removesuffix(".xz") not in wanted:
            continue
        for name in [module, *dependencies.split()]:
            target = tree / MODULES / name.removesuffix(".xz")
            target.parent.mkdir(parents=True, exist_ok=True)
            data = (source / name).read_bytes()
            target.write_bytes(lzma.decompress(data) if name.endswith(".xz") else data)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (source / name).exists():
            shutil.copy(source / name, tree / MODULES)


def _stage_base(tree: Path) -> None:
    for name in (
        "dev",
        "proc",
        "sys",
        "tmp",
        "root",
        "etc",
        "run",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
    ):
        (tree / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / name).symlink_to(f"usr/{name}")
    (tree / "usr/sbin").symlink_to("bin")
    copy(Path(BUSYBOX), tree / "usr/bin/busybox")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        if applet != "busybox":
            (tree / "usr/bin" / applet).symlink_to("busybox")
    for program in PROGRAMS:
        (tree / program.lstrip("/")).unlink(missing_ok=True)
        copy(Path(program), tree / program.lstrip("/"))
    copy(Path(PRELOADED), tree / PRELOADED.lstrip("/"))
    stage_libraries(tree, map(Path, PROGRAMS))
    (tree / "etc/passwd").write_text(PASSWD)
    (tree / "etc/group").write_text(GROUP)
    (tree / "etc/profile").write_text(PROFILE)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n10.0.0.1 node-a\n10.0.0.2 node-b\n")
    copy(GUEST / "init", tree / "init")
    subprocess.run(
        [
            *("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static"),
            *("-o", tree / "usr/bin/agent", GUEST / "agent.c"),
        ],
        check=True,
    )
    _stage_modules(tree, KERNEL_MODULES)


def _stage_rdma(tree: Path, rdma: Path) -> None:
    root = rdma / "root"
    programs = [program for pattern in RDMA_PROGRAMS for program in root.glob(pattern)]
    for file in [*programs, root / RDMA_DRIVER]:
        copy(file, tree / file.relative_to(root))
    stage_libraries(tree, programs, root)
    _stage_modules(tree, RDMA_MODULES)
    copy(rdma / "rdma_rxe.ko", tree / MODULES / "extra/rdma_rxe.ko")


def _stage_network_modules(tree: Path, network: Path) -> None:
    _stage_modules(tree, NETWORK_MODULES)
    if not DEBUG:
        for module in (network / "modules").iterdir():
            copy(module, tree / MODULES / "extra" / module.name)


@once
def base() -> Path:
    """The cached base."""
    key = hashlib.sha256(str(KDIR).encode())
    for path in (Path(__file__), GUEST / "agent.c", GUEST / "init"):
        key.update(path.read_bytes())
    archive = ARCHIVES / f"base-{key.hexdigest()[:12]}.cpio"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        for old in archive.parent.glob("base-*"):
            old.unlink()
        with tempfile.TemporaryDirectory() as name:
            _stage_base(Path(name))
            pack(Path(name), archive)
    return archive


@once
def programs() -> Path:
    """Programs that talk over networks; payload() has the modules."""
    if not NETWORK:
        raise NodesError("there are no network programs: scripts/root enter --network brings them")
    archive = ARCHIVES / "programs.cpio"
    archive.parent.mkdir(parents=True, exist_ok=True)
    root = NETWORK / "root"
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for program in NETWORK_PROGRAMS:
            # There are no two directories for programs, but one.
            copy(root / program, tree / program.replace("sbin/", "bin/"))
        for library in NETWORK_LIBRARIES:
            copy(root / library, tree / library)
        stage_libraries(tree, [root / program for program in NETWORK_PROGRAMS], root)
        pack(tree, archive)
    return archive


@once
def payload() -> Path:
    """What this tree has built: module, tools, samples and tests. What is not built is left out."""

    def stage(tree: Path) -> None:
        for binary in BINARY_NAMES:
            if (BINARIES / binary).exists():
                copy(BINARIES / binary, tree / "usr/bin" / binary)
        if SAMPLES.exists():
            shutil.copytree(SAMPLES, tree / "samples/c")
        for script in SAMPLE_SCRIPTS:
            copy(REPO / "samples/uldma" / script, tree / "samples/shell" / script)
        for names, place in ((SAMPLE_NAMES, "samples/rust"), (TEST_NAMES, "tests")):
            for name in names:
                if (BINARIES / "examples" / name).exists():
                    copy(BINARIES / "examples" / name, tree / place / name)
        if SELFTESTS.exists():
            shutil.copytree(SELFTESTS, tree / "kselftest")

    return _with_module(stage, ARCHIVES / "payload.cpio", RDMA, NETWORK)


@once
def small_payload() -> Path:
    """The module, and the command line."""
    name = BINARY_NAMES[0]
    return _with_module(
        lambda tree: copy(BINARIES / name, tree / "usr/bin" / name), ARCHIVES / "small.cpio"
    )


def _with_module(
    stage: Callable[[Path], None],
    archive: Path,
    rdma: Path | None = None,
    network: Path | None = None,
) -> Path:
    """An archive of the module, of what stage() copies, and of the libraries of these.

    With soft-RoCE, if its stage is given, whose programs have libraries of their own, and with the
    modules of network programs, if theirs is.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        (tree / "usr/bin").mkdir(parents=True)
        stage(tree)
        programs = [p for p in tree.rglob("*") if p.is_file() and p.suffix != ".ko" and _is_elf(p)]
        stage_libraries(tree, programs)
        if rdma:
            _stage_rdma(tree, rdma)
        if network:
            _stage_network_modules(tree, network)
        if MODULE.exists():
            _stage_stripped(MODULE, tree / MODULES / "extra/uldma.ko")
        # modules.dep needs the modules of the base too.
        _stage_modules(tree, KERNEL_MODULES)
        (tree / "lib").symlink_to("usr/lib")
        subprocess.run(["depmod", "-b", tree, KREL], check=True, capture_output=True)
        (tree / "lib").unlink()
        pack(tree, archive)
    return archive


def _stage_stripped(module: Path, target: Path) -> None:
    """Copy a module without what only debuggers read, which is most of it and slows each boot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-debug", "-o", target, module], check=True)


def extra(files: dict[str, Path], archive: Path) -> Path:
    """An archive of single files: path in the node -> file here."""
    with tempfile.TemporaryDirectory() as name:
        for target, source in files.items():
            copy(source, Path(name) / target.lstrip("/"))
        pack(Path(name), archive)
    return archive


def archive_files(paths: Iterable[Path], archive: Path) -> Path:
    """An archive of a user's files and directories, with the libraries that programs load."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for path in paths:
            target = tree / BROUGHT.lstrip("/") / path.name
            if target.exists():
                raise NodesError(f"two files are called {path.name}")
            if path.is_dir():
                shutil.copytree(path, target)
            else:
                copy(path, target)
        programs = [p for p in tree.rglob("*") if p.is_file() and _is_elf(p)]
        stage_libraries(tree, programs, NETWORK / "root" if NETWORK else Path("/"))
        pack(tree, archive)
    return archive


def join(archives: Iterable[Path], target: Path) -> Path:
    """Concatenate archives: the kernel unpacks one after the other."""
    with target.open("wb") as out:
        for archive in archives:
            with archive.open("rb") as part:
                shutil.copyfileobj(part, out)
    return target
