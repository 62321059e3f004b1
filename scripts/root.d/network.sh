# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "network": programs that talk over networks, for the nodes, and what they need of the kernel.
# Debian builds its cloud kernel without PPP. So that is built for it, unchanged, from the source that
# both are built from.
#
#   root/       the programs, with those of their libraries that the root has not
#   modules/    slhc.ko, ppp_generic.ko, ppp_async.ko

build_network() {
	local dir=$1
	mkdir "$dir/root" "$dir/modules"
	quietly "download network programs" network_download "$dir"
	quietly "build PPP for kernel $SERIES" network_compile "$dir"
	rm -rf "$dir"/{apt,debs,build}
}

network_download() {
	kernel_apt "$1" apt-get update
	kernel_apt "$1" apt-get download "${NETWORK_PACKAGES[@]}"
	in_root "$1" sh -euc 'for package in debs/*.deb; do dpkg-deb -x "$package" root; done
		rm -rf root/usr/share root/var'
}

# The first has the compression of headers, which the second needs.
network_compile() {
	local dir=$1
	network_module "$dir" drivers/net/slip CONFIG_SLHC=m
	network_module "$dir" drivers/net/ppp CONFIG_PPP=m CONFIG_PPP_ASYNC=m \
		KBUILD_EXTRA_SYMBOLS="$(stage_dir network)/build/drivers/net/slip/Module.symvers"
	in_root "$dir" sh -euc 'for module in $(find build -name "*.ko"); do
		strip --strip-debug -o "modules/${module##*/}" "$module"; done'
}

network_module() {
	local dir=$1 source=$2 final kernel release
	shift 2
	final=$(stage_dir network)
	kernel=$(stage_dir kernel)
	release=$(sed -n 's/^KREL=//p' "$kernel/env")
	mkdir -p "$dir/build/$source"
	(bwrap_root --bind "$dir" "$final" --ro-bind "$kernel" "$kernel" --chdir "$final" -- \
		make -C "$kernel/src" -j"$(nproc)" KERNELRELEASE="$release" "$@" \
		M="$kernel/src/$source" MO="$final/build/$source" modules)
}
