// SPDX-License-Identifier: GPL-2.0
/*
 * Copies to and from windows. memcpy_toio() of x86 moves 32 bits at a time, by
 * a string instruction that emulators carry out step by step; these move 64.
 */

#include <linux/io.h>
#include <linux/kmsan-checks.h>
#include <linux/minmax.h>
#include <linux/unaligned.h>
#include <linux/unroll.h>

#include "window.h"

/* Accesses of one turn of a loop. */
#define ULDMA_WINDOW_UNROLL	8

/* Returns the number of bytes in front of the first aligned word. */
static size_t uldma_window_head(const void __iomem *at, size_t count)
{
	return min(-(unsigned long)at % sizeof(u64), count);
}

void uldma_window_copy_to(void __iomem *to, const void *from, size_t count)
{
	size_t head = uldma_window_head(to, count);
	size_t words, i;

	memcpy_toio(to, from, head);
	to += head;
	from += head;
	words = (count - head) / sizeof(u64);
	kmsan_check_memory(from, words * sizeof(u64));
	unrolled_count(ULDMA_WINDOW_UNROLL)
	for (i = 0; i < words; i++)
		__raw_writeq(get_unaligned((const u64 *)from + i),
			     (u64 __iomem *)to + i);
	memcpy_toio(to + words * sizeof(u64), from + words * sizeof(u64),
		    (count - head) % sizeof(u64));
}

void uldma_window_copy_from(void *to, const void __iomem *from, size_t count)
{
	size_t head = uldma_window_head(from, count);
	size_t words, i;

	memcpy_fromio(to, from, head);
	to += head;
	from += head;
	words = (count - head) / sizeof(u64);
	unrolled_count(ULDMA_WINDOW_UNROLL)
	for (i = 0; i < words; i++)
		put_unaligned(__raw_readq((const u64 __iomem *)from + i),
			      (u64 *)to + i);
	kmsan_unpoison_memory(to, words * sizeof(u64));
	memcpy_fromio(to + words * sizeof(u64), from + words * sizeof(u64),
		      (count - head) % sizeof(u64));
}
