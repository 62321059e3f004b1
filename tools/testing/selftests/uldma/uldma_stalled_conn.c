// SPDX-License-Identifier: GPL-2.0
/*
 * A process with hundreds of buffers posted on connections, which waits to be
 * killed. On one node:
 *
 *	uldma_stalled_conn accept CONNECTIONS	# prints "ready"
 *
 * and then on the other, whose device may stop afterwards:
 *
 *	uldma_stalled_conn post CONNECTIONS PEER	# prints "posted"
 *
 * PEER is as in DOC: peers. The first takes nothing, so nothing moves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uldma_conn.h"

#define PORT 783
/* In each direction, as many as a connection can have. */
#define BUFFERS 64

static int accept_all(int count)
{
	int listener = uldma_open(0);
	int fd, ret;

	ret = listener < 0 ? listener : conn_listen(listener, PORT, BUFFERS);
	if (ret)
		return ret;
	printf("ready\n");
	fflush(stdout);
	for (int i = 0; i < count; i++) {
		fd = uldma_open(0);
		ret = fd < 0 ? fd : conn_accept(fd, PORT);
		if (ret)
			return ret;
	}
	pause();
	return 0;
}

static int post(__u32 peer)
{
	size_t page = page_size();
	char *memory = buffer(2 * BUFFERS * page);
	int fd = uldma_open(0);
	int ret;

	if (fd < 0 || !memory)
		return fd < 0 ? fd : -ENOMEM;
	ret = conn_connect(fd, peer, PORT);
	for (int i = 0; i < BUFFERS && !ret; i++, memory += 2 * page)
		ret = conn_prepost(fd, memory, page) ?:
		      conn_send(fd, memory + page, page);
	return ret;
}

static int post_all(int count, __u32 peer)
{
	int ret;

	for (int i = 0; i < count; i++) {
		ret = post(peer);
		if (ret)
			return ret;
	}
	printf("posted\n");
	fflush(stdout);
	pause();
	return 0;
}

int main(int argc, char **argv)
{
	int ret = -EINVAL;

	if (argc == 3 && !strcmp(argv[1], "accept"))
		ret = accept_all(atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "post"))
		ret = post_all(atoi(argv[2]), atoi(argv[3]));
	fprintf(stderr, "%s\n", strerror(-ret));
	return 1;
}
