# SPDX-License-Identifier: GPL-2.0
"""Where things are. The toolchain root (scripts/root) sets the environment."""

import os
from pathlib import Path

from .kernel import SUFFIX

REPO = Path(os.environ["ULDMA_REPO"])
CACHE = Path(os.environ["ULDMA_CACHE"])
KREL = os.environ["KREL"]
KDIR = Path(os.environ["KDIR"])
KSRC = Path(os.environ["KSRC"])
# Soft-RoCE, where it was asked for and could be had (scripts/root enter --rdma).
RDMA = Path(os.environ["ULDMA_RDMA"]) if "ULDMA_RDMA" in os.environ else None
# Programs that talk over networks, where they were asked for (scripts/root enter --network).
NETWORK = Path(os.environ["ULDMA_NETWORK"]) if "ULDMA_NETWORK" in os.environ else None

BUILD = REPO / "build"
# What depends on the kernel is there for each series.
KERNEL_BUILD = BUILD / os.environ["KSERIES"]
LOGS = BUILD / "logs"
RESULTS = Path(os.environ.get("ULDMA_RESULTS", BUILD / "results"))
BINARIES = BUILD / "cargo" / "release"
SELFTESTS = KERNEL_BUILD / "kselftest"
# In C; those in Rust are cargo's examples.
SAMPLES = BUILD / "samples"
MODULE = KERNEL_BUILD / f"module{SUFFIX}" / "uldma.ko"
ARCHIVES = KERNEL_BUILD / f"nodes{SUFFIX}"

# build/run under a short name: a socket's name may have 107 characters.
RUN = Path("/run/uldma")
