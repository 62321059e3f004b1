/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kselftest harness. A program includes this once, for the harness defines
 * variables.
 */
#ifndef __SELFTEST_ULDMA_HARNESS_H
#define __SELFTEST_ULDMA_HARNESS_H

#include "kselftest_harness.h"
#include "uldma_process.h"

/* A kernel with every checker on is eight times as slow. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

/*
 * Whether the kernel looks for memory that nothing points to. It allocates an
 * object for each that is allocated, and ends the search when it cannot.
 */
static inline bool has_kmemleak(void)
{
	return !access("/sys/kernel/debug/kmemleak", F_OK);
}

/* A machine without the device skips the program; any other lack fails. */
static inline int uldma_main(int argc, char **argv)
{
	if (argc == 1 && access(uldma_node(), F_OK)) {
		ksft_print_header();
		ksft_exit_skip("no device node %s\n", uldma_node());
	}
	return test_harness_run(argc, argv);
}

#endif /* __SELFTEST_ULDMA_HARNESS_H */
