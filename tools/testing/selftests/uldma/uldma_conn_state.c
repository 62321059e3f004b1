// SPDX-License-Identifier: GPL-2.0
/*
 * How connections are made and ended, by both ends on one machine: every
 * transition that is allowed, and what each call says in the wrong state.
 */
#include "uldma_conn_pair.h"

/* No listener has this port. */
#define NO_PORT 999

FIXTURE(state) {
	struct pair pair;
	/* Bytes to have something to give. */
	char *buf;
	struct range range;
};

FIXTURE_SETUP(state)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->buf = buffer(2 * page_size());
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(state)
{
	pair_close(&self->pair);
}

/* No call for data works, and none of them changes anything. */
static void check_no_data(struct __test_metadata *_metadata, int fd, char *buf)
{
	struct range range;

	EXPECT_EQ(-ENOTCONN, conn_prepost(fd, buf, 8));
	EXPECT_EQ(-ENOTCONN, conn_send(fd, buf, 8));
	EXPECT_EQ(-ENOTCONN, conn_recv(fd, 8, &range));
	EXPECT_EQ(-ENOTCONN, conn_recycle(fd, 8, &range));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(state, none)
{
	struct uldma_conn_query q = conn_query(self->pair.a);

	EXPECT_EQ(ULDMA_CONN_NONE, q.out_state);
	EXPECT_EQ(0, q.out_flags);
	EXPECT_EQ(0, q.out_port);
	EXPECT_EQ(0, q.out_waiting);
	EXPECT_EQ(0, q.out_sent);
	EXPECT_EQ(0, q.out_received);
	EXPECT_EQ(-ENOTCONN, conn_disconnect(self->pair.a));
	check_no_data(_metadata, self->pair.a, self->buf);
}

TEST_F(state, listening)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	EXPECT_EQ(ULDMA_CONN_LISTENING, conn_state(p->listener));
	EXPECT_EQ(PORT, conn_query(p->listener).out_port);
	EXPECT_EQ(0, conn_query(p->listener).out_waiting);
	EXPECT_EQ(-EISCONN, conn_listen(p->listener, PORT, 4));
	EXPECT_EQ(-EISCONN, conn_listen(p->listener, PORT + 1, 4));
	EXPECT_EQ(-EISCONN, conn_connect(p->listener, p->to_b, NO_PORT));
	EXPECT_EQ(-EISCONN, conn_accept(p->listener, PORT));
	check_no_data(_metadata, p->listener, self->buf);
	EXPECT_EQ(ULDMA_CONN_LISTENING, conn_state(p->listener));

	EXPECT_EQ(-EADDRINUSE, conn_listen(p->a, PORT, 4));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
	/* Another device has ports of its own. */
	EXPECT_EQ(0, conn_listen(p->b, PORT, 4));
	EXPECT_EQ(0, conn_listen(p->a, PORT + 1, 4));

	EXPECT_EQ(0, conn_disconnect(p->listener));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->listener));
	EXPECT_EQ(-ENOTCONN, conn_disconnect(p->listener));
	EXPECT_EQ(0, conn_listen(p->listener, PORT, 4));
}

TEST_F(state, listen_arguments)
{
	int fd = self->pair.a;

	EXPECT_EQ(-EINVAL, conn_listen(fd, 0, 4));
	EXPECT_EQ(-EINVAL, conn_listen(fd, PORT, 0));
	EXPECT_EQ(-EINVAL, conn_listen(fd, PORT, ULDMA_CONN_MAX_BACKLOG + 1));
	EXPECT_EQ(-EINVAL, conn_listen(fd, PORT, ~0U));
	EXPECT_EQ(-EINVAL, conn_listen_once(fd, 0));
	EXPECT_EQ(-EINVAL, conn_listen_as(fd, PORT, 1, ULDMA_LISTEN_ONCE, 0));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(fd));

	EXPECT_EQ(0, conn_listen(fd, ~0U, ULDMA_CONN_MAX_BACKLOG));
	EXPECT_EQ(0, conn_disconnect(fd));
	EXPECT_EQ(0, conn_listen(fd, 1, 1));
}

/* The port is free again when its listener's file is closed. */
TEST_F(state, listener_is_closed)
{
	struct pair *p = &self->pair;
	int fd;

	for (int i = 0; i < 10; i++) {
		fd = conn_open_at(uldma_node(), 0);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, conn_listen(fd, PORT, 4));
		ASSERT_EQ(0, close(fd));
	}
	EXPECT_EQ(-ECONNREFUSED, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(-ENOENT, conn_accept(p->a, PORT));
}

TEST_F(state, connect_to_nobody)
{
	struct pair *p = &self->pair;

	EXPECT_EQ(-ECONNREFUSED, conn_connect(p->b, p->to_a, NO_PORT));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	EXPECT_EQ(-EINVAL, conn_connect(p->b, p->to_a, 0));
	EXPECT_EQ(-EINVAL, conn_connect(p->b, p->to_b, NO_PORT));
	EXPECT_EQ(-EINVAL, conn_connect(p->b, ULDMA_MAX_NODES + 1, NO_PORT));
	EXPECT_EQ(-EINVAL, conn_connect(p->b, ~0U, NO_PORT));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	EXPECT_EQ(0, conn_connect(p->b, p->to_a, PORT));
}

TEST_F(state, accept_arguments)
{
	struct pair *p = &self->pair;
	__u32 node = ~0U;

	EXPECT_EQ(-ENOENT, conn_accept(p->a, NO_PORT));
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	/* The listener is of the other device. */
	EXPECT_EQ(-ENOENT, conn_accept(p->b, PORT));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(1, conn_query(p->listener).out_waiting);
	ASSERT_EQ(0, conn_accept_from(p->a, PORT, &node));
	EXPECT_EQ(p->to_b - 1, node);
	EXPECT_EQ(0, conn_query(p->listener).out_waiting);
	EXPECT_EQ(-EISCONN, conn_accept(p->a, PORT));
}

static int accept_anew(void *arg)
{
	int fd = conn_open_at(uldma_node(), 0);

	return fd < 0 ? fd : conn_accept(fd, PORT);
}

TEST_F(state, accept_in_another_process)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(-EPERM, in_child(accept_anew, NULL));
	EXPECT_EQ(1, conn_query(p->listener).out_waiting);
	EXPECT_EQ(0, conn_accept(p->a, PORT));
}

TEST_F(state, connected)
{
	struct pair *p = &self->pair;
	struct uldma_conn_query a, b;

	ASSERT_EQ(0, pair_connect(p, 0));
	a = conn_query(p->a);
	b = conn_query(p->b);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, a.out_state);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, b.out_state);
	EXPECT_EQ(p->to_b - 1, a.out_node);
	EXPECT_EQ(p->to_a - 1, b.out_node);
	EXPECT_EQ(PORT, a.out_port);
	EXPECT_EQ(PORT, b.out_port);
	EXPECT_NE(0, a.out_name);
	EXPECT_EQ(a.out_name, b.out_name);
	EXPECT_EQ(a.out_flags, b.out_flags);
	EXPECT_EQ(0, a.out_flags & (ULDMA_CONN_PULL | ULDMA_CONN_RESET));

	EXPECT_EQ(-EISCONN, conn_listen(p->a, PORT + 1, 4));
	EXPECT_EQ(-EISCONN, conn_listen_once(p->a, PORT + 1));
	EXPECT_EQ(-EISCONN, conn_connect(p->a, p->to_b, PORT));
	EXPECT_EQ(-EISCONN, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(-EISCONN, conn_accept(p->a, PORT));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->b));
}

/* Each connection has a name of its own. */
TEST_F(state, names)
{
	struct pair *p = &self->pair;
	__u64 names[16];

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	for (int i = 0; i < ARRAY_SIZE(names); i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		names[i] = conn_query(p->b).out_name;
		for (int j = 0; j < i; j++)
			EXPECT_NE(names[j], names[i]);
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		ASSERT_EQ(0, conn_disconnect(p->b));
		ASSERT_EQ(0, conn_disconnect(p->a));
	}
}

TEST_F(state, pull)
{
	struct pair *p = &self->pair;
	int ret = pair_connect(p, ULDMA_CONNECT_PULL);

	if (query(p->a).out_backend == ULDMA_BACKEND_IVSHMEM) {
		EXPECT_EQ(-EOPNOTSUPP, ret);
		return;
	}
	ASSERT_EQ(0, ret);
	EXPECT_TRUE(conn_query(p->a).out_flags & ULDMA_CONN_PULL);
	EXPECT_TRUE(conn_query(p->b).out_flags & ULDMA_CONN_PULL);
}

/* One side disconnects; the other sees the end, and an open file is new after. */
static void check_disconnect(struct __test_metadata *_metadata,
			     struct pair *p, int first, int second, char *buf)
{
	struct range range;

	EXPECT_EQ(0, conn_disconnect(first));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(first));
	EXPECT_EQ(-ENOTCONN, conn_disconnect(first));
	check_no_data(_metadata, first, buf);

	EXPECT_TRUE(conn_poll(second, POLLRDHUP, SOON) & POLLRDHUP);
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(second));
	EXPECT_EQ(0, conn_query(second).out_flags & ULDMA_CONN_RESET);
	EXPECT_EQ(-EPIPE, conn_send(second, buf, 8));
	EXPECT_EQ(0, conn_recv(second, 8, &range));
	EXPECT_EQ(0, range.length);
	EXPECT_EQ(0, conn_recycle(second, 8, &range));
	EXPECT_EQ(0, range.length);
	EXPECT_EQ(-EISCONN, conn_listen(second, PORT + 1, 4));
	EXPECT_EQ(-EISCONN, conn_connect(second, second == p->a ? p->to_b :
							       p->to_a, PORT));
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(second));
	EXPECT_EQ(0, conn_disconnect(second));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(second));
	EXPECT_EQ(-ENOTCONN, conn_disconnect(second));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(state, disconnect)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	check_disconnect(_metadata, p, p->a, p->b, self->buf);
	/* The same open files can do it all over again. */
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		if (i % 2)
			check_disconnect(_metadata, p, p->a, p->b, self->buf);
		else
			check_disconnect(_metadata, p, p->b, p->a, self->buf);
	}
}

/* An open file that has connected can listen, and the other way round. */
TEST_F(state, other_role)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	ASSERT_EQ(0, conn_disconnect(p->a));
	ASSERT_EQ(0, conn_disconnect(p->b));
	ASSERT_EQ(0, conn_listen_once(p->b, PORT + 1));
	ASSERT_EQ(0, conn_connect(p->a, p->to_b, PORT + 1));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	EXPECT_TRUE(conn_poll(p->b, POLLOUT, SOON) & POLLOUT);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->b));
}

TEST_F(state, listen_once)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_listen_once(p->a, PORT));
	EXPECT_EQ(ULDMA_CONN_LISTENING, conn_state(p->a));
	EXPECT_EQ(-EADDRINUSE, conn_listen(p->listener, PORT, 4));
	EXPECT_EQ(0, conn_poll(p->a, POLLOUT, 0) & POLLOUT);
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_TRUE(conn_poll(p->a, POLLOUT, SOON) & POLLOUT);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	EXPECT_EQ(conn_query(p->a).out_name, conn_query(p->b).out_name);

	/* The listener has ended. */
	EXPECT_EQ(-ENOENT, conn_accept(p->listener, PORT));
	EXPECT_EQ(0, conn_listen(p->listener, PORT, 4));
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
	EXPECT_EQ(0, conn_listen_once(p->a, PORT + 1));
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
}

/* Room in the backlog is what decides. */
TEST_F(state, backlog)
{
	struct pair *p = &self->pair;
	int fds[5];

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 3));
	for (int i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = conn_open_at(uldma_other(), 0);
		ASSERT_LE(0, fds[i]);
		EXPECT_EQ(i < 3 ? 0 : -ECONNREFUSED,
			  conn_connect(fds[i], p->to_a, PORT));
	}
	EXPECT_EQ(3, conn_query(p->listener).out_waiting);
	EXPECT_EQ(2, conn_query(p->listener).out_refused);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(fds[0]));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(fds[3]));

	/* The oldest is the one that is taken. */
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	EXPECT_EQ(conn_query(fds[0]).out_name, conn_query(p->a).out_name);
	EXPECT_EQ(2, conn_query(p->listener).out_waiting);
	EXPECT_EQ(0, conn_connect(fds[3], p->to_a, PORT));
	EXPECT_EQ(-ECONNREFUSED, conn_connect(fds[4], p->to_a, PORT));
	EXPECT_EQ(3, conn_query(p->listener).out_refused);
	for (int i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* A listener that ends resets the connections that were not accepted. */
TEST_F(state, listener_goes)
{
	struct pair *p = &self->pair;
	int other = conn_open_at(uldma_other(), 0);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	ASSERT_EQ(0, conn_connect(other, p->to_a, PORT));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	ASSERT_EQ(0, conn_disconnect(p->listener));
	EXPECT_TRUE(conn_has_ended(other));
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(other));
	/* Accepted connections stay. */
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->b));
	EXPECT_EQ(0, conn_disconnect(other));

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	ASSERT_EQ(0, conn_connect(other, p->to_a, PORT));
	ASSERT_EQ(0, close(p->listener));
	p->listener = -1;
	EXPECT_TRUE(conn_has_ended(other));
	close(other);
}

/* Each connects to the other: that makes two. */
TEST_F(state, crossing_connects)
{
	struct pair *p = &self->pair;
	int listener = conn_open_at(uldma_other(), 0);
	int a = conn_open_at(uldma_node(), 0);
	int b = conn_open_at(uldma_other(), 0);

	ASSERT_LE(0, listener);
	ASSERT_LE(0, a);
	ASSERT_LE(0, b);
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 4));
	ASSERT_EQ(0, conn_listen(listener, PORT, 4));
	ASSERT_EQ(0, conn_connect(a, p->to_b, PORT));
	ASSERT_EQ(0, conn_connect(b, p->to_a, PORT));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	ASSERT_EQ(0, conn_accept(p->b, PORT));
	EXPECT_EQ(conn_query(b).out_name, conn_query(p->a).out_name);
	EXPECT_EQ(conn_query(a).out_name, conn_query(p->b).out_name);
	EXPECT_NE(conn_query(a).out_name, conn_query(b).out_name);
	close(listener);
	close(a);
	close(b);
}

static int child_uses(void *arg)
{
	struct pair *p = arg;
	char *buf = buffer(page_size());
	struct range range;

	if (conn_prepost(p->a, buf, 8) != -EPERM ||
	    conn_send(p->a, buf, 8) != -EPERM ||
	    conn_recv(p->a, 8, &range) != -EPERM ||
	    conn_recycle(p->a, 8, &range) != -EPERM)
		return -EINVAL;
	return 0;
}

/* The connection stays with its address space. */
TEST_F(state, fork)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	EXPECT_EQ(0, in_child(child_uses, p));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	ASSERT_EQ(0, conn_send(p->a, self->buf, 8));
	EXPECT_EQ(0, conn_recv_into(p->b, self->buf + 8, 8));
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
