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
RDMA_PACKAGES=(
	libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 iproute2 libmnl0
	perftest librdmacm1t64 libibumad3 libpci3
)

# Beside the root, for tests and benchmarks on nodes: programs that people use over a network, and those
# of their libraries that the root has not.
NETWORK_PACKAGES=(
	iputils-ping ethtool libmnl0 tcpdump libpcap0.8t64 libdbus-1-3
	iperf3 libiperf0 libsctp1 netperf
	openssh-client openssh-server libwtmpdb0 curl ppp openssl-provider-legacy
	nfs-kernel-server libtirpc3t64 libevent-core-2.1-7t64 libnl-3-200 libnl-genl-3-200
	# for the kernel's own tests, which are in Python
	iproute2 python3-yaml libyaml-0-2
	# fio loads the libraries of all that it can write to
	fio libgfapi0 libglusterfs0 libgfrpc0 libgfxdr0 libnbd0 libnfs14 librbd1 librados2
	libboost-iostreams1.83.0 libboost-thread1.83.0 libfmt10 libcryptsetup12 libjson-c5
	libdevmapper1.02.1
)
