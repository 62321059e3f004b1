/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel does with pages of an owner by itself: one round of each kind, which
 * counts what it has done in @events. Afterwards the owner uses the pages again.
 */
#ifndef __SELFTEST_ULDMA_ROUNDS_H
#define __SELFTEST_ULDMA_ROUNDS_H

#include "uldma_adversary.h"

/* Pages that one round is about, at most. */
#define FEW 8

/* A few pages of each half. */
struct few {
	size_t read;
	size_t write;
	size_t count;
};

static inline struct few few_of(struct owner *o)
{
	struct few f;

	f.count = 1 + random_below(o, FEW);
	f.read = random_below(o, o->half - f.count + 1);
	f.write = o->half + random_below(o, o->half - f.count + 1);
	return f;
}

/* After pages may have gone and come back. */
static inline void use_again(struct owner *o, const struct few *f)
{
	check_writes(o, f->write, f->count);
	touch_pages(o, f->read, f->count);
	touch_pages(o, f->write, f->count);
	restamp(o, f->read, 1);
}

static inline int paged_out(struct owner *o)
{
	long long before = events_of("pswpout");
	struct few f = few_of(o);
	int ret;

	ret = page_out_from_outside(page_at(o, f.read), f.count * o->page) ?:
	      page_out_from_outside(page_at(o, f.write), f.count * o->page);
	o->events += events_of("pswpout") - before;
	use_again(o, &f);
	return ret;
}

/* To the other node of memory, and back. */
static inline int migrated(struct owner *o)
{
	static int node;
	int nodes[2 * FEW], status[2 * FEW];
	void *pages[2 * FEW];
	struct few f = few_of(o);

	node = !node;
	for (size_t i = 0; i < f.count; i++) {
		pages[2 * i] = page_at(o, f.read + i);
		pages[2 * i + 1] = page_at(o, f.write + i);
		nodes[2 * i] = node;
		nodes[2 * i + 1] = node;
	}
	if (syscall(__NR_move_pages, 0, 2 * f.count, pages, nodes, status,
		    MPOL_MF_MOVE) < 0)
		return -errno;
	for (size_t i = 0; i < 2 * f.count; i++)
		o->events += status[i] == node;
	use_again(o, &f);
	return 0;
}

/* The longest time that pages are touched from one node. */
#define BALANCED_TIME (4 * SECOND)

/* Touched from the other node for a while: the kernel moves them there. */
static inline int balanced(struct owner *o)
{
	long long before = events_of("numa_pages_migrated");
	__u64 limit = now_ns() + BALANCED_TIME;
	struct few all = { 0, o->half, o->half };
	static int cpu;
	int ret;

	cpu = !cpu;
	ret = pin_to(cpu);
	do
		use_again(o, &all);
	while (!ret && !owner_fails(o) && now_ns() < limit &&
	       events_of("numa_pages_migrated") - before < all.count);
	o->events += events_of("numa_pages_migrated") - before;
	return ret;
}

#endif /* __SELFTEST_ULDMA_ROUNDS_H */
