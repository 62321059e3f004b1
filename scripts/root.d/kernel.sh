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

# Chooses a kernel, and brings it to $FETCHED: nothing of it needs the root, which may be in the making.
kernel_fetch() {
	series_ask
	stage_ready kernel || kernel_bring
}

# What was chosen.
kernel_bring() {
	say "kernel under test: $KREL (Debian $KERNEL_VERSION)"
	quietly "download kernel $KREL with source" kernel_download "$FETCHED" "$KREL" "$KERNEL_VERSION"
	quietly "unpack kernel $KREL" kernel_unpack "$FETCHED"
}

# Takes over what was fetched, and makes it a stage.
build_kernel() {
	local dir=$1 final
	final=$(stage_dir kernel)
	read -r _ KREL _ <"$FETCHED/choice"
	mv "$FETCHED"/* "$dir"
	rmdir "$FETCHED"
	quietly "prepare kernel $KREL for Rust modules (about 1 min)" kernel_prepare "$dir" "$KREL"
	rm -rf "$dir"/{apt,debs,headers,image,choice}
	cat >"$dir/env" <<EOF
KSERIES=$SERIES
KREL=$KREL
KSRC=$final/src
KDIR=$final
EOF
}

# kernel_apt DIR TOOL ARGS...: a tool of the host's apt, with its state in DIR and nothing of the
# host's settings.
kernel_apt() {
	local dir=$1 archive
	shift
	mkdir -p "$dir"/apt/{lists/partial,cache/archives/partial,apt.conf.d,preferences.d} "$dir/debs"
	cat >"$dir/apt/config" <<EOF
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::Etc "$dir/apt";
Dir::Etc::SourceList "sources";
Dir::State "$dir/apt";
Dir::State::status "/dev/null";
Dir::Cache "$dir/apt/cache";
EOF
	for archive in "$SUITE" "$BACKPORTS"; do
		echo "deb [signed-by=$(host_keyring)] $MIRROR $archive main"
	done >"$dir/apt/sources"
	(cd "$dir/debs" && APT_CONFIG=$dir/apt/config exec "$@")
}

kernel_download() {
	local dir=$1 release=$2 version=$3
	kernel_apt "$dir" apt-get -q download "linux-binary-$release" "linux-modules-$release" \
		"linux-headers-$release" "linux-source-$SERIES=$version"
}

# Of a host without xz, apt has what unpacks such files, by one processor.
kernel_unpack() {
	local dir=$1
	mkdir "$dir/headers" "$dir/image" "$dir/modules" "$dir/src"
	dpkg-deb -x "$dir"/debs/linux-binary-*.deb "$dir/image"
	dpkg-deb -x "$dir"/debs/linux-modules-*.deb "$dir/modules"
	dpkg-deb -x "$dir"/debs/linux-headers-*.deb "$dir/headers"
	dpkg-deb -x "$dir"/debs/linux-source-*.deb "$dir/headers"
	kernel_decompress "$dir"/headers/usr/src/linux-source-*.tar.xz |
		tar -x -C "$dir/src" --strip-components=1
	cp "$(find "$dir/image" -type f -name "vmlinuz*")" "$dir/vmlinuz"
	[ -e "$dir/modules/lib" ] || ln -s usr/lib "$dir/modules/lib"
}

kernel_decompress() {
	if command -v xz >/dev/null; then
		xz --decompress --stdout --threads=0 "$1"
	else
		/usr/lib/apt/apt-helper cat-file "$1"
	fi
}

kernel_prepare() {
	local dir=$1 release=$2
	in_root "$dir" sh -euc '
		depmod -b modules "$1"
		headers=headers/usr/src/linux-headers-$1
		cp "$headers/.config" src/.config
		make -C src -j"$(nproc)" olddefconfig
		make -C src -j"$(nproc)" KERNELRELEASE="$1" modules_prepare
		cp "$headers/Module.symvers" src/' sh "$release"
	grep -q '^CONFIG_RUST=y' "$dir/src/.config" ||
		{ echo "CONFIG_RUST was lost from the configuration"; return 1; }
}
