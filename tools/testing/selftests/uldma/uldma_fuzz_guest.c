// SPDX-License-Identifier: GPL-2.0
/*
 * The endpoints of the other node that meet those of the fuzzer: each sends some
 * messages, and receives all that come.
 */
#include "uldma_conn.h"
#include "uldma_fuzz_meet.h"
#include "uldma_msg.h"

/* Messages that are sent, and slots; of one byte, as an endpoint may take no more. */
#define MESSAGES 4
#define MESSAGE_BYTES 1
/* How late the end of a meeting is seen. */
#define SLICE_NS (20 * 1000 * 1000)

/* This end of a meeting. */
struct guest {
	int fd;
	struct endpoint e;
	struct context c;
	struct slots in;
	struct slots out;
};

static int guest_make(struct guest *g, const struct endpoint_name *peer)
{
	g->fd = uldma_open(O_NONBLOCK);
	if (g->fd < 0)
		return g->fd;
	return endpoint_create(g->fd, NO_LIMIT, page_size(), &g->e) ?:
	       context_create_as(g->fd, ULDMA_METHOD_QUEUE, 0, &g->c) ?:
	       context_map(g->fd, &g->c) ?:
	       slots_create(g->fd, 0, g->e.handle, MESSAGES, page_size(), &g->out) ?:
	       slots_create(g->fd, ULDMA_MSG_RECEIVE, g->e.handle, MESSAGES, page_size(),
			    &g->in) ?:
	       endpoint_connect(g->fd, &g->e, peer->node, peer->index, peer->generation);
}

static void guest_end(struct guest *g)
{
	context_unmap(&g->c);
	munmap(g->e.ring, page_size());
	munmap(g->e.status, page_size());
	close(g->fd);
}

/* Sends, and receives until the caller ends the connection. */
static int entertain(int fd, struct endpoint_name *name)
{
	struct uldma_msg_recv got;
	struct guest g = { };
	int ret = conn_recv_into(fd, name, sizeof(*name)) ?: guest_make(&g, name);

	for (int i = 0; i < MESSAGES && !ret; i++)
		ret = msg_send(g.fd, &g.c, &g.out, name, MESSAGE_BYTES, PATIENCE) < 0;
	if (ret)
		return ret;
	*name = (struct endpoint_name){
		.node = query(g.fd).out_node,
		.index = g.e.index,
		.generation = g.e.generation,
	};
	ret = conn_send_wait(fd, name, sizeof(*name));
	while (!ret && !conn_poll(fd, POLLRDHUP, 0))
		msg_recv(g.fd, &g.in, name, page_size(), SLICE_NS, &got);
	guest_end(&g);
	return 0;
}

/* Meets one endpoint after the other. */
void meet_all(void)
{
	struct endpoint_name *name = buffer(page_size());
	int listener = uldma_open(0), fd;

	if (listener < 0 || !name ||
	    conn_listen(listener, MEETING_PORT, ULDMA_CONN_MAX_BACKLOG))
		_exit(1);
	for (;;) {
		fd = uldma_open(0);
		if (fd < 0 || conn_accept(fd, MEETING_PORT) || entertain(fd, name))
			_exit(1);
		close(fd);
	}
}
