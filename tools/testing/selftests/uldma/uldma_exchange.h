/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Exchangeable memory, as functions.
 */
#ifndef __SELFTEST_ULDMA_EXCHANGE_H
#define __SELFTEST_ULDMA_EXCHANGE_H

#include <sys/resource.h>

#include "uldma_lmm.h"
#include "uldma_process.h"

/* What one fault maps, aligned. */
#define BLOCK (64UL << 10)

/**
 * struct memory - exchangeable memory
 * @r: its region
 * @offset: where to map it
 * @at: where it is mapped
 */
struct memory {
	struct region r;
	__u64 offset;
	char *at;
};

static inline int memory_create(int fd, __u64 length, struct memory *m)
{
	struct uldma_exchange_create arg = {
		.size = sizeof(arg),
		.length = length,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_EXCHANGE_CREATE, &arg);

	*m = (struct memory){
		.r.handle = arg.out_handle,
		.r.index = arg.out_index,
		.r.length = length,
		.r.shadow_offset = arg.out_shadow_offset,
		.r.shadow_length = arg.out_shadow_length,
		.offset = arg.out_offset,
	};
	return ret;
}

static inline int memory_map(int fd, struct memory *m)
{
	return map(fd, m->offset, m->r.length, PROT_READ | PROT_WRITE,
		   MAP_SHARED, &m->at);
}

/* Creates and maps two memories of the same length. */
static inline int memories_make(int fd, __u64 length, struct memory *one,
				struct memory *other)
{
	return memory_create(fd, length, one) ?: memory_map(fd, one) ?:
	       memory_create(fd, length, other) ?: memory_map(fd, other);
}

/* The faults of a load from each page, or of a store to each. */
static inline long faults_of(char *at, size_t length, enum touch how)
{
	struct rusage before, after;
	size_t page = page_size();

	getrusage(RUSAGE_SELF, &before);
	for (size_t i = 0; i < length; i += page) {
		if (how == LOAD)
			(void)READ_ONCE(at[i]);
		else
			WRITE_ONCE(at[i], 1);
	}
	getrusage(RUSAGE_SELF, &after);
	return after.ru_minflt - before.ru_minflt;
}

/* The frames that the device uses, of so many pages. */
static inline int memory_frames(int fd, const struct memory *m,
				struct uldma_block *blocks, __u32 pages)
{
	struct uldma_region_blocks b;

	return region_blocks(fd, m->r.handle, ULDMA_BLOCKS_PAGES, 0, blocks,
			     pages, &b) ?: b.out_count - pages;
}

static inline int memory_part(int fd, unsigned long cmd, const struct memory *m,
			      __u64 offset, __u64 length,
			      struct uldma_exchange_range *part)
{
	*part = (struct uldma_exchange_range){
		.size = sizeof(*part),
		.handle = m->r.handle,
		.offset = offset,
		.length = length,
	};
	return uldma_ioctl(fd, cmd, part);
}

static inline int memory_protect(int fd, const struct memory *m, __u64 offset,
				 __u64 length)
{
	struct uldma_exchange_range part;

	return memory_part(fd, ULDMA_IOC_EXCHANGE_PROTECT, m, offset, length,
			   &part);
}

/* Ends a send: the number of pages that were copied, or a negated errno. */
static inline int memory_release(int fd, const struct memory *m, __u64 offset,
				 __u64 length)
{
	struct uldma_exchange_range part;
	int ret = memory_part(fd, ULDMA_IOC_EXCHANGE_RELEASE, m, offset, length,
			      &part);

	return ret ?: part.out_copied;
}

static inline int memory_swap(int fd, const struct memory *one, __u64 offset,
			      const struct memory *other, __u64 other_offset,
			      __u64 length)
{
	struct uldma_exchange_swap arg = {
		.size = sizeof(arg),
		.handle = one->r.handle,
		.other = other->r.handle,
		.offset = offset,
		.other_offset = other_offset,
		.length = length,
	};

	return uldma_ioctl(fd, ULDMA_IOC_EXCHANGE_SWAP, &arg);
}

#endif /* __SELFTEST_ULDMA_EXCHANGE_H */
