/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the two sides of a meeting say: uldma_fuzz_meet.c, uldma_fuzz_guest.c.
 */
#ifndef __SELFTEST_ULDMA_FUZZ_MEET_H
#define __SELFTEST_ULDMA_FUZZ_MEET_H

#include <linux/types.h>

/* The port where endpoints meet, behind those of the model. */
#define MEETING_PORT 100

/**
 * struct endpoint_name - names an endpoint to another node
 * @node: its node
 * @index: its index there
 * @generation: its generation
 */
struct endpoint_name {
	__u32 node;
	__u32 index;
	__u64 generation;
};

/* uldma_fuzz_guest.c */
void meet_all(void);

#endif /* __SELFTEST_ULDMA_FUZZ_MEET_H */
