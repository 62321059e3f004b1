# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "kernel": the stock kernel under test, its modules, and its source
# prepared for building modules against exactly that kernel. Packages are
# unpacked rather than installed: nothing here needs a boot loader.
#
#   env         KREL=, KSRC=, KDIR=
#   vmlinuz     the signed image
#   modules/    lib/modules/KREL, with modules.dep
#   src/        the prepared source

build_kernel() {
	local dir=$1 final release version
	final=$(stage_dir kernel)
	mkdir "$dir/apt"
	quietly "package lists for the kernel" kernel_apt "$dir" update
	kernel_choose "$dir"
	read -r release version <"$dir/choice"
	say "kernel under test: $release (Debian $version)"
	quietly "download kernel $release with source" kernel_download "$dir" "$release" "$version"
	quietly "unpack kernel" kernel_unpack "$dir" "$release"
	quietly "prepare kernel for Rust modules (about 1 min)" kernel_prepare "$dir" "$release"
	rm -rf "$dir"/{apt,debs,headers,image,choice}
	cat >"$dir/env" <<EOF
KREL=$release
KSRC=$final/src
KDIR=$final
EOF
}

# kernel_apt DIR ARGS...: apt-get with its state in DIR, so that the root stays as it is.
kernel_apt() {
	local dir=$1
	shift
	mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/debs"
	in_root "$dir" sh -euc 'cd debs; tool=$1; shift
		exec $tool -q -o APT::Sandbox::User=root -o Dir::State::Lists="$PWD/../apt/lists" \
			-o Dir::Cache="$PWD/../apt/cache" "$@"' \
		sh "${KERNEL_TOOL:-apt-get}" "$@"
}

# The newest kernel of the series for which the suite has everything: image, modules, headers and the
# source of the same version. Patch releases move and parts arrive one by one.
kernel_choose() {
	local dir=$1 names sources release patch version newest
	names=$(KERNEL_TOOL=apt-cache kernel_apt "$dir" pkgnames linux-)
	sources=$(KERNEL_TOOL=apt-cache kernel_apt "$dir" madison "linux-source-$KERNEL_SERIES" |
		awk '{print $3}' | sort -u)
	while read -r release; do
		patch=${release%%+*}
		version=$(grep -m1 -F "$patch-" <<<"$sources" || true)
		[ -n "$version" ] || continue
		grep -qxF "linux-binary-$release" <<<"$names" || continue
		grep -qxF "linux-modules-$release" <<<"$names" || continue
		grep -qxF "linux-headers-$release" <<<"$names" || continue
		echo "$release $version" >"$dir/choice"
		break
	done < <(kernel_releases "$KERNEL_SERIES" <<<"$names")
	newest=$(kernel_releases '[0-9]+\.[0-9]+' <<<"$names" | head -n 1)
	[ -e "$dir/choice" ] ||
		die "$BACKPORTS offers no complete kernel of series $KERNEL_SERIES" \
			"(its newest is ${newest:-none}); uldma is tested with $KERNEL_SERIES only"
	case $newest in
	"$KERNEL_SERIES".*) ;;
	*) say "note: $BACKPORTS also has $newest; series ${newest%.*} is newer and untested" ;;
	esac
}

# Releases that have an image, the newest first. Older series call the package linux-image.
kernel_releases() {
	sed -nE "s/^linux-(binary|binary-unsigned|image)-($1\.[0-9]+\+[^-]*-$KERNEL_FLAVOUR)\$/\2/p" |
		sort -Vru
}

kernel_download() {
	local dir=$1 release=$2 version=$3
	kernel_apt "$dir" download "linux-binary-$release" "linux-modules-$release" \
		"linux-headers-$release" "linux-source-$KERNEL_SERIES=$version"
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

# Forget the kernel when the suite has a newer one of the series.
kernel_refresh() {
	local have want dir=$CACHE/.new-refresh
	mkdir "$dir"
	kernel_apt "$dir" update >/dev/null
	kernel_choose "$dir"
	read -r want _ <"$dir/choice"
	stage_remove "$dir"
	have=$(sed -n 's/^KREL=//p' "$(stage_dir kernel)/env" 2>/dev/null || true)
	if [ "$have" = "$want" ]; then
		say "kernel $have is the newest of series $KERNEL_SERIES"
	else
		say "kernel $want replaces ${have:-none}"
		stage_remove "$(stage_dir kernel)"
	fi
}
