# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "kernel": the stock kernel under test, its modules, and its source
# prepared for building modules against exactly that kernel. Packages are
# unpacked rather than installed: nothing here needs a boot loader.
#
#   env         KSERIES=, KREL=, KSRC=, KDIR=
#   vmlinuz     the signed image
#   modules/    lib/modules/KREL, with modules.dep
#   src/        the prepared source

# What series_ask() has chosen; its package lists are taken over.
build_kernel() {
	local dir=$1 final
	final=$(stage_dir kernel)
	mv "$SERIES_LISTS"/* "$dir"
	rmdir "$SERIES_LISTS"
	say "kernel under test: $KREL (Debian $KERNEL_VERSION)"
	quietly "download kernel $KREL with source" kernel_download "$dir" "$KREL" "$KERNEL_VERSION"
	quietly "unpack kernel $KREL" kernel_unpack "$dir" "$KREL"
	quietly "prepare kernel $KREL for Rust modules (about 1 min)" kernel_prepare "$dir" "$KREL"
	rm -rf "$dir"/{apt,debs,headers,image}
	cat >"$dir/env" <<EOF
KSERIES=$SERIES
KREL=$KREL
KSRC=$final/src
KDIR=$final
EOF
}

# kernel_apt DIR TOOL ARGS...: a tool of apt with its state in DIR, so that the root stays as it is.
kernel_apt() {
	local dir=$1
	shift
	mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/debs"
	in_root "$dir" sh -euc 'cd debs; tool=$1; shift
		exec $tool -q -o APT::Sandbox::User=root -o Dir::State::Lists="$PWD/../apt/lists" \
			-o Dir::Cache="$PWD/../apt/cache" "$@"' \
		sh "$@"
}

kernel_download() {
	local dir=$1 release=$2 version=$3
	kernel_apt "$dir" apt-get download "linux-binary-$release" "linux-modules-$release" \
		"linux-headers-$release" "linux-source-$SERIES=$version"
}

kernel_unpack() {
	local dir=$1 release=$2
	mkdir "$dir/headers" "$dir/image" "$dir/modules" "$dir/src"
	in_root "$dir" sh -euc '
		dpkg-deb -x debs/linux-binary-*.deb image
		dpkg-deb -x debs/linux-modules-*.deb modules
		dpkg-deb -x debs/linux-headers-*.deb headers
		dpkg-deb -x debs/linux-source-*.deb headers
		tar -x -f headers/usr/src/linux-source-*.tar.xz -C src --strip-components=1
		cp "$(find image -type f -name "vmlinuz*")" vmlinuz
		[ -e modules/lib ] || ln -s usr/lib modules/lib
		depmod -b modules "$1"' sh "$release"
}

kernel_prepare() {
	local dir=$1 release=$2
	in_root "$dir" sh -euc '
		headers=headers/usr/src/linux-headers-$1
		cp "$headers/.config" src/.config
		make -C src -j"$(nproc)" olddefconfig
		make -C src -j"$(nproc)" KERNELRELEASE="$1" modules_prepare
		cp "$headers/Module.symvers" src/' sh "$release"
	grep -q '^CONFIG_RUST=y' "$dir/src/.config" ||
		{ echo "CONFIG_RUST was lost from the configuration"; return 1; }
}
