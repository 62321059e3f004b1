# SPDX-License-Identifier: GPL-2.0
#
# What a person types; what the kernel builds is in Kbuild. Everything runs
# inside the toolchain root (scripts/root), which sets itself up.

MAKEFLAGS += --no-print-directory
ROOT := scripts/root
ENTER := $(ROOT) enter
NODES := env PYTHONPATH=scripts python3 -m nodes
NODE ?= a
# Which series of the kernel, if not the one that scripts/root chooses.
export KERNEL_SERIES
# What `make fuzz` does without nodes.
# Sets of nodes at a time; by default one for each two processors.
SIDE := $(if $(JOBS),--jobs '$(JOBS)')
# Each test several times, with a load beside all; for .ci/run: seconds in which tests that have failed
# run again, alone.
AGAIN := $(if $(REPEAT),--repeat '$(REPEAT)') $(if $(STARVED),--starved) $(if $(RETRY),--retry '$(RETRY)')

.DEFAULT_GOAL := help

help:			## print this help
	@sed -nE 's/^([a-z-]+):.*\t## ([^@].*)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		awk -F '|' '{ printf "%-20s %s\n", $$1, $$2 }'
	@echo 'KERNEL_SERIES=7.2 beside any of these takes the kernel of that series.'

run: for-run	## two nodes, a file by user-level DMA and its rivals (FILE=path)
	@$(ENTER) $(if $(FILE),--bind '$(FILE)') $(NODES) run $(if $(FILE),--file '$(realpath $(FILE))')

test: build		## all tests; ends with one line of totals (ONLY=pattern JOBS=number CHANGED=revision WITHIN=seconds REPEAT=number STARVED=1)
	@$(ENTER) --network $(NODES) test $(SIDE) $(if $(ONLY),--only '$(ONLY)') \
		$(if $(CHANGED),--changed '$(CHANGED)') $(if $(WITHIN),--within '$(WITHIN)') $(AGAIN)

shell: build		## a root shell on a running pair of nodes (NODE=a or NODE=b, FILES='path ...')
	@scripts/shell $(NODE) $(FILES)

bench: build		## measure against floors and rivals (ONLY=lmm, initiation, link, semantics, network, optimistic or ring; CORES=1,2,4)
	@$(ENTER) --rdma --network $(NODES) bench $(if $(ONLY),--only '$(ONLY)') $(if $(CORES),--cores '$(CORES)')

report: root		## tables and drawings of figures that make bench left (ONLY=lmm, initiation, link, semantics, network or optimistic)
	@$(ENTER) $(NODES) report $(if $(ONLY),--only '$(ONLY)')

soak: build		## peers are killed and devices fail at random, for minutes (SOAK_SECONDS=600 SEED=number)
	@$(ENTER) $(NODES) soak $(if $(SOAK_SECONDS),--seconds $(SOAK_SECONDS)) \
		$(if $(SEED),--seed $(SEED))

# SECONDS, of which bash has one of its own, is given to make and not to the environment.
fuzz: build		## fuzz TARGET=ioctl, connections, hostile, messages, ring, tools or device (SECONDS=60 SEED=number INPUT=sequence)
	@$(ENTER) $(NODES) fuzz --target '$(TARGET)' $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(INPUT),--replay '$(INPUT)')

fuzz-debug: tools selftests module-debug	## the same on the debug kernel
	@$(ENTER) --debug $(NODES) fuzz --target '$(TARGET)' $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(INPUT),--replay '$(INPUT)')

lint: root		## all static checks
	@$(ENTER) scripts/lint

docs: root		## the documentation as HTML, in build/docs
	@$(ENTER) scripts/docs

clean:			## delete what was built (the cache stays: scripts/root prune)
	rm -rf build

root:			## set up the toolchain root (the others do it by themselves)
	@$(ROOT) ensure

build:			## the module, the tools and the selftests
	@$(ROOT) build modules tools selftests

for-run:
	@$(ROOT) build modules tools-of-run

modules tools selftests:
	@$(ROOT) build $@

test-host: root		## only the tests that need no node
	@$(ENTER) $(NODES) test $(SIDE) --host

test-nodes: build	## only the tests that run on nodes
	@$(ENTER) --network $(NODES) test $(SIDE) --nodes $(if $(ONLY),--only '$(ONLY)') $(AGAIN)

debug-kernel: root	## the kernel with KASAN, lockdep, kmemleak and more (cached)
	@$(ROOT) ensure --debug

test-debug: tools selftests module-debug	## the node tests on the debug kernel (ONLY=pattern CHANGED=revision WITHIN=seconds)
	@$(ENTER) --debug --network $(NODES) test $(SIDE) --nodes $(if $(ONLY),--only '$(ONLY)') \
		$(if $(CHANGED),--changed '$(CHANGED)') $(if $(WITHIN),--within '$(WITHIN)') $(AGAIN)

smoke: build		## a few node tests that cross each part of the driver once
	@$(ENTER) --network $(NODES) test $(SIDE) --nodes --smoke $(AGAIN)

smoke-debug: tools selftests module-debug	## the same on the debug kernel
	@$(ENTER) --debug --network $(NODES) test $(SIDE) --nodes --smoke $(AGAIN)

kunit: root		## the unit tests of the module, by the kernel's kunit.py (ONLY=suite)
	@$(ENTER) --kunit scripts/kunit $(if $(ONLY),'$(ONLY)')

module-debug: debug-kernel
	@$(ENTER) --debug scripts/build modules

.PHONY: help run test shell bench report soak fuzz fuzz-debug lint docs clean root build modules tools \
	for-run selftests test-host test-nodes debug-kernel test-debug smoke smoke-debug kunit module-debug
