// SPDX-License-Identifier: GPL-2.0
/*
 * How the owner of a region learns that its addresses mean other memory: by
 * read(), poll() and an eventfd, once for many changes, and not for a region
 * that has ended.
 */
#include <pthread.h>
#include <sys/eventfd.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PAGES 8
#define MANY 300

FIXTURE(told) {
	int fd;
	int other;
	size_t page;
	char *buf;
	struct region r;
};

FIXTURE_SETUP(told)
{
	struct uldma_event event;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, PAGES * self->page,
				     RW, &self->r));
	/* News of the link, if any. */
	while (read(self->fd, &event, sizeof(event)) > 0)
		;
}

FIXTURE_TEARDOWN(told)
{
	close(self->other);
	close(self->fd);
}

static int lose(struct _test_data_told *self, int first, int count)
{
	return madvise(self->buf + first * self->page, count * self->page,
		       MADV_DONTNEED) ? -errno : 0;
}

TEST_F(told, by_poll)
{
	struct uldma_event event;

	EXPECT_EQ(0, poll_for(self->fd, 0));
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, lose(self, 1, 3));
	ASSERT_EQ(POLLIN, poll_for(self->fd, SOON) & (POLLIN | POLLHUP));
	ASSERT_EQ(sizeof(event), read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(ULDMA_EVENT_STALE, event.type);
	EXPECT_EQ(self->r.handle, event.handle);
	EXPECT_EQ(3 * self->page, event.value);
	EXPECT_EQ(0, poll_for(self->fd, 0));
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(EAGAIN, errno);
}

static void *read_one(void *arg)
{
	struct uldma_event event;
	int *fd = arg;

	if (read(*fd, &event, sizeof(event)) != sizeof(event) ||
	    event.type != ULDMA_EVENT_STALE)
		return NULL;
	return (void *)(uintptr_t)event.value;
}

/* The order of the reader and of the event. */
TEST_F(told, by_blocking_read)
{
	pthread_t thread;
	void *value;

	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, 0));
	for (int i = 0; i < PAGES; i++) {
		ASSERT_EQ(0, pthread_create(&thread, NULL, read_one,
					    &self->fd));
		ASSERT_EQ(0, lose(self, i, 1));
		ASSERT_EQ(0, pthread_join(thread, &value));
		EXPECT_EQ((i + 1) * self->page, (uintptr_t)value);
	}
}

TEST_F(told, by_eventfd)
{
	int signalled = eventfd(0, EFD_NONBLOCK);
	struct uldma_eventfd arg = { .size = sizeof(arg), .fd = signalled };
	__u64 count;

	ASSERT_LE(0, signalled);
	ASSERT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_EVENTFD, &arg));
	EXPECT_EQ(0, poll_for(signalled, 0));
	ASSERT_EQ(0, lose(self, 0, 1));
	ASSERT_TRUE(poll_for(signalled, SOON) & POLLIN);
	ASSERT_EQ(sizeof(count), read(signalled, &count, sizeof(count)));
	EXPECT_EQ(1, stale_told(self->fd, self->r.handle).events);

	/* Nothing for what is of no region. */
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, poll_for(signalled, 0));
	close(signalled);
}

/* One event with the newest total, however many changes there were. */
TEST_F(told, coalesced)
{
	struct told told;

	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(0, lose(self, i, 1));
		ASSERT_EQ(0, stale_fence(self->other));
	}
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(5, told.pages);

	/* A page can be lost but once. */
	memset(self->buf, 1, PAGES * self->page);
	ASSERT_EQ(0, lose(self, 0, 5));
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, self->r.handle).events);
	EXPECT_EQ(5, stale_pages(self->fd, self->r.handle));
	ASSERT_EQ(0, lose(self, 4, 2));
	ASSERT_EQ(0, stale_fence(self->other));
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(6, told.pages);
}

/* A read that fails takes nothing. */
TEST_F(told, bad_read)
{
	void *nowhere = buffer(self->page);
	struct uldma_event event;
	struct told told;

	ASSERT_EQ(0, mprotect(nowhere, self->page, PROT_READ));
	ASSERT_EQ(0, lose(self, 2, 2));
	ASSERT_TRUE(poll_for(self->fd, SOON) & POLLIN);
	EXPECT_EQ(-1, read(self->fd, nowhere, sizeof(event)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event) - 1));
	EXPECT_EQ(EINVAL, errno);
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(2, told.pages);
}

TEST_F(told, unregistered_with_a_pending_event)
{
	__u32 handle = self->r.handle;

	ASSERT_EQ(0, lose(self, 0, PAGES));
	ASSERT_TRUE(poll_for(self->fd, SOON) & POLLIN);
	ASSERT_EQ(0, region_unregister(self->fd, handle));
	EXPECT_EQ(0, poll_for(self->fd, 0));
	ASSERT_EQ(0, region_register(self->fd, self->buf, PAGES * self->page,
				     RW, &self->r));
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, poll_for(self->fd, 0));
}

/* Unregistered before, during or after revalidation of the addresses. */
TEST_F(told, unregistered_at_once)
{
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(0, lose(self, 0, PAGES));
		ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
		EXPECT_EQ(0, poll_for(self->fd, 0));
		ASSERT_EQ(0, region_register(self->fd, self->buf,
					     PAGES * self->page, RW,
					     &self->r));
	}
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, poll_for(self->fd, 0));
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));
	EXPECT_EQ(PAGES, vm_pin());
}

/* Each file gets the events of its own regions. */
TEST_F(told, two_files)
{
	int fence = uldma_open(O_NONBLOCK);
	struct region theirs;
	struct told told;

	ASSERT_LE(0, fence);
	ASSERT_EQ(0, region_register(self->other, self->buf + self->page,
				     2 * self->page, RW, &theirs));
	ASSERT_EQ(0, lose(self, 2, 4));
	ASSERT_EQ(0, stale_fence(fence));
	told = stale_told(self->other, theirs.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(1, told.pages);
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(4, told.pages);

	ASSERT_EQ(0, lose(self, 0, 1));
	ASSERT_EQ(0, stale_fence(fence));
	EXPECT_EQ(0, poll_for(self->other, 0) & POLLIN);
	EXPECT_EQ(1, stale_told(self->fd, self->r.handle).events);
	close(fence);
}

/* One call causes an event for each of many regions. */
TEST_F(told, many_regions)
{
	struct uldma_event events[16];
	int pages[MANY], seen[MANY] = { };
	struct region r[MANY];
	size_t length = (MANY + 16) * self->page;
	char *buf = buffer(length);
	int last = 0, i;
	ssize_t got;

	ASSERT_NE(NULL, buf);
	for (i = 0; i < MANY; i++) {
		pages[i] = 1 + i % 16;
		if (i + pages[i] > last)
			last = i + pages[i];
		ASSERT_EQ(0, region_register(self->fd, buf + i * self->page,
					     pages[i] * self->page, RW,
					     &r[i]));
	}
	EXPECT_EQ(last + PAGES, vm_pin());
	ASSERT_EQ(0, munmap(buf, length));
	ASSERT_EQ(0, stale_fence(self->other));
	while ((got = read(self->fd, events, sizeof(events))) > 0) {
		ASSERT_EQ(0, got % sizeof(events[0]));
		for (int e = 0; e < got / sizeof(events[0]); e++) {
			EXPECT_EQ(ULDMA_EVENT_STALE, events[e].type);
			for (i = 0; i < MANY; i++)
				if (r[i].handle == events[e].handle)
					break;
			ASSERT_LT(i, MANY);
			EXPECT_EQ(pages[i] * self->page, events[e].value);
			seen[i]++;
		}
	}
	EXPECT_EQ(EAGAIN, errno);
	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(1, seen[i])
			TH_LOG("region %d", i);
	}
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));
	ASSERT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, vm_pin());
}

/* The device continues to access the old pages, by each method. */
TEST_F(told, shadow_pages_stay)
{
	char *copy = buffer(self->page);
	struct region to;
	struct context c;

	ASSERT_NE(NULL, copy);
	ASSERT_EQ(0, context_create(self->fd, &c));
	ASSERT_EQ(0, region_register(self->fd, copy, self->page, RW, &to));
	ASSERT_EQ(0, region_map(self->fd, &to, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	pattern_fill(self->buf, self->page, 1);
	ASSERT_EQ(0, lose(self, 0, PAGES));
	pattern_fill(self->buf, self->page, 2);
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, transfer(self->fd, BY_SHADOW, &to, 0, &self->r, 0,
			      self->page));
	EXPECT_EQ(-1, pattern_check(copy, self->page, 1));
	EXPECT_EQ(-1, pattern_check(self->buf, self->page, 2));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
