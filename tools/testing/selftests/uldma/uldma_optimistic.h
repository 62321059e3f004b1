/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Transfers to and from memory that may not be there, as programs make them.
 */
#ifndef __SELFTEST_ULDMA_OPTIMISTIC_H
#define __SELFTEST_ULDMA_OPTIMISTIC_H

#include <sched.h>
#include <time.h>

#include "uldma_utils.h"

/*
 * Copies once: 0, an enum uldma_dma_status or a negated errno. @bytes are those
 * that were copied.
 */
static inline int copy(int fd, const struct region *to, size_t to_at,
		       const struct region *from, size_t from_at,
		       __u64 length, __u64 *bytes)
{
	struct uldma_dma_wait result = { 0 };
	__u64 ticket;
	int ret;

	ret = kernel_start(fd, to->handle, to_at, from->handle, from_at, length,
			   &ticket) ?:
	      dma_wait(fd, 0, ticket, PATIENCE, &result);
	*bytes = result.out_bytes;
	return ret ?: result.out_status;
}

/* Copies, and again as long as pages are not there yet, which the driver is told. */
static inline int copy_all(int fd, const struct region *to, size_t to_at,
			   const struct region *from, size_t from_at,
			   __u64 length)
{
	struct timespec now, limit;
	__u64 bytes;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		ret = copy(fd, to, to_at, from, from_at, length, &bytes);
		if (ret != ULDMA_DMA_NOT_RESIDENT)
			return ret;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec <= limit.tv_sec);
	return ret;
}

#endif /* __SELFTEST_ULDMA_OPTIMISTIC_H */
