// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that only the device reads, and that nothing pins: the kernel learns of
 * these accesses, and takes other memory first.
 */
#include "uldma_harness.h"
#include "uldma_adversary.h"
#include "uldma_optimistic.h"

/* Pages that the device reads, and as many that no processor or device reads. */
#define HOT 2048
#define STEP 64
#define STEPS 256

FIXTURE(age) {
	int fd;
	size_t length;
	char *buf;
	struct region r;
	char *copy;
	struct region to;
};

FIXTURE_SETUP(age)
{
	const char *why;
	int ret;

	self->length = HOT * page_size();
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->copy = buffer(self->length);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->length, RW,
				     &self->to));
	/* What is pinned is not to be in the group. */
	why = group_join(4 * self->length);
	if (why)
		SKIP(return, "%s", why);
	self->buf = mmap(NULL, 2 * self->length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->buf);
	ASSERT_EQ(0, madvise(self->buf, 2 * self->length, MADV_NOHUGEPAGE));
	pattern_fill(self->buf, 2 * self->length, 1);
	ret = region_register(self->fd, self->buf, 2 * self->length,
			      RW | ULDMA_REGISTER_OPTIMISTIC, &self->r);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(age)
{
	group_end();
	close(self->fd);
}

/* Reads the pages that are there. */
static int read_hot(struct _test_data_age *self)
{
	size_t page = page_size();
	__u64 bytes;
	int ret;

	for (size_t at = 0; at < self->length; at += bytes ?: page) {
		ret = copy(self->fd, &self->to, 0, &self->r, at,
			   self->length - at, &bytes);
		if (ret && ret != ULDMA_DMA_NOT_RESIDENT)
			return ret;
	}
	return 0;
}

/* How many of @count pages from page @first on are gone. */
static int gone(struct _test_data_age *self, size_t first, size_t count)
{
	__u64 frames[HOT];
	int gone = 0;

	frames_of(self->buf + first * page_size(), count, frames);
	for (size_t p = 0; p < count; p++)
		gone += !frames[p];
	return gone;
}

TEST_F(age, what_the_device_reads_stays)
{
	long long told = number_in(COUNTERS, "told");
	int hot = 0, cold = 0;
	char step[24];

	/* So that all pages are entered. */
	ASSERT_EQ(0, copy_all(self->fd, &self->to, 0, &self->r, 0, self->length));
	snprintf(step, sizeof(step), "%zu", STEP * page_size());
	for (int i = 0; i < STEPS && cold + hot < HOT / 2; i++) {
		ASSERT_EQ(0, read_hot(self));
		/* It may find less. */
		put(SMALL_GROUP "/uldma/memory.reclaim", step);
		hot = gone(self, 0, HOT);
		cold = gone(self, HOT, HOT);
	}
	ASSERT_LE(HOT / 2, hot + cold);
	/* In the order of age, those that the device reads would go first. */
	EXPECT_LE(4 * hot, cold)
		TH_LOG("%d pages that the device reads, %d others", hot, cold);
	EXPECT_LT(told, number_in(COUNTERS, "told"));
	EXPECT_EQ(-1, pattern_check(self->buf, 2 * self->length, 1));
}

TEST_HARNESS_MAIN
