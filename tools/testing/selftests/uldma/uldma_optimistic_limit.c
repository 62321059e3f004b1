// SPDX-License-Identifier: GPL-2.0
/*
 * A device that knows few pages at a time which nothing pins: those go that it has
 * not accessed for long, and those of others stay.
 */
#include "uldma_harness.h"
#include "uldma_optimistic.h"

#define COUNTS "/sys/kernel/debug/uldma0/optimistic"
/* The least that the driver works with, and what a process may have of it. */
#define LIMIT 64
#define PART 16
#define PAGES 128
#define ROUNDS 3

FIXTURE(limit) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	char *copy;
	struct region to;
};

/* Memory that is mapped, each page with its number. */
static int memory(struct _test_data_limit *self, int pages)
{
	size_t length = pages * self->page;

	self->buf = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (self->buf == MAP_FAILED)
		return -errno;
	for (int i = 0; i < pages; i++)
		pattern_fill(self->buf + i * self->page, self->page, i);
	return region_register(self->fd, self->buf, length,
			       RW | ULDMA_REGISTER_OPTIMISTIC, &self->r);
}

FIXTURE_SETUP(limit)
{
	long long limit = number_in(COUNTS, "limit");
	void *hole;
	int ret;

	if (limit != LIMIT)
		SKIP(return, "needs a module with optimistic_entries=%d", LIMIT);
	self->page = page_size();
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->copy = buffer(self->page);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->page, RW,
				     &self->to));
	/* One of which no page is ever there. */
	hole = mmap(NULL, 10 * self->page, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, hole);
	ret = region_register(self->fd, hole, 10 * self->page,
			      RW | ULDMA_REGISTER_OPTIMISTIC, &self->r) ?:
	      memory(self, PAGES);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(limit)
{
	close(self->fd);
}

/* Reads a page. Returns 1 if it was missed, 0 if not, and a negated errno. */
static int read_page(struct _test_data_limit *self, int number)
{
	size_t at = number * self->page;
	__u64 bytes;
	int ret = copy(self->fd, &self->to, 0, &self->r, at, self->page, &bytes);
	int missed = ret == ULDMA_DMA_NOT_RESIDENT;

	if (missed)
		ret = copy_all(self->fd, &self->to, 0, &self->r, at, self->page);
	if (ret)
		return ret < 0 ? ret : -EIO;
	return pattern_check(self->copy, self->page, number) == -1 ? missed :
								     -EILSEQ;
}

TEST_F(limit, no_more_than_its_part)
{
	long long before = number_in(COUNTS, "entered"), most = 0, now;

	for (int i = 0; i < ROUNDS * PAGES; i++) {
		ASSERT_LE(0, read_page(self, i % PAGES));
		now = number_in(COUNTS, "entered");
		most = now > most ? now : most;
	}
	EXPECT_LE(most, before + PART);
	EXPECT_LE(before + PART / 2, most);
	EXPECT_LE((ROUNDS - 1) * PAGES, number_in(COUNTS, "evicted"));
	/* All of them go with the region. */
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(before, number_in(COUNTS, "entered"));
}

/*
 * One that is read all the time, beside others that are read once a round: in no
 * order, or the driver would come by it once a round only.
 */
TEST_F(limit, pages_in_use_stay)
{
	int hot = 0, cold = 0, ret;

	for (int i = 0; i < ROUNDS * PAGES; i++) {
		ret = read_page(self, 0);
		ASSERT_LE(0, ret);
		hot += ret;
		ret = read_page(self, 1 + i * 37 % (PAGES - 1));
		ASSERT_LE(0, ret);
		cold += ret;
	}
	/* In turn, it would be missed as often as there is no room. */
	EXPECT_LT(hot, cold / PART / 2)
		TH_LOG("%d of %d misses", hot, cold);
	EXPECT_LE((ROUNDS - 1) * PAGES, cold);
}

/* Reads eight pages, waits, and reads them again; the misses then, or an errno. */
static int stay(struct _test_data_limit *self, int ready, int go)
{
	int misses = 0, ret = memory(self, PART / 2);
	char c = 0;

	for (int i = 0; !ret && i < PART / 2; i++)
		ret = read_page(self, i) < 0 ? -EIO : 0;
	if (ret || write(ready, &c, 1) != 1 || read(go, &c, 1) != 0)
		return 100;
	for (int i = 0; i < PART / 2; i++) {
		ret = read_page(self, i);
		misses += ret < 0 ? 100 : ret;
	}
	return misses;
}

TEST_F(limit, others_keep_theirs)
{
	int ready[2], go[2], status;
	pid_t other;
	char c;

	ASSERT_EQ(0, pipe(ready));
	ASSERT_EQ(0, pipe(go));
	other = fork();
	ASSERT_LE(0, other);
	if (!other) {
		close(go[1]);
		self->fd = uldma_open(0);
		_exit(self->fd < 0 ||
		      region_register(self->fd, self->copy, self->page, RW,
				      &self->to) ?
			      100 :
			      stay(self, ready[1], go[0]));
	}
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &c, 1));
	for (int i = 0; i < ROUNDS * PAGES; i++)
		ASSERT_LE(0, read_page(self, i % PAGES));
	close(go[1]);
	ASSERT_EQ(other, waitpid(other, &status, 0));
	EXPECT_EQ(0, status)
		TH_LOG("%d misses", WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
