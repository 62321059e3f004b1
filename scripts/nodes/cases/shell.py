# SPDX-License-Identifier: GPL-2.0
"""`make shell` without a terminal, by a pair of its own."""

import os
import subprocess
import tempfile
from pathlib import Path

from ..cluster import Cluster
from ..errors import TimedOut
from ..kernel import DEBUG, scaled
from ..paths import REPO
from ..topologies import LOOPBACK
from .registry import Skip, case_of, expect

# What scripts/shell runs inside the root. Each case has a scenario of its own, as workers may run
# several at a time.
SHELL = "python3 -m nodes shell --scenario test-shell"
TIMEOUT = 300.0
# Longer than an argument can be.
PADDING = "# a line that says nothing\n" * 8000
SCRIPT = (
    PADDING
    + """
/files/program from file && cat /files/directory/data && echo error >&2
hostname
exit 7
"""
)


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Wait for the end of a command; what it has written."""
    try:
        return process.communicate(timeout=scaled(TIMEOUT))
    except subprocess.TimeoutExpired as error:
        process.terminate()
        process.communicate()
        raise TimedOut(f"no end: {process.args!r}") from error


def start(command: str, stdin: bytes, directory: Path, shell: str) -> subprocess.Popen[bytes]:
    """Start a command, from the top of the tree, whose scripts that shell runs."""
    if DEBUG:
        raise Skip("two debug kernels take minutes to boot, and have no part in this")
    path = directory / "stdin"
    path.write_bytes(stdin)
    # The samples would enter the root, where they are already.
    environment = os.environ | {"NODE_SHELL": shell, "ENTER": "env", "TMPDIR": str(directory)}
    with path.open("rb") as file:
        return subprocess.Popen(
            ["sh", "-c", command],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPO,
            env=environment,
        )


@case_of(LOOPBACK)
def a_script_has_files_and_an_exit_status(_pair: Cluster) -> None:
    """Any size of script, files of the host, its output alone, and its exit status."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "directory").mkdir()
        (directory / "directory/data").write_bytes(b"\xff\n")
        (directory / "program.c").write_text(
            "#include <math.h>\n#include <stdio.h>\n"
            'int main(int argc, char **argv) { return printf("%s %g\\n", argv[1], '
            "cos(argc - 3)) < 0; }\n"
        )
        program = directory / "program"
        subprocess.run(["gcc", "-o", program, f"{program}.c", "-lm"], check=True)
        shell = f"{SHELL}-files"
        command = f"{shell} b {program} {directory}/directory"
        process = start(command, SCRIPT.encode(), directory, shell)
        out, err = finish(process)
        expect(process.returncode == 7, f"exit {process.returncode}\n{out!r}\n{err.decode()}")
        expect(out == b"from 1\n\xff\nnode-b\n", f"{out!r}\n{err.decode()}")
        expect(b"error\n" in err, err.decode())


@case_of(LOOPBACK)
def two_scripts_share_a_pair(_pair: Cluster) -> None:
    """The sample has one script for each node, and the file arrives."""
    with tempfile.TemporaryDirectory() as name:
        process = start("samples/uldma/two-nodes.sh", b"", Path(name), f"{SHELL}-two")
        out, err = finish(process)
        text = out.decode() + err.decode()
        expect(process.returncode == 0, f"exit {process.returncode}\n{text}")
        expect(b"arrived unchanged" in out, text)
        expect(err.count(b" up after") == 1, f"more than one pair\n{text}")


@case_of(LOOPBACK)
def own_program_is_built_and_runs(_pair: Cluster) -> None:
    """The sample makes a crate of its own, builds it, and runs it on a node."""
    with tempfile.TemporaryDirectory() as name:
        command = f"samples/uldma/own-program.sh {name}/crate"
        process = start(command, b"", Path(name), f"{SHELL}-own")
        out, err = finish(process)
        text = out.decode() + err.decode()
        expect(process.returncode == 0, f"exit {process.returncode}\n{text}")
        expect(b"this is node 1 of 2\n" in out, text)
