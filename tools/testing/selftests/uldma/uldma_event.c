// SPDX-License-Identifier: GPL-2.0
/*
 * Learning that a transfer has ended: the status page, the wait call, poll()
 * and read(), an eventfd.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/time.h>

#include "uldma_harness.h"

#define LARGE (4UL << 20)

FIXTURE(event) {
	int fd;
	char *buf;
	struct region r;
	struct context c;
};

FIXTURE_SETUP(event)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(2 * LARGE);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 2 * LARGE, RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(event)
{
	close(self->fd);
}

static __s64 start(struct _test_data_event *self, __u64 bytes)
{
	return shadow_start(&self->r, LARGE, &self->r, 0, bytes);
}

TEST_F(event, status_page)
{
	struct uldma_status_page *status = self->c.status;
	struct uldma_completion *record;
	struct uldma_dma_wait result;
	__s64 ticket;

	for (int i = 1; i <= 2 * ULDMA_STATUS_RECORDS; i++) {
		ticket = start(self, i);
		ASSERT_EQ(i, ticket);
		ASSERT_EQ(0, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket,
				      PATIENCE, &result));
		EXPECT_EQ(i, __atomic_load_n(&status->completed,
					     __ATOMIC_ACQUIRE));
		record = &status->records[ticket % ULDMA_STATUS_RECORDS];
		EXPECT_EQ(ticket, READ_ONCE(record->ticket));
		EXPECT_EQ(i, READ_ONCE(record->bytes));
		EXPECT_EQ(ULDMA_DMA_OK, READ_ONCE(record->status));
		EXPECT_EQ(0, READ_ONCE(record->flags));
	}
	EXPECT_EQ(0, READ_ONCE(status->failed));
}

/* Not one system call between the start and the end. */
TEST_F(event, status_page_alone)
{
	struct timespec now, limit;
	__s64 ticket;
	__u64 done;

	pattern_fill(self->buf, LARGE, 1);
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += SOON / 1000;
	ticket = start(self, LARGE);
	ASSERT_LT(0, ticket);
	do {
		done = __atomic_load_n(&self->c.status->completed,
				       __ATOMIC_ACQUIRE);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (done < ticket && now.tv_sec < limit.tv_sec);
	ASSERT_EQ(ticket, done);
	EXPECT_EQ(-1, pattern_check(self->buf + LARGE, LARGE, 1));
}

TEST_F(event, wait_for_unknown)
{
	struct uldma_dma_wait result;
	__s64 ticket = start(self, 8);

	ASSERT_LT(0, ticket);
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, 0, 0,
				    &result));
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket + 1,
				    0, &result));
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ~0ULL,
				    PATIENCE, &result));
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, 0, 0, 0, &result));
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, 0, ~0ULL, PATIENCE, &result));
}

TEST_F(event, wait_for_foreign)
{
	int other = uldma_open(0);
	struct uldma_dma_wait result;
	__u64 ticket;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, kernel_start(self->fd, self->r.handle, LARGE,
				  self->r.handle, 0, 8, &ticket));
	EXPECT_EQ(-ENOENT, dma_wait(other, 0, ticket, PATIENCE, &result));
	EXPECT_EQ(0, dma_wait(self->fd, 0, ticket, PATIENCE, &result));
	close(other);
}

TEST_F(event, wait_for_overwritten)
{
	struct uldma_dma_wait result;
	__s64 ticket = 0;

	for (int i = 0; i < ULDMA_STATUS_RECORDS + 2; i++) {
		ticket = start(self, 8);
		ASSERT_LT(0, ticket);
		ASSERT_EQ(0, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket,
				      PATIENCE, &result));
	}
	EXPECT_EQ(-ENOENT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, 1, 0,
				    &result));
	EXPECT_EQ(0, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket - 10, 0,
			      &result));
	EXPECT_EQ(8, result.out_bytes);
}

/* No time to wait: either it has ended or it has not. */
TEST_F(event, wait_without_time)
{
	struct uldma_dma_wait result;
	__u64 ticket;
	int ret;

	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, kernel_start(self->fd, self->r.handle, LARGE,
					  self->r.handle, 0, LARGE, &ticket));
		ret = dma_wait(self->fd, 0, ticket, 0, &result);
		EXPECT_TRUE(!ret || ret == -ETIMEDOUT)
			TH_LOG("got %d", ret);
		ASSERT_EQ(0, dma_wait(self->fd, 0, ticket, PATIENCE,
				      &result));
		EXPECT_EQ(ULDMA_DMA_OK, result.out_status);
		EXPECT_EQ(LARGE, result.out_bytes);
	}
}

TEST_F(event, poll_and_read)
{
	struct uldma_event event;
	__s64 ticket;

	for (int i = 0; i < 10; i++) {
		ticket = start(self, LARGE);
		ASSERT_LT(0, ticket);
		do {
			ASSERT_EQ(0, event_wait(self->fd,
						ULDMA_EVENT_COMPLETION, SOON,
						&event));
		} while (event.value < ticket);
		EXPECT_EQ(ticket, event.value);
		EXPECT_EQ(self->c.number, event.handle);
	}
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(0, poll_for(self->fd, 0) & POLLIN);
}

TEST_F(event, coalesced)
{
	struct uldma_event events[8];
	struct uldma_dma_wait result;
	int completions = 0;
	__s64 ticket = 0;
	ssize_t got;

	for (int i = 0; i < 30; i++) {
		ticket = start(self, 8);
		ASSERT_LT(0, ticket);
	}
	ASSERT_EQ(0, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket, PATIENCE,
			      &result));
	ASSERT_TRUE(poll_for(self->fd, SOON) & POLLIN);
	got = read(self->fd, events, sizeof(events));
	ASSERT_LT(0, got);
	EXPECT_EQ(0, got % sizeof(events[0]));
	for (int i = 0; i < got / sizeof(events[0]); i++)
		if (events[i].type == ULDMA_EVENT_COMPLETION) {
			EXPECT_EQ(ticket, events[i].value);
			completions++;
		}
	EXPECT_EQ(1, completions);
}

TEST_F(event, short_read)
{
	void *nowhere = buffer(page_size());
	struct uldma_event event;

	ASSERT_EQ(0, mprotect(nowhere, page_size(), PROT_READ));
	ASSERT_LT(0, start(self, 8));
	ASSERT_TRUE(poll_for(self->fd, SOON) & POLLIN);
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event) - 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(self->fd, &event, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(self->fd, nowhere, sizeof(event)));
	EXPECT_EQ(EFAULT, errno);
	/* None of them took the event. */
	EXPECT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));
}

static void *read_event(void *arg)
{
	struct uldma_event event;
	int *fd = arg;

	do {
		if (read(*fd, &event, sizeof(event)) != sizeof(event))
			return NULL;
	} while (event.type != ULDMA_EVENT_COMPLETION);
	return (void *)(uintptr_t)event.value;
}

/* The order of the reader and of the event. */
TEST_F(event, blocking_read)
{
	pthread_t thread;
	__s64 ticket;
	void *value;

	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, 0));
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, pthread_create(&thread, NULL, read_event,
					    &self->fd));
		ticket = start(self, LARGE / 16);
		ASSERT_LT(0, ticket);
		ASSERT_EQ(0, pthread_join(thread, &value));
		EXPECT_EQ(ticket, (__s64)(uintptr_t)value);
	}
}

static void on_alarm(int signal)
{
}

TEST_F(event, interrupted_read)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval timer = { .it_value.tv_usec = 50000,
				   .it_interval.tv_usec = 50000 };
	struct uldma_event event;
	ssize_t got;

	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, 0));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	/* News of the link, if any, come first. */
	do {
		got = read(self->fd, &event, sizeof(event));
	} while (got == sizeof(event));
	EXPECT_EQ(-1, got);
	EXPECT_EQ(EINTR, errno);
}

static int set_eventfd(int fd, int eventfd)
{
	struct uldma_eventfd arg = { .size = sizeof(arg), .fd = eventfd };

	return uldma_ioctl(fd, ULDMA_IOC_EVENTFD, &arg);
}

/* Number of signals of an eventfd since the last read. */
static __u64 signals(int eventfd)
{
	__u64 count = 0;

	return read(eventfd, &count, sizeof(count)) < 0 ? 0 : count;
}

TEST_F(event, eventfd)
{
	int first = eventfd(0, EFD_NONBLOCK);
	int second = eventfd(0, EFD_NONBLOCK);
	struct uldma_event event;
	__s64 ticket;

	ASSERT_LE(0, first);
	ASSERT_LE(0, second);
	ASSERT_EQ(0, set_eventfd(self->fd, first));
	ticket = start(self, LARGE);
	ASSERT_LT(0, ticket);
	EXPECT_TRUE(poll_for(first, SOON) & POLLIN);
	ASSERT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));
	EXPECT_EQ(ticket, event.value);

	ASSERT_EQ(0, set_eventfd(self->fd, second));
	EXPECT_LT(0, signals(first));
	signals(second);
	ASSERT_LT(0, start(self, LARGE));
	EXPECT_TRUE(poll_for(second, SOON) & POLLIN);
	EXPECT_EQ(0, signals(first));
	ASSERT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));

	ASSERT_EQ(0, set_eventfd(self->fd, -1));
	EXPECT_LT(0, signals(second));
	ASSERT_LT(0, start(self, 8));
	ASSERT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));
	EXPECT_EQ(0, signals(second));
}

TEST_F(event, bad_eventfd)
{
	int closed, ret;

	EXPECT_EQ(-EINVAL, set_eventfd(self->fd, self->fd));
	closed = dup(self->fd);
	ASSERT_LE(0, closed);
	close(closed);
	ret = set_eventfd(self->fd, closed);
	EXPECT_TRUE(ret == -EINVAL || ret == -EBADF)
		TH_LOG("got %d", ret);
	ret = set_eventfd(self->fd, -2);
	EXPECT_TRUE(ret == -EINVAL || ret == -EBADF)
		TH_LOG("got %d", ret);
}

static int take_eventfd(void *arg)
{
	struct _test_data_event *self = arg;
	int own = eventfd(0, EFD_NONBLOCK);

	return own < 0 ? -errno : set_eventfd(self->fd, own);
}

static int drop_eventfd(void *arg)
{
	struct _test_data_event *self = arg;

	return set_eventfd(self->fd, -1);
}

static int take_event(void *arg)
{
	struct _test_data_event *self = arg;
	struct uldma_event event;

	return read(self->fd, &event, sizeof(event)) < 0 ? -errno : 0;
}

/* Who gets the file by fork() can neither turn events away nor take them. */
TEST_F(event, of_the_file)
{
	int first = eventfd(0, EFD_NONBLOCK);
	struct uldma_event event;
	__s64 ticket;

	ASSERT_LE(0, first);
	ASSERT_EQ(0, set_eventfd(self->fd, first));
	EXPECT_EQ(-EPERM, in_child(take_eventfd, self));
	EXPECT_EQ(-EPERM, in_child(drop_eventfd, self));
	ticket = start(self, LARGE);
	ASSERT_LT(0, ticket);
	ASSERT_TRUE(poll_for(first, SOON) & POLLIN);
	EXPECT_EQ(-EPERM, in_child(take_event, self));
	ASSERT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));
	EXPECT_EQ(ticket, event.value);
}

/* Events of one file are not those of another. */
TEST_F(event, other_file)
{
	int other = uldma_open(O_NONBLOCK);
	struct uldma_event event;

	ASSERT_LE(0, other);
	ASSERT_LT(0, start(self, 8));
	ASSERT_EQ(0, event_wait(self->fd, ULDMA_EVENT_COMPLETION, SOON,
				&event));
	EXPECT_EQ(-ETIMEDOUT, event_wait(other, ULDMA_EVENT_COMPLETION, 0,
					 &event));
	close(other);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
