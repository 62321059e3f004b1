/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Regions in this node's section of the window, as functions.
 */
#ifndef __SELFTEST_ULDMA_WINDOW_H
#define __SELFTEST_ULDMA_WINDOW_H

#include "uldma_utils.h"

/**
 * struct window - a region in the window
 * @r: its handle, index and length
 * @offset: where to map it
 * @at: where it is mapped
 */
struct window {
	struct region r;
	__u64 offset;
	char *at;
};

static inline int window_create(int fd, __u32 access, __u64 length,
				struct window *w)
{
	struct uldma_region_window arg = {
		.size = sizeof(arg),
		.flags = access,
		.length = length,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_REGION_WINDOW, &arg);

	*w = (struct window){
		.r.handle = arg.out_handle,
		.r.index = arg.out_index,
		.r.length = arg.out_length,
		.offset = arg.out_offset,
	};
	return ret;
}

static inline int window_map(int fd, struct window *w)
{
	return map(fd, w->offset, w->r.length, PROT_READ | PROT_WRITE,
		   MAP_SHARED, &w->at);
}

static inline int window_make(int fd, __u32 access, __u64 length,
			      struct window *w)
{
	return window_create(fd, access, length, w) ?: window_map(fd, w);
}

#endif /* __SELFTEST_ULDMA_WINDOW_H */
