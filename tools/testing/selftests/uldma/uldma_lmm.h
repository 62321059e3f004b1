/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls of the locked memory manager, as functions in the manner of uldma_utils.h;
 * and a wait until it has revalidated addresses that changed.
 */
#ifndef __SELFTEST_ULDMA_LMM_H
#define __SELFTEST_ULDMA_LMM_H

#include "uldma_utils.h"

static inline int region_query(int fd, __u32 handle,
			       struct uldma_region_query *q)
{
	*q = (struct uldma_region_query){
		.size = sizeof(*q),
		.handle = handle,
	};
	return uldma_ioctl(fd, ULDMA_IOC_REGION_QUERY, q);
}

/* Pages of a region whose addresses mean other memory now, or -1. */
static inline long stale_pages(int fd, __u32 handle)
{
	struct uldma_region_query q;

	return region_query(fd, handle, &q) ? -1 : q.out_stale / page_size();
}

/* Areas that make up a region, or -1. */
static inline long region_areas(int fd, __u32 handle)
{
	struct uldma_region_query q;

	return region_query(fd, handle, &q) ? -1 : q.out_areas;
}

static inline int region_charge(int fd, const void *addr, __u64 length,
				__u32 access, struct uldma_region_charge *c)
{
	*c = (struct uldma_region_charge){
		.size = sizeof(*c),
		.flags = access,
		.addr = (uintptr_t)addr,
		.length = length,
	};
	return uldma_ioctl(fd, ULDMA_IOC_REGION_CHARGE, c);
}

static inline int region_blocks(int fd, __u32 handle, __u32 flags,
				__u64 first_page, void *blocks, __u32 capacity,
				struct uldma_region_blocks *b)
{
	*b = (struct uldma_region_blocks){
		.size = sizeof(*b),
		.flags = flags,
		.handle = handle,
		.capacity = capacity,
		.first_page = first_page,
		.blocks = (uintptr_t)blocks,
	};
	return uldma_ioctl(fd, ULDMA_IOC_REGION_BLOCKS, b);
}

static inline int region_cleanup(int fd)
{
	return handle_ioctl(fd, ULDMA_IOC_REGION_CLEANUP, 0);
}

static inline int lmm_ioctl(int fd, __u32 flags, struct uldma_lmm *l)
{
	*l = (struct uldma_lmm){ .size = sizeof(*l), .flags = flags };
	return uldma_ioctl(fd, ULDMA_IOC_LMM, l);
}

/* All ones when the call fails, which no test takes for a good answer. */
static inline struct uldma_lmm lmm(int fd)
{
	struct uldma_lmm l;

	if (lmm_ioctl(fd, 0, &l))
		memset(&l, 0xff, sizeof(l));
	return l;
}

static inline int turn_cache_on(int fd)
{
	struct uldma_lmm l;

	return lmm_ioctl(fd, ULDMA_LMM_CACHE_ON, &l);
}

static inline int turn_cache_off(int fd)
{
	struct uldma_lmm l;

	return lmm_ioctl(fd, ULDMA_LMM_CACHE_OFF, &l);
}

/* Maps another page at a page's address, and waits for the event. */
static inline int stale_once(int fd, void *page)
{
	struct uldma_event event = { };
	struct region r;
	int ret;

	ret = region_register(fd, page, 1, ULDMA_ACCESS_READ, &r);
	if (ret)
		return ret;
	if (mmap(page, page_size(), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		return -errno;
	while (!ret && event.handle != r.handle)
		ret = event_wait(fd, ULDMA_EVENT_STALE, SOON, &event);
	return ret ?: region_unregister(fd, r.handle);
}

/*
 * Waits until the driver has revalidated all addresses that changed up to now,
 * and reported the changes to every open file of this address space. It goes
 * through the addresses in order, again and again: when it reports a change at
 * some address, it may still have to revalidate a higher one that changed
 * earlier. When it reports another change at the same address, it has done so.
 * Takes an open file of its own, for it reads all events of the file.
 */
static inline int stale_fence(int fd)
{
	void *page = buffer(page_size());
	int ret;

	if (!page)
		return -ENOMEM;
	ret = stale_once(fd, page) ?: stale_once(fd, page);
	return munmap(page, page_size()) ? -errno : ret;
}

/**
 * struct told - what events have said about one region
 * @events: how many
 * @pages: what the last of them said, in pages
 */
struct told {
	int events;
	long pages;
};

/* Takes all events that are pending, which must not be for others. */
static inline struct told stale_told(int fd, __u32 handle)
{
	struct uldma_event event;
	struct told told = { };

	while (!event_wait(fd, ULDMA_EVENT_STALE, 0, &event))
		if (event.handle == handle) {
			told.events++;
			told.pages = event.value / page_size();
		}
	return told;
}

#endif /* __SELFTEST_ULDMA_LMM_H */
