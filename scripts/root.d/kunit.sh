# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "kunit": a user-mode kernel for the unit tests, built from the source of
# the one under test without this tree's code. Clones share it: each links its
# own tree in and goes on in a copy of what was built (scripts/kunit).
#
#   env         KSERIES=, KREL=, KSRC=, KDIR=, ULDMA_TREE=
#   src/        the source; enter() puts the tree on src/uldma
#   fresh/      what was built
#   build/      enter() puts the tree's copy of fresh/ here

# What the configuration comes from.
KUNIT_CONFIGS=(Kconfig drivers/uldma/Kconfig drivers/uldma/.kunitconfig)

build_kunit() {
	local dir=$1 kernel final release
	kernel=$(stage_dir kernel)
	final=$(stage_dir kunit)
	quietly "link the kernel's source" kunit_link "$dir" "$kernel/src"
	quietly "build the kernel $SERIES for unit tests (about 3 min)" kunit_compile "$dir"
	release=$(<"$dir/fresh/include/config/kernel.release")
	cat >"$dir/env" <<EOF
KSERIES=$SERIES
KREL=$release
KSRC=$final/src
KDIR=$final
ULDMA_TREE=uldma
EOF
}

# The files are those of stage "kernel" under a second name, so that nothing may write to them; sed
# puts new ones in their place. Rust's bindings have MMU notifiers on x86 alone, where tlbflush.h
# happens to include them.
kunit_link() {
	cp -al "$2" "$1/src"
	in_root "$1" make -C src -j"$(nproc)" mrproper
	sed -i '$a source "$(ULDMA_TREE)/Kconfig"' "$1/src/Kconfig"
	sed -i '$a obj-$(CONFIG_ULDMA) += uldma/' "$1/src/Kbuild"
	sed -i '$a #include <linux/mmu_notifier.h>' "$1/src/rust/bindings/bindings_helper.h"

	mkdir "$1/src/uldma"
	(cd "$REPO" && cp --parents "${KUNIT_CONFIGS[@]}" "$1/src/uldma")
	touch "$1/src/uldma/Kbuild"
}

kunit_compile() {
	mkdir "$1/build"
	in_root "$1" sh -euc '
		cd src
		export ULDMA_TREE=uldma
		python3 tools/testing/kunit/kunit.py build --build_dir=../build \
			--kunitconfig=uldma/drivers/uldma'
	mv "$1/build" "$1/fresh"
	mkdir "$1/build"
}
