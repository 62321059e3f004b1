# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "debug": a kernel from the source of the one under test with every
# checker that can see a driver. Clang builds it: with gcc, KASAN takes RUST out
# of the configuration. What is there is as in stage "kernel"; vmlinuz is not
# signed, and modules/ names only what is built in.

build_debug() {
	local dir=$1 kernel final release
	kernel=$(stage_dir kernel)
	final=$(stage_dir debug)
	quietly "copy the kernel's source" debug_copy "$dir" "$kernel/src"
	quietly "configure the debug kernel $SERIES" debug_configure "$dir"
	quietly "build the debug kernel $SERIES (about 7 min)" debug_compile "$dir"
	release=$(<"$dir/src/include/config/kernel.release")
	cat >"$dir/env" <<EOF
KSERIES=$SERIES
KREL=$release
KSRC=$final/src
KDIR=$final
EOF
}

# What every series has to take, and what this one has to take beside.
debug_fragments() {
	local file
	for file in "$SCRIPTS/debug.config" "$SCRIPTS/debug-$SERIES.config"; do
		[ ! -e "$file" ] || cat "$file"
	done
}

debug_copy() {
	mkdir "$1/src"
	cp -a --reflink=auto "$2/." "$1/src"
	in_root "$1" make -C src -j"$(nproc)" LLVM=1 mrproper
}

debug_configure() {
	debug_fragments >"$1/fragment"
	in_root "$1" sh -euc '
		make -C src LLVM=1 tinyconfig
		cat fragment >>src/.config
		make -C src LLVM=1 olddefconfig'
	debug_check "$1/fragment" "$1/src/.config"
}

# debug_check FRAGMENT CONFIG: every line of the fragment holds; "=n" also for what is not offered.
debug_check() {
	local line lost=0
	while read -r line; do
		case $line in
		CONFIG_*=n) grep -q "^${line%n}" "$2" || continue ;;
		CONFIG_*) grep -qxF "$line" "$2" && continue ;;
		*) continue ;;
		esac
		echo "lost from the configuration: $line"
		lost=1
	done <"$1"
	return $lost
}

# Modules need neither the objects nor the image with symbols.
debug_compile() {
	in_root "$1" sh -euc '
		make -C src -j"$(nproc)" LLVM=1 bzImage modules
		make -C src LLVM=1 INSTALL_MOD_PATH="$PWD/modules" modules_install
		cp src/arch/x86/boot/bzImage vmlinuz
		cp src/System.map .
		find src \( -name "*.o" -o -name "*.a" \) ! -path "src/scripts/*" ! -path "src/tools/*" -delete
		rm -f src/vmlinux src/vmlinux.unstripped'
}
