// SPDX-License-Identifier: GPL-2.0
/*
 * Many connections at once, many listeners, and more that want to connect than
 * there is room for; nothing is left of them.
 */
#include "uldma_conn_pair.h"
#include "uldma_conn_stream.h"

#define CONNECTIONS 200
#define LISTENERS 200
#define ROOM 4
#define PROCESSES 4
#define ATTEMPTS 200

FIXTURE(limits) {
	struct pair pair;
	char *buf;
	__u32 at_a;
	__u32 at_b;
	__u32 regions;
	__u32 pages;
};

FIXTURE_SETUP(limits)
{
	struct uldma_query q;

	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->buf = buffer(2 * CONNECTIONS * 16);
	ASSERT_NE(NULL, self->buf);
	q = query(self->pair.a);
	self->at_a = q.out_connections;
	self->regions = q.out_regions;
	self->pages = q.out_pages;
	self->at_b = query(self->pair.b).out_connections;
}

/* As at the beginning, once the other side has seen the end, too. */
FIXTURE_TEARDOWN(limits)
{
	int a = conn_open_at(uldma_node(), 0);
	int b = conn_open_at(uldma_other(), 0);

	pair_close(&self->pair);
	EXPECT_TRUE(eventually(query(a).out_connections == self->at_a));
	EXPECT_TRUE(eventually(query(b).out_connections == self->at_b));
	EXPECT_TRUE(eventually(query(a).out_regions == self->regions));
	EXPECT_TRUE(eventually(query(a).out_pages == self->pages));
	EXPECT_TRUE(eventually(!vm_pin()));
	close(a);
	close(b);
}

/* All are there, and each leads where it should. */
TEST_F_TIMEOUT(limits, connections, 240)
{
	struct pair *p = &self->pair;
	int a[CONNECTIONS], b[CONNECTIONS];

	ASSERT_EQ(0, conn_listen(p->listener, PORT, ROOM));
	for (int i = 0; i < CONNECTIONS; i++) {
		a[i] = conn_open_at(uldma_node(), 0);
		b[i] = conn_open_at(uldma_other(), 0);
		ASSERT_LE(0, a[i]);
		ASSERT_LE(0, b[i]);
		ASSERT_EQ(0, conn_connect(b[i], p->to_a, PORT))
			TH_LOG("connection %d", i);
		ASSERT_EQ(0, conn_accept(a[i], PORT));
	}
	EXPECT_EQ(self->at_a + CONNECTIONS, query(p->a).out_connections);
	EXPECT_EQ(self->at_b + CONNECTIONS, query(p->b).out_connections);
	for (int i = 0; i < CONNECTIONS; i++) {
		char *from = self->buf + 16 * i;
		char *to = from + 16 * CONNECTIONS;

		stream_fill(from, 16, i, 0);
		ASSERT_EQ(0, conn_prepost(a[i], to, 16));
		ASSERT_EQ(0, conn_send(b[i], from, 16));
	}
	for (int i = CONNECTIONS - 1; i >= 0; i--) {
		char *to = self->buf + 16 * (CONNECTIONS + i);

		ASSERT_EQ(0, conn_recv_all(a[i], to, 16));
		EXPECT_EQ(-1, stream_check(to, 16, i, 0));
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		close(i % 2 ? a[i] : b[i]);
		close(i % 2 ? b[i] : a[i]);
	}
}

TEST_F(limits, listeners)
{
	struct pair *p = &self->pair;
	int fds[LISTENERS];

	for (int i = 0; i < LISTENERS; i++) {
		fds[i] = conn_open_at(uldma_node(), 0);
		ASSERT_LE(0, fds[i]);
		ASSERT_EQ(0, conn_listen(fds[i], PORT + i, 1));
	}
	for (int i = 0; i < LISTENERS; i += 13) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT + i));
		EXPECT_EQ(1, conn_query(fds[i]).out_waiting);
		ASSERT_EQ(0, conn_accept(p->a, PORT + i));
		EXPECT_EQ(PORT + i, conn_query(p->a).out_port);
		ASSERT_EQ(0, conn_disconnect(p->a));
		ASSERT_EQ(0, conn_disconnect(p->b));
	}
	EXPECT_EQ(-ECONNREFUSED, conn_connect(p->b, p->to_a,
					      PORT + LISTENERS));
	for (int i = 0; i < LISTENERS; i++)
		close(fds[i]);
}

/* Results of the attempts of a process. */
struct attempts {
	int good;
	int refused;
	int other;
};

static void attempt(struct attempts *attempts, int ret)
{
	if (!ret)
		attempts->good++;
	else if (ret == -ECONNREFUSED)
		attempts->refused++;
	else
		attempts->other = ret;
}

/* Keeps its objects, and reports after enough attempts. */
static void flood_and_keep(int fd, void *arg)
{
	struct pair *p = arg;
	struct attempts attempts = { };
	int own = -1;
	int ret = 0;

	for (int i = 0; i < ATTEMPTS; i++) {
		if (!ret)
			own = conn_open_at(uldma_other(), 0);
		ret = conn_connect(own, p->to_a, PORT);
		attempt(&attempts, ret);
	}
	if (write(fd, &attempts, sizeof(attempts)) != sizeof(attempts))
		_exit(1);
}

/* The same, but leaves at once and comes again. */
static void flood_and_leave(int fd, void *arg)
{
	struct pair *p = arg;
	struct attempts attempts = { };
	int own;

	for (int i = 0; i < ATTEMPTS; i++) {
		own = conn_open_at(uldma_other(), 0);
		attempt(&attempts, conn_connect(own, p->to_a, PORT));
		close(own);
	}
	if (write(fd, &attempts, sizeof(attempts)) != sizeof(attempts))
		_exit(1);
}

static void check_flood(struct __test_metadata *_metadata, struct pair *p,
			struct helper *helpers, struct attempts *sum)
{
	struct attempts one;

	*sum = (struct attempts){ };
	for (int i = 0; i < PROCESSES; i++) {
		ASSERT_EQ(sizeof(one),
			  read(helpers[i].fd, &one, sizeof(one)));
		EXPECT_EQ(0, one.other);
		sum->good += one.good;
		sum->refused += one.refused;
	}
	EXPECT_EQ(PROCESSES * ATTEMPTS, sum->good + sum->refused);
	EXPECT_EQ(sum->refused, conn_query(p->listener).out_refused);
}

/* No process accepts: as many connects as the backlog has room for succeed. */
TEST_F_TIMEOUT(limits, flood, 240)
{
	struct helper helpers[PROCESSES];
	struct pair *p = &self->pair;
	struct attempts sum;
	int fds[ROOM];

	ASSERT_EQ(0, conn_listen(p->listener, PORT, ROOM));
	for (int i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, helper_start(&helpers[i], flood_and_keep, p));
	check_flood(_metadata, p, helpers, &sum);
	EXPECT_EQ(ROOM, sum.good);
	EXPECT_EQ(ROOM, conn_query(p->listener).out_waiting);
	for (int i = 0; i < ROOM; i++) {
		fds[i] = conn_open_at(uldma_node(), 0);
		ASSERT_EQ(0, conn_accept(fds[i], PORT));
		EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(fds[i]));
	}
	EXPECT_EQ(0, conn_query(p->listener).out_waiting);
	for (int i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, helper_kill(&helpers[i]));
	for (int i = 0; i < ROOM; i++) {
		EXPECT_TRUE(conn_has_ended(fds[i]));
		close(fds[i]);
	}
}

/* Accepted as they come, or not any more; and then an honest one. */
TEST_F_TIMEOUT(limits, flood_and_leave, 240)
{
	struct helper helpers[PROCESSES];
	struct pair *p = &self->pair;
	struct attempts sum;
	int accepted = 0;

	ASSERT_EQ(0, fcntl(p->a, F_SETFL, O_NONBLOCK));
	ASSERT_EQ(0, conn_listen(p->listener, PORT, ROOM));
	for (int i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, helper_start(&helpers[i], flood_and_leave, p));
	/* The first that is done ends the accepting. */
	while (!poll_for(helpers[0].fd, 0))
		if (!conn_accept(p->a, PORT)) {
			accepted++;
			ASSERT_EQ(0, conn_disconnect(p->a));
		}
	check_flood(_metadata, p, helpers, &sum);
	EXPECT_LT(0, sum.good);
	EXPECT_LE(accepted, sum.good);
	for (int i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, helper_kill(&helpers[i]));
	while (!conn_accept(p->a, PORT))
		ASSERT_EQ(0, conn_disconnect(p->a));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	EXPECT_EQ(conn_query(p->a).out_name, conn_query(p->b).out_name);
}

/* Over and over again: what is used is used again. */
TEST_F_TIMEOUT(limits, churn, 240)
{
	struct pair *p = &self->pair;
	char *to = self->buf + 100;

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	stream_fill(self->buf, 100, 1, 0);
	for (int i = 0; i < 500; i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		ASSERT_EQ(0, conn_prepost(p->a, to, 100));
		ASSERT_EQ(0, conn_send(p->b, self->buf, 100));
		ASSERT_EQ(0, conn_recv_all(p->a, to, 100));
		ASSERT_EQ(0, conn_disconnect(i % 2 ? p->a : p->b));
		ASSERT_EQ(0, conn_disconnect(i % 2 ? p->b : p->a));
	}
	EXPECT_EQ(-1, stream_check(to, 100, 1, 0));
	EXPECT_EQ(0, vm_pin());
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
