// SPDX-License-Identifier: GPL-2.0
/*
 * The memory space of the adapter is disabled in its configuration space and
 * enabled again: stores to the adapter are lost meanwhile, and loads return what
 * no register has. Calls say that the adapter does not answer, and it is the same
 * one afterwards.
 */
#include <linux/pci_regs.h>
#include <stdio.h>

#include "uldma_harness.h"
#include "uldma_bind.h"

#define LENGTH 65536
#define CONFIG "/sys/class/misc/uldma0/device/config"
#define HEALTH "/sys/kernel/debug/uldma0/health"

static struct pci_address device;

FIXTURE(decode) {
	int fd;
	int config;
	char *buf;
	struct region r;
	struct context c;
	bool had_link;
};

/* A value of the device's health, or -1. */
static long health(const char *key)
{
	FILE *f = fopen(HEALTH, "r");
	long value, found = -1;
	char name[32];

	if (!f)
		return -1;
	while (fscanf(f, "%31s %ld", name, &value) == 2)
		if (!strcmp(name, key))
			found = value;
	fclose(f);
	return found;
}

static bool is_healthy(int fd)
{
	return health("sick") == 0;
}

static bool is_sick(int fd)
{
	return health("sick") == 1;
}

/* Waits until a condition is true: 0 or -ETIMEDOUT. */
static int wait_for(bool (*condition)(int fd), int fd)
{
	__u64 begun = now_ns();

	while (!condition(fd)) {
		if (now_ns() - begun > PATIENCE)
			return -ETIMEDOUT;
		usleep(1000);
	}
	return 0;
}

/* Enables or disables the memory space: 0 or a negated errno. */
static int decode(int config, bool on)
{
	__u16 command;

	if (pread(config, &command, 2, PCI_COMMAND) != 2)
		return -EIO;
	command &= ~PCI_COMMAND_MEMORY;
	if (on)
		command |= PCI_COMMAND_MEMORY;
	return pwrite(config, &command, 2, PCI_COMMAND) == 2 ? 0 : -errno;
}

FIXTURE_SETUP(decode)
{
	if (geteuid())
		SKIP(return, "only root can write to a configuration space");
	ASSERT_EQ(0, driver_find_device(&device));
	self->config = open(CONFIG, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->config);
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->had_link = link_up(self->fd);
	self->buf = buffer(LENGTH);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, LENGTH, RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, transfer(self->fd, BY_SHADOW, &self->r, LENGTH / 2,
			      &self->r, 0, LENGTH / 2));
}

FIXTURE_TEARDOWN(decode)
{
	decode(self->config, true);
	/* What the device may still use stays until then. */
	driver_unbind(&device);
	close(self->fd);
	close(self->config);
	driver_bind(&device);
	EXPECT_EQ(0, access(uldma_node(), F_OK));
}

TEST_F_TIMEOUT(decode, every_call_says_that_nothing_answers, 120)
{
	int other = uldma_open(0);
	struct uldma_dma_wait result;
	struct context c;
	__u64 ticket;
	__s64 got;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, decode(self->config, false));
	got = shadow_start(&self->r, LENGTH / 2, &self->r, 0, LENGTH / 2);
	EXPECT_TRUE(got == 0 || got == -1);
	EXPECT_EQ(-ETIMEDOUT, kernel_start(self->fd, self->r.handle, LENGTH / 2,
					   self->r.handle, 0, LENGTH / 2,
					   &ticket));
	EXPECT_EQ(-ETIMEDOUT, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, 2, 0,
				       &result));
	EXPECT_EQ(-ETIMEDOUT, context_create(other, &c));
	EXPECT_EQ(0, wait_for(is_sick, self->fd));
	EXPECT_EQ(-ETIMEDOUT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ETIMEDOUT, context_destroy(self->fd));
	/* What the device may use is kept for it. */
	EXPECT_EQ(LENGTH / page_size(), vm_pin());
	EXPECT_EQ(0, health("reset"));

	ASSERT_EQ(0, decode(self->config, true));
	EXPECT_EQ(0, wait_for(is_healthy, self->fd));
	EXPECT_EQ(0, health("reset"));
	close(other);
}

TEST_F_TIMEOUT(decode, all_goes_on_afterwards, 120)
{
	ASSERT_EQ(0, decode(self->config, false));
	EXPECT_EQ(0, wait_for(is_sick, self->fd));
	ASSERT_EQ(0, decode(self->config, true));
	EXPECT_EQ(0, wait_for(is_healthy, self->fd));
	EXPECT_EQ(0, health("reset"));
	for (enum how how = BY_KERNEL; how <= BY_SHADOW; how++)
		EXPECT_EQ(0, transfer(self->fd, how, &self->r, LENGTH / 2,
				      &self->r, 0, LENGTH / 2));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, vm_pin());
	/* The link went down, since the peer may have lost words. */
	if (self->had_link)
		EXPECT_EQ(0, wait_for(link_up, self->fd));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
