# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034
#
# What defines the root. A change here rebuilds the stages that depend on it.

MIRROR=${ULDMA_MIRROR:-http://deb.debian.org/debian}
SUITE=trixie
BACKPORTS=$SUITE-backports

# The kernel series that uldma is tested with, the newest first. The environment's KERNEL_SERIES picks
# one of all.
KERNEL_SERIES_TESTED=(7.3 7.2)
KERNEL_SERIES=${KERNEL_SERIES:-}
KERNEL_FLAVOUR=cloud-amd64

# ruff is not in Debian.
PYTOOLS=(ruff==0.14.5)

ROOT_PACKAGES=(
	# Rust, as Debian built the kernel with
	rustc cargo rust-src rustfmt rust-clippy bindgen
	# C
	gcc libc6-dev clang lld llvm libclang-dev
	# the kernel build
	make flex bison bc libelf-dev libssl-dev xz-utils cpio zstd kmod pahole
	python3 perl git rsync
	# the nodes
	qemu-system-x86 busybox-static socat
	# checks and documents
	shellcheck codespell mypy python3-venv python3-docutils python3-sphinx
	ca-certificates
)

# Beside the root, for benchmarks only: what soft-RoCE needs on a node, but for the kernel.
RDMA_PACKAGES=(libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 iproute2 libmnl0)
