// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a user has filled with a secret, and that belongs to another user
 * next. It proves something on a kernel that clears no pages by itself
 * (init_on_alloc=0), where the driver has to.
 */
#include "uldma_harness.h"
#include "uldma_exchange.h"
#include "uldma_window.h"

#define PAGES 512
#define ROUNDS 8
/* Bytes of ordinary memory, which the kernel gets back with the secret, too. */
#define OWN (32UL << 20)
#define SECRET 0x5ec2e7a11ce0b0bUL

/* All that a user gets from the driver, and can read. */
struct loot {
	int fd;
	size_t length;
	struct memory m;
	struct window w;
};

static int loot_get(struct loot *l)
{
	l->fd = uldma_open(0);
	if (l->fd < 0)
		return l->fd;
	l->length = PAGES * page_size();
	return memory_create(l->fd, l->length, &l->m) ?:
	       memory_map(l->fd, &l->m) ?:
	       window_make(l->fd, RW, l->length, &l->w);
}

static void fill(void *at, size_t length)
{
	__u64 *word = at;

	for (size_t i = 0; i < length / sizeof(*word); i++)
		WRITE_ONCE(word[i], SECRET);
}

static bool has_secret(const void *at, size_t length)
{
	const __u64 *word = at;

	for (size_t i = 0; i < length / sizeof(*word); i++)
		if (READ_ONCE(word[i]) == SECRET)
			return true;
	return false;
}

static int leave(void)
{
	struct loot l;
	char *own = buffer(OWN);
	int ret;

	if (!own)
		return -ENOMEM;
	fill(own, OWN);
	ret = loot_get(&l);
	if (ret)
		return ret;
	fill(l.m.at, l.length);
	fill(l.w.at, l.length);
	return 0;
}

static int look(void)
{
	struct loot l;
	int ret = loot_get(&l);

	if (ret)
		return ret;
	return has_secret(l.m.at, l.length) || has_secret(l.w.at, l.length) ?
	       -EILSEQ : 0;
}

/* Lets a user do one of the two, and exit. */
static int by(uid_t uid, int (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(-(become(uid, RLIM_INFINITY) ?: what()));
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EPIPE;
}

FIXTURE(secret) {
	mode_t mode;
};

FIXTURE_SETUP(secret)
{
	ASSERT_EQ(0, node_open_to_all(&self->mode));
}

FIXTURE_TEARDOWN(secret)
{
	EXPECT_EQ(0, chmod(uldma_node(), self->mode));
}

TEST_F(secret, of_another_user)
{
	for (int i = 0; i < ROUNDS; i++) {
		ASSERT_EQ(0, by(OTHER, leave));
		ASSERT_EQ(0, by(HOSTILE, look));
	}
}

/* It is found where it is, or the test above proves nothing. */
TEST_F(secret, is_found)
{
	char *own = buffer(OWN);

	ASSERT_NE(NULL, own);
	EXPECT_FALSE(has_secret(own, OWN));
	fill(own + OWN - sizeof(__u64), sizeof(__u64));
	EXPECT_TRUE(has_secret(own, OWN));
}

TEST_HARNESS_MAIN
