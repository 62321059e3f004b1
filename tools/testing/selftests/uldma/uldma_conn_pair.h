/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For programs that have both ends of a link on one machine: two open files with a
 * connection between them. To be included once per program.
 */
#ifndef __SELFTEST_ULDMA_CONN_PAIR_H
#define __SELFTEST_ULDMA_CONN_PAIR_H

#include "uldma_conn.h"
#include "uldma_harness.h"

#define PORT 1000

/**
 * struct pair - two open files, of one end each
 * @listener: of the first end
 * @a: of the first end, has accepted
 * @b: of the second end, has connected
 * @to_a: the first end, as the second names it
 * @to_b: and the other way round
 */
struct pair {
	int listener;
	int a;
	int b;
	__u32 to_a;
	__u32 to_b;
};

/* Sleeps until a node is up: 0 or -ENOTCONN. */
static inline int conn_link_wait(int fd, __u32 node)
{
	struct uldma_event event;

	while (!(query(fd).out_peers & 1U << node))
		if (event_wait(fd, ULDMA_EVENT_LINK, SOON, &event))
			return -ENOTCONN;
	return 0;
}

/* Three open files without connections, whose devices see each other. */
static inline int pair_open(struct pair *p, int flags)
{
	*p = (struct pair){
		.listener = conn_open_at(uldma_node(), flags),
		.a = conn_open_at(uldma_node(), flags),
		.b = conn_open_at(uldma_other(), flags),
	};
	if (p->listener < 0 || p->a < 0 || p->b < 0)
		return -ENODEV;
	p->to_a = query(p->a).out_node + 1;
	p->to_b = query(p->b).out_node + 1;
	return conn_link_wait(p->a, p->to_b - 1) ?:
	       conn_link_wait(p->b, p->to_a - 1);
}

/* OpenFiles that have a connection; flags as those of the connect. */
static inline int pair_connect(struct pair *p, __u32 flags)
{
	return conn_listen(p->listener, PORT, 4) ?:
	       conn_connect_as(p->b, p->to_a, PORT, flags) ?:
	       conn_accept(p->a, PORT);
}

static inline void pair_close(struct pair *p)
{
	close(p->a);
	close(p->b);
	close(p->listener);
}

/* Why there cannot be a pair, or NULL. */
static inline const char *pair_missing(void)
{
	struct uldma_query first, second;
	int a, b;

	a = conn_open_at(uldma_node(), 0);
	if (a < 0)
		return "no device node";
	b = conn_open_at(uldma_other(), 0);
	if (b < 0)
		return "no device node of the other end (ULDMA_DEVICE2)";
	first = query(a);
	second = query(b);
	close(a);
	close(b);
	if (first.out_backend != second.out_backend)
		return "the two devices are not of one kind";
	return NULL;
}

static inline int pair_main(int argc, char **argv)
{
	const char *missing = argc == 1 ? pair_missing() : NULL;

	if (missing) {
		ksft_print_header();
		ksft_exit_skip("%s\n", missing);
	}
	return test_harness_run(argc, argv);
}

#endif /* __SELFTEST_ULDMA_CONN_PAIR_H */
