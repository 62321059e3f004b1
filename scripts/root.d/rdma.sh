# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "rdma": an RDMA device without hardware (soft-RoCE), which benchmarks
# compare with. The kernel under test has the RDMA core and ib_uverbs, but rdma_rxe is
# only in the full flavour, whose modules it does not load and which are 160 MB. So
# rdma_rxe is built for it, unchanged, from the source that both are built from.
#
#   rdma_rxe.ko
#   root/       libibverbs with its driver for rdma_rxe, and rdma(8)

build_rdma() {
	local dir=$1
	mkdir "$dir/root"
	quietly "download the tools of RDMA" rdma_download "$dir"
	quietly "build rdma_rxe for kernel $SERIES" rdma_compile "$dir"
	rm -rf "$dir"/{apt,debs,build}
}

rdma_download() {
	kernel_apt "$1" apt-get update
	kernel_apt "$1" apt-get download "${RDMA_PACKAGES[@]}"
	in_root "$1" sh -euc 'for package in debs/*.deb; do dpkg-deb -x "$package" root; done'
}

rdma_compile() {
	local dir=$1 final kernel release
	final=$(stage_dir rdma)
	kernel=$(stage_dir kernel)
	release=$(sed -n 's/^KREL=//p' "$kernel/env")
	(bwrap_root --bind "$dir" "$final" --ro-bind "$kernel" "$kernel" --chdir "$final" -- \
		make -C "$kernel/src" -j"$(nproc)" KERNELRELEASE="$release" CONFIG_RDMA_RXE=m \
		M="$kernel/src/drivers/infiniband/sw/rxe" MO="$final/build" modules)
	in_root "$dir" strip --strip-debug -o rdma_rxe.ko build/rdma_rxe.ko
}
