// SPDX-License-Identifier: GPL-2.0
/*
 * Calls to a device that has stopped answering: every call ends
 * in bounded time and says so, and memory that the device may still touch stays
 * pinned. The runner stops the device's engine before it starts this program.
 */
#include <time.h>

#include "uldma_harness.h"

#define LENGTH 65536
/* The driver waits for two seconds; a slow machine may take its time. */
#define BOUND 20

FIXTURE(stalled) {
	int fd;
	char *buf;
	struct region r;
	time_t began;
};

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

FIXTURE_SETUP(stalled)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(LENGTH);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, LENGTH, RW,
				     &self->r));
	self->began = now();
}

FIXTURE_TEARDOWN(stalled)
{
	close(self->fd);
	EXPECT_GT(BOUND, now() - self->began);
}

TEST_F_TIMEOUT(stalled, transfer_by_kernel, 60)
{
	struct uldma_dma_wait result;
	__u64 ticket;

	ASSERT_EQ(0, kernel_start(self->fd, self->r.handle, LENGTH / 2,
				  self->r.handle, 0, LENGTH / 2, &ticket));
	EXPECT_EQ(-ETIMEDOUT, dma_wait(self->fd, 0, ticket, SECOND / 10,
				       &result));
	EXPECT_EQ(-ETIMEDOUT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(LENGTH / page_size(), vm_pin());
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));
}

TEST_F_TIMEOUT(stalled, transfer_by_shadow, 60)
{
	struct uldma_dma_wait result;
	struct context c;
	__s64 ticket;

	ASSERT_EQ(0, context_create(self->fd, &c));
	ASSERT_EQ(0, context_map(self->fd, &c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ticket = shadow_start(&self->r, LENGTH / 2, &self->r, 0, LENGTH / 2);
	ASSERT_LT(0, ticket);
	EXPECT_EQ(-ETIMEDOUT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, ticket,
				       SECOND / 10, &result));
	EXPECT_EQ(-ETIMEDOUT, context_destroy(self->fd));
	EXPECT_EQ(SIGBUS, touch((void *)shadow_of(&self->r, 0), STORE));
	EXPECT_EQ(-ETIMEDOUT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(LENGTH / page_size(), vm_pin());
}

TEST_F_TIMEOUT(stalled, exit_without_unregister, 60)
{
	__u64 ticket;

	ASSERT_EQ(0, kernel_start(self->fd, self->r.handle, LENGTH / 2,
				  self->r.handle, 0, LENGTH / 2, &ticket));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
