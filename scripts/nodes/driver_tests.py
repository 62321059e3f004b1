# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of network drivers, and what they need on a node: Python, and a shell
that has no programs itself.
"""

import subprocess
import tempfile
from pathlib import Path

from . import initramfs
from .errors import NodesError
from .once import once
from .paths import ARCHIVES, KSRC, NETWORK

# As in the kernel's tree, whose places the tests derive from their own.
PLACE = "ksrc"
SELFTESTS = "tools/testing/selftests"
TESTS = f"/{PLACE}/{SELFTESTS}/drivers/net"
PARTS = (
    f"{SELFTESTS}/drivers/net",
    f"{SELFTESTS}/net/lib",
    "tools/net/ynl/pyynl",
    "Documentation/netlink/specs",
)
ENDINGS = (".py", ".yaml")
XDP = f"{SELFTESTS}/net/lib/xdp_dummy.bpf"
# The only program in C of those that the tests run on the node whose interface they test.
NAPI_ID = f"{SELFTESTS}/drivers/net/napi_id_helper"
# What speaks any family of netlink that the kernel describes.
NETLINK = f"python3 /{PLACE}/tools/net/ynl/pyynl/cli.py --no-schema --output-json"
NETDEV_FAMILY = f"/{PLACE}/Documentation/netlink/specs/netdev.yaml"
PYTHON = Path("/usr/bin/python3.13")
LIBRARY = Path("/usr/lib/python3.13")
UNUSED = ("test", "idlelib", "ensurepip", "tkinter", "turtledemo", "pydoc_data", "config-")
# What a node has under other names, or as a part of busybox that says less.
PROGRAMS = {"usr/bin/python3": PYTHON, "usr/bin/sh": Path("/usr/bin/dash")}
OTHERS = {"usr/bin/socat": Path("/usr/bin/socat")}


def _stage_tests(tree: Path) -> None:
    for part in PARTS:
        for path in (KSRC / part).rglob("*"):
            if path.suffix in ENDINGS:
                initramfs.copy(path, tree / PLACE / path.relative_to(KSRC))


def _stage_python(tree: Path, packages: Path) -> None:
    for path in LIBRARY.rglob("*"):
        within = path.relative_to(LIBRARY)
        if path.is_file() and not within.parts[0].startswith(UNUSED):
            initramfs.copy(path, tree / LIBRARY.relative_to("/") / within)
    for path in packages.rglob("*"):
        if path.is_file():
            place = "usr/lib/python3/dist-packages"
            initramfs.copy(path, tree / place / path.relative_to(packages))


def _build_xdp(tree: Path, scratch: Path) -> None:
    """Build the program that tests let XDP run, as the kernel's makefiles do."""
    helpers = scratch / "bpf"
    helpers.mkdir()
    for header in ("bpf_helpers.h", "bpf_tracing.h", "bpf_endian.h"):
        initramfs.copy(KSRC / "tools/lib/bpf" / header, helpers / header)
    definitions = subprocess.run(
        [
            *("python3", KSRC / "scripts/bpf_doc.py", "--header"),
            *("--file", KSRC / "include/uapi/linux/bpf.h"),
        ],
        check=True,
        capture_output=True,
    )
    (helpers / "bpf_helper_defs.h").write_bytes(definitions.stdout)
    subprocess.run(
        [
            *("clang", "-O2", "-g", "-target", "bpf", "-I", scratch),
            *("-I", "/usr/include/x86_64-linux-gnu"),
            *("-c", KSRC / f"{XDP}.c", "-o", tree / PLACE / f"{XDP}.o"),
        ],
        check=True,
    )


def _build_napi_id(tree: Path) -> Path:
    """Build the program that asks for the NAPI context of a connection; where it is."""
    program = tree / PLACE / NAPI_ID
    subprocess.run(["cc", "-O2", "-o", program, KSRC / f"{NAPI_ID}.c"], check=True)
    return program


@once
def archive() -> Path:
    """An archive of the tests, for nodes that have the network programs."""
    if not NETWORK:
        raise NodesError("there are no network programs: scripts/root enter --network brings them")
    root = NETWORK / "root"
    target = ARCHIVES / "driver-tests.cpio"
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as scratch:
        tree = Path(name)
        _stage_tests(tree)
        _stage_python(tree, root / "usr/lib/python3/dist-packages")
        _build_xdp(tree, Path(scratch))
        napi_id = _build_napi_id(tree)
        programs = {**PROGRAMS, **OTHERS, "usr/bin/ip": root / "usr/bin/ip"}
        for place, program in programs.items():
            initramfs.copy(program, tree / place)
        modules = (LIBRARY / "lib-dynload").iterdir()
        initramfs.stage_libraries(tree, [*programs.values(), *modules, napi_id], root)
        initramfs.pack(tree, target)
    return target
