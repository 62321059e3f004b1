// SPDX-License-Identifier: GPL-2.0
/*
 * What one user can have of connections and ports, which all users share: a
 * hostile one takes what it gets, and another notices nothing.
 */
#include "uldma_conn_pair.h"

/* Where there is room for more connections than one user can have. */
#define LISTENERS 5
#define FILES 4096
/* Where the hostile user listens, and where others do. */
#define HOSTILE_PORT 2000
#define OTHER_PORT 9000

FIXTURE(user) {
	struct pair pair;
	struct uldma_query before;
	mode_t mode_a;
	mode_t mode_b;
	int listeners[LISTENERS];
	struct helper helper;
};

static int open_to_all(const char *node, mode_t *mode)
{
	struct stat found;

	if (stat(node, &found) || chmod(node, 0666))
		return -errno;
	*mode = found.st_mode & 07777;
	return 0;
}

FIXTURE_SETUP(user)
{
	struct rlimit files = { FILES, FILES };

	if (geteuid())
		SKIP(return, "needs root, to become others");
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
	ASSERT_EQ(0, open_to_all(uldma_node(), &self->mode_a));
	ASSERT_EQ(0, open_to_all(uldma_other(), &self->mode_b));
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->before = query(self->pair.a);
	for (int i = 0; i < LISTENERS; i++)
		self->listeners[i] = -1;
}

FIXTURE_TEARDOWN(user)
{
	__u32 connections = self->before.out_connections;
	int fd = conn_open_at(uldma_node(), 0);

	if (self->helper.pid)
		EXPECT_EQ(0, helper_kill(&self->helper));
	for (int i = 0; i < LISTENERS; i++)
		close(self->listeners[i]);
	pair_close(&self->pair);
	EXPECT_TRUE(eventually(query(fd).out_connections == connections));
	close(fd);
	chmod(uldma_node(), self->mode_a);
	chmod(uldma_other(), self->mode_b);
}

/* Number of objects that a hostile child got, and its last error. */
struct loot {
	__u32 count;
	int error;
	struct uldma_query q;
};

static void tell(int out, const struct loot *loot)
{
	if (write(out, loot, sizeof(*loot)) != sizeof(*loot))
		_exit(1);
}

/* Listens at as many ports as are needed for all connections. */
static int listen_at_all(const char *node, int *fds, __u32 first)
{
	int ret = 0;

	for (int i = 0; !ret && i < LISTENERS; i++) {
		fds[i] = conn_open_at(node, 0);
		ret = fds[i] < 0 ? fds[i] :
		      conn_listen(fds[i], first + i, ULDMA_CONN_MAX_BACKLOG);
	}
	return ret;
}

/* One connection to those ports, by a file of its own that is kept. */
static int connect_one(const char *node, __u32 peer, __u32 first, __u32 count)
{
	int fd = conn_open_at(node, 0);
	int ret = fd < 0 ? fd :
		  conn_connect(fd, peer,
			       first + count / ULDMA_CONN_MAX_BACKLOG);

	if (ret && fd >= 0)
		close(fd);
	return ret;
}

static void take_connections(int out, void *arg)
{
	__u32 peer = *(__u32 *)arg;
	struct loot loot = { };

	loot.error = become(HOSTILE, 16 * page_size());
	while (!loot.error &&
	       loot.count < LISTENERS * ULDMA_CONN_MAX_BACKLOG) {
		loot.error = connect_one(uldma_node(), peer, PORT, loot.count);
		loot.count += !loot.error;
	}
	loot.q = query(uldma_open(0));
	tell(out, &loot);
}

static int connect_as(uid_t uid, __u32 peer)
{
	return become(uid, 16 * page_size()) ?:
	       connect_one(uldma_node(), peer, PORT + LISTENERS - 1, 0);
}

static int connect_as_other(void *arg)
{
	return connect_as(OTHER, *(__u32 *)arg);
}

static int connect_as_hostile(void *arg)
{
	return connect_as(HOSTILE, *(__u32 *)arg);
}

TEST_F_TIMEOUT(user, connections, 400)
{
	struct pair *p = &self->pair;
	struct loot loot = { };

	ASSERT_EQ(0, listen_at_all(uldma_other(), self->listeners, PORT));
	ASSERT_EQ(0, helper_start(&self->helper, take_connections, &p->to_b));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_LT(0, loot.count);
	EXPECT_EQ(loot.count, loot.q.out_user_connections);
	EXPECT_EQ(loot.count, loot.q.out_user_max_connections);

	/* Neither root nor another user notices; another process of his does. */
	EXPECT_EQ(0, conn_connect(p->a, p->to_b, PORT + LISTENERS - 1));
	EXPECT_EQ(0, in_child(connect_as_other, &p->to_b));
	EXPECT_EQ(-EDQUOT, in_child(connect_as_hostile, &p->to_b));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
	EXPECT_TRUE(eventually(!in_child(connect_as_hostile, &p->to_b)));
}

static void take_ports(int out, void *arg)
{
	struct loot loot = { };
	int fd;

	loot.error = become(HOSTILE, 16 * page_size());
	while (!loot.error && loot.count < FILES) {
		fd = uldma_open(0);
		loot.error = fd < 0 ? fd :
			     conn_listen(fd, HOSTILE_PORT + loot.count, 1);
		loot.count += !loot.error;
	}
	close(fd);
	loot.q = query(uldma_open(0));
	tell(out, &loot);
}

static int listen_as(uid_t uid)
{
	int ret = become(uid, 16 * page_size());
	int fd = uldma_open(0);

	return ret ?: fd < 0 ? fd : conn_listen(fd, OTHER_PORT, 1);
}

static int listen_as_other(void *arg)
{
	return listen_as(OTHER);
}

static int listen_as_hostile(void *arg)
{
	return listen_as(HOSTILE);
}

TEST_F_TIMEOUT(user, ports, 400)
{
	struct loot loot = { };

	ASSERT_EQ(0, helper_start(&self->helper, take_ports, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_LT(0, loot.count);
	EXPECT_EQ(loot.count, loot.q.out_user_listeners);
	EXPECT_EQ(loot.count, loot.q.out_user_max_listeners);

	EXPECT_EQ(0, conn_listen(self->pair.listener, PORT, 1));
	EXPECT_EQ(0, in_child(listen_as_other, NULL));
	EXPECT_EQ(-EDQUOT, in_child(listen_as_hostile, NULL));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
	EXPECT_EQ(0, in_child(listen_as_hostile, NULL));
}

static void listen_and_wait(int out, void *arg)
{
	struct loot loot = { };
	int fds[LISTENERS];

	loot.error = become(HOSTILE, 16 * page_size()) ?:
		     listen_at_all(uldma_node(), fds, HOSTILE_PORT);
	loot.q = query(fds[0]);
	tell(out, &loot);
}

/* The listening user pays for connections of peers, and peers get the refusal. */
TEST_F_TIMEOUT(user, connections_that_peers_make, 400)
{
	struct pair *p = &self->pair;
	struct loot loot = { };
	__u32 count = 0;
	int ret = 0;

	ASSERT_EQ(0, helper_start(&self->helper, listen_and_wait, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	ASSERT_EQ(0, loot.error);
	while (!ret && count < LISTENERS * ULDMA_CONN_MAX_BACKLOG) {
		ret = connect_one(uldma_other(), p->to_a, HOSTILE_PORT, count);
		count += !ret;
	}
	EXPECT_EQ(-ECONNREFUSED, ret);
	EXPECT_LT(0, count);
	EXPECT_EQ(loot.q.out_user_max_connections, count);

	/* A listener of another user has room, and so has the user itself then. */
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	EXPECT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(0, conn_accept(p->a, PORT));
	close_range(p->b + 1, ~0U, 0);
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
