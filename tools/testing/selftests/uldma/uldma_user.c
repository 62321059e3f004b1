// SPDX-License-Identifier: GPL-2.0
/*
 * The shares of users in common resources: a hostile user takes all that it gets,
 * and other users are not affected.
 */
#include "uldma_harness.h"
#include "uldma_endpoint.h"

FIXTURE(user) {
	mode_t mode;
	int fd;
	struct uldma_query before;
	char *buf;
	struct helper helper;
};

FIXTURE_SETUP(user)
{
	if (geteuid())
		SKIP(return, "needs root, to become others");
	ASSERT_EQ(0, node_open_to_all(&self->mode));
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->before = query(self->fd);
	self->buf = buffer(page_size());
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(user)
{
	if (self->helper.pid)
		helper_kill(&self->helper);
	chmod(uldma_node(), self->mode);
	close(self->fd);
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

/* Regions of one page, by as many files as it takes. */
static void take_regions(int out, void *arg)
{
	__u32 each = *(__u32 *)arg;
	struct loot loot = { };
	char *buf;
	int fd = -1;

	loot.error = become(HOSTILE, 16 * page_size());
	buf = buffer(page_size());
	while (!loot.error) {
		struct region r;

		if (!(loot.count % each))
			fd = uldma_open(0);
		loot.error = fd < 0 ? fd :
			     region_register(fd, buf, 1, RW, &r);
		loot.count += !loot.error;
	}
	loot.q = query(fd);
	tell(out, &loot);
}

static int register_as_other(void *arg)
{
	char *buf = buffer(page_size());
	struct region r;
	int ret = become(OTHER, 16 * page_size());
	int fd = uldma_open(0);

	return ret ?: fd < 0 ? fd : region_register(fd, buf, 1, RW, &r);
}

static int register_as_hostile(void *arg)
{
	char *buf = buffer(page_size());
	struct region r;
	int ret = become(HOSTILE, 16 * page_size());
	int fd = uldma_open(0);

	return ret ?: fd < 0 ? fd : region_register(fd, buf, 1, RW, &r);
}

TEST_F_TIMEOUT(user, regions, 400)
{
	struct uldma_lmm lmm = { .size = sizeof(lmm) };
	__u32 max = self->before.out_max_regions;
	struct loot loot = { };
	struct region r;

	ASSERT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_LMM, &lmm));
	ASSERT_EQ(0, helper_start(&self->helper, take_regions,
				  &lmm.out_max_regions));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_EQ(loot.count, loot.q.out_user_regions);
	EXPECT_EQ(loot.count, loot.q.out_user_max_regions);
	EXPECT_GE(max / 2, loot.count);

	/* Neither root nor another user notices; another process of his does. */
	EXPECT_EQ(0, region_register(self->fd, self->buf, 1, RW, &r));
	EXPECT_EQ(0, in_child(register_as_other, NULL));
	EXPECT_EQ(-EDQUOT, in_child(register_as_hostile, NULL));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
	EXPECT_EQ(0, in_child(register_as_hostile, NULL));
}

/* Root can have what there is. */
TEST_F(user, root)
{
	struct uldma_query q = self->before;

	EXPECT_EQ(q.out_max_regions, q.out_user_max_regions);
	EXPECT_EQ(q.out_max_pages, q.out_user_max_pages);
	EXPECT_EQ(q.out_contexts, q.out_user_max_contexts);
	EXPECT_EQ(q.out_contexts, q.out_user_max_exclusive_contexts);
	EXPECT_EQ(65535, q.out_user_max_objects);
	EXPECT_LT(q.out_window_size / 2, q.out_user_max_window);
	EXPECT_GT(q.out_window_size, q.out_user_max_window);
}

/* Contexts that are not lent, by a file each. */
static void take_contexts(int out, void *arg)
{
	__u32 method = *(__u32 *)arg;
	struct loot loot = { };
	int fd = -1;

	loot.error = become(HOSTILE, 16 * page_size());
	while (!loot.error && loot.count < 1000) {
		struct context c;

		fd = uldma_open(0);
		loot.error = fd < 0 ? fd :
			     context_create_as(fd, method, 0, &c);
		loot.count += !loot.error;
	}
	loot.q = query(fd);
	tell(out, &loot);
}

TEST_F(user, exclusive_contexts)
{
	__u32 method = ULDMA_METHOD_KEY;
	struct loot loot = { };
	struct party own;

	if (!(self->before.out_methods & 1U << method))
		SKIP(return, "no contexts");
	ASSERT_EQ(0, party_open(&own));
	ASSERT_EQ(0, helper_start(&self->helper, take_contexts, &method));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EBUSY, loot.error);
	EXPECT_LT(0, loot.count);
	EXPECT_EQ(loot.count, loot.q.out_user_exclusive_contexts);
	EXPECT_EQ(loot.count, loot.q.out_user_max_exclusive_contexts);
	EXPECT_LT(loot.count, self->before.out_contexts);
	/* Another kind, of which there always is one to be lent. */
	ASSERT_EQ(0, party_context(&own, ULDMA_METHOD_EXTENDED_SHADOW, 0));
	EXPECT_EQ(0, party_works(&own));
	close(own.fd);
}

/* One more is lent by the user's own, so that others keep theirs. */
static void take_and_work(int out, void *arg)
{
	__u32 count = *(__u32 *)arg;
	struct loot loot = { };
	struct party *p = calloc(count, sizeof(*p));

	loot.error = p ? become(HOSTILE, RLIM_INFINITY) : -ENOMEM;
	for (__u32 i = 0; !loot.error && i < count; i++) {
		loot.error = party_open(&p[i]);
		/* Until one of the others has had its own for long enough. */
		while (!loot.error) {
			loot.error = party_context(&p[i],
						   ULDMA_METHOD_EXTENDED_SHADOW,
						   0);
			if (loot.error != -EBUSY)
				break;
			loot.error = sched_yield();
		}
		loot.error = loot.error ?: party_works(&p[i]);
		loot.q = query(p[i].fd);
		loot.count += !loot.error;
	}
	tell(out, &loot);
}

TEST_F(user, lent_contexts)
{
	__u32 count = 2 * self->before.out_contexts;
	struct loot loot = { };

	if (!count)
		SKIP(return, "no contexts");
	ASSERT_EQ(0, helper_start(&self->helper, take_and_work, &count));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(0, loot.error);
	EXPECT_EQ(count, loot.count);
	EXPECT_EQ(loot.q.out_user_max_contexts, loot.q.out_user_contexts);
	EXPECT_LT(loot.q.out_user_contexts, self->before.out_contexts);
	EXPECT_EQ(self->before.out_contexts_used + loot.q.out_user_contexts,
		  query(self->fd).out_contexts_used);
}

#define SEGMENT (64UL << 10)
#define NAME 0x72657375ULL

static void take_window(int out, void *arg)
{
	struct loot loot = { };
	int fd;

	loot.error = become(HOSTILE, 16 * page_size());
	fd = uldma_open(0);
	loot.error = loot.error ?: fd < 0 ? fd : 0;
	while (!loot.error) {
		struct segment s;

		loot.error = segment_create(fd, NAME + loot.count, SEGMENT, &s);
		loot.count += !loot.error;
	}
	loot.q = query(fd);
	tell(out, &loot);
}

static int segment_as(uid_t uid)
{
	int ret = become(uid, 16 * page_size());
	int fd = uldma_open(0);
	struct segment s;

	return ret ?: fd < 0 ? fd : segment_create(fd, NAME - uid, SEGMENT, &s);
}

static int segment_as_other(void *arg)
{
	return segment_as(OTHER);
}

static int segment_as_hostile(void *arg)
{
	return segment_as(HOSTILE);
}

TEST_F(user, window)
{
	struct loot loot = { };
	struct segment s;

	ASSERT_EQ(0, helper_start(&self->helper, take_window, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_EQ(loot.count * SEGMENT, loot.q.out_user_window);
	EXPECT_GT(SEGMENT, loot.q.out_user_max_window - loot.q.out_user_window);
	EXPECT_GE(self->before.out_window_size / 2, loot.q.out_user_window);

	EXPECT_EQ(0, segment_create(self->fd, NAME - 1, SEGMENT, &s));
	EXPECT_EQ(0, in_child(segment_as_other, NULL));
	EXPECT_EQ(-EDQUOT, in_child(segment_as_hostile, NULL));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
	EXPECT_EQ(0, in_child(segment_as_hostile, NULL));
}

#define SHARED (8UL << 20)

/* The same memory by many processes, none of which is beyond its own limit. */
static void take_pages(int out, void *arg)
{
	struct loot loot = { };
	char *buf = mmap(NULL, SHARED, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fds[2];
	pid_t pid;

	loot.error = become(HOSTILE, SHARED) ?: pipe(fds) ? -errno : 0;
	while (!loot.error && loot.count < 4096) {
		int ret = -errno;

		pid = fork();
		if (!pid) {
			int fd = uldma_open(0);
			struct region r;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			ret = fd < 0 ? fd :
			      region_register(fd, buf, SHARED, RW, &r);
			if (write(fds[1], &ret, sizeof(ret)) != sizeof(ret))
				_exit(1);
			for (;;)
				pause();
		}
		if (pid > 0 && read(fds[0], &ret, sizeof(ret)) != sizeof(ret))
			ret = -EPIPE;
		loot.error = ret;
		loot.count += !ret;
	}
	tell(out, &loot);
}

TEST_F_TIMEOUT(user, pages_of_many_processes, 400)
{
	__u32 max = self->before.out_max_pages;
	struct loot loot = { };
	struct region r;

	if (!max)
		SKIP(return, "no table of pages");
	ASSERT_EQ(0, helper_start(&self->helper, take_pages, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_EQ(0, region_register(self->fd, self->buf, 1, RW, &r));
}

/*
 * Transfers that take so long that the engine does not keep up, even with a
 * program that gets a small part of a processor.
 */
#define LONG_COPY (32UL << 20)
#define TRIES 20

static int long_region(int *fd, struct region *r)
{
	char *buf = buffer(2 * LONG_COPY);

	*fd = uldma_open(0);
	return *fd < 0 ? *fd :
	       region_register(*fd, buf, 2 * LONG_COPY, RW, r);
}

static int start_long(int fd, const struct region *r)
{
	__u64 ticket;

	return kernel_start(fd, r->handle, LONG_COPY, r->handle, 0, LONG_COPY,
			    &ticket);
}

/* Starts transfers without waiting, and goes on when there is room again. */
static void take_transfers(int out, void *arg)
{
	struct loot loot = { };
	struct region r;
	int fd = -1;

	loot.error = become(HOSTILE, 4 * LONG_COPY) ?: long_region(&fd, &r);
	while (!loot.error && loot.count < 4096) {
		loot.error = start_long(fd, &r);
		loot.count += !loot.error;
	}
	loot.q = query(fd);
	tell(out, &loot);
	for (;;)
		start_long(fd, &r);
}

static int transfer_as_other(void *arg)
{
	char *buf = buffer(page_size());
	struct region r;
	int ret = become(OTHER, 16 * page_size());
	int fd = uldma_open(0);

	ret = ret ?: fd < 0 ? fd :
	      region_register(fd, buf, page_size(), RW, &r);
	for (int i = 0; i < TRIES && !ret; i++)
		ret = transfer(fd, BY_KERNEL, &r, 8, &r, 0, 8);
	return ret;
}

TEST_F_TIMEOUT(user, transfers, 100)
{
	__u32 most = self->before.out_user_max_transfers;
	struct loot loot = { };

	if (self->before.out_backend != ULDMA_BACKEND_ADAPTER)
		SKIP(return, "no engine");
	ASSERT_EQ(0, helper_start(&self->helper, take_transfers, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_EQ(most / 4, loot.q.out_user_max_transfers);
	EXPECT_GE(most / 4, loot.q.out_user_transfers);
	EXPECT_EQ(0, in_child(transfer_as_other, NULL));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
}

static int endpoint_as_other(void *arg)
{
	int ret = become(OTHER, 16 * page_size());
	int fd = uldma_open(0);
	struct endpoint e;

	return ret ?: fd < 0 ? fd : endpoint_create(fd, 0, 1, &e);
}

/* A share of nothing is not the reason. */
TEST_F(user, endpoints_of_a_device_without)
{
	struct endpoint e;
	int ret = endpoint_create(self->fd, 0, 1, &e);

	EXPECT_EQ(ret, in_child(endpoint_as_other, NULL));
}

/* Files, as many as the user gets, by one process. */
static void take_files(int out, void *arg)
{
	struct rlimit limit = { 1 << 17, 1 << 17 };
	struct loot loot = { };
	int fd = -1, last;

	loot.error = setrlimit(RLIMIT_NOFILE, &limit) ? -errno :
			     become(HOSTILE, 16 * page_size());
	while (!loot.error) {
		last = fd;
		fd = uldma_open(0);
		loot.error = fd < 0 ? fd : 0;
		loot.count += !loot.error;
	}
	loot.q = query(last);
	tell(out, &loot);
}

static int open_as(uid_t uid)
{
	int ret = become(uid, 16 * page_size());
	int fd = uldma_open(0);

	return ret ?: fd < 0 ? fd : 0;
}

static int open_as_other(void *arg)
{
	return open_as(OTHER);
}

static int open_as_hostile(void *arg)
{
	return open_as(HOSTILE);
}

TEST_F_TIMEOUT(user, open_files, 400)
{
	__u32 most = self->before.out_user_max_objects;
	struct loot loot = { };
	int fd;

	ASSERT_EQ(0, helper_start(&self->helper, take_files, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_EQ(loot.count, loot.q.out_user_objects);
	EXPECT_EQ(loot.count, loot.q.out_user_max_objects);
	/* Enough for thousands, and no more than four users can take all. */
	EXPECT_EQ(most / 4, loot.count);
	EXPECT_LE(16000, loot.count);

	/* Neither root nor another user notices; another process of his does. */
	fd = uldma_open(0);
	EXPECT_LE(0, fd);
	close(fd);
	EXPECT_EQ(0, in_child(open_as_other, NULL));
	EXPECT_EQ(-EDQUOT, in_child(open_as_hostile, NULL));
	ASSERT_EQ(0, helper_kill(&self->helper));
	self->helper.pid = 0;
	EXPECT_EQ(0, in_child(open_as_hostile, NULL));
}

/* Files with a context each, nearly all of which have no registers, and a segment each. */
static void take_mixture(int out, void *arg)
{
	struct loot loot = { };
	struct context c;
	struct segment s;
	int fd = -1;

	loot.error = become(HOSTILE, 16 * page_size());
	while (!loot.error && loot.count < 64) {
		fd = uldma_open(0);
		loot.error = fd < 0 ? fd :
			     segment_create(fd, NAME + loot.count, 1, &s);
		/* Until one of the others has had its own for long enough. */
		while (!loot.error) {
			loot.error = context_create(fd, &c);
			if (loot.error != -EBUSY)
				break;
			loot.error = sched_yield();
		}
		loot.count += !loot.error;
	}
	loot.q = query(fd);
	loot.error = loot.error ?: context_destroy(fd) ?:
		     segment_destroy(fd, s.handle);
	tell(out, &loot);
	loot.q = query(fd);
	tell(out, &loot);
}

TEST_F_TIMEOUT(user, objects_of_all_kinds, 100)
{
	__u32 method = ULDMA_METHOD_EXTENDED_SHADOW;
	struct loot loot = { };

	if (!(self->before.out_methods & 1U << method))
		SKIP(return, "no contexts");
	ASSERT_EQ(0, helper_start(&self->helper, take_mixture, NULL));
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(0, loot.error);
	EXPECT_EQ(64, loot.count);
	EXPECT_EQ(3 * loot.count, loot.q.out_user_objects);
	ASSERT_EQ(sizeof(loot), read(self->helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(3 * loot.count - 2, loot.q.out_user_objects);
}

TEST_HARNESS_MAIN
