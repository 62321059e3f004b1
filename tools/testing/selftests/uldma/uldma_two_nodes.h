/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The main function of a program of two nodes. On one:
 *
 *	PROGRAM serve	# prints "ready"
 *
 * and then on the other:
 *
 *	PROGRAM run	# KTAP; ends the first at the end
 */
#ifndef __SELFTEST_ULDMA_TWO_NODES_H
#define __SELFTEST_ULDMA_TWO_NODES_H

#include "uldma_harness.h"

/* Calls @serve, or runs the tests and then calls @quit, which ends the first. */
static inline int two_nodes_main(int argc, char **argv, int (*serve)(void),
				 void (*quit)(void))
{
	const char *role = argc > 1 ? argv[1] : "";
	int ret;

	if (!strcmp(role, "serve")) {
		ret = serve();
		if (ret)
			fprintf(stderr, "serve: %s\n", strerror(-ret));
		return !!ret;
	}
	if (strcmp(role, "run")) {
		fprintf(stderr, "usage: %s serve | run [-t test]...\n",
			argv[0]);
		return KSFT_FAIL;
	}
	/* The harness exits by itself; its children do so without this. */
	atexit(quit);
	return test_harness_run(argc - 1, argv + 1);
}

#endif /* __SELFTEST_ULDMA_TWO_NODES_H */
