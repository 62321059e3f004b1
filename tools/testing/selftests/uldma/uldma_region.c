// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: memory that can be registered, the scope of handles, and what
 * happens to regions when files are closed and processes end.
 */
#include "uldma_harness.h"

#define PAGES 8

FIXTURE(region) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	struct uldma_query before;
	long long pins;
};

FIXTURE_SETUP(region)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	self->before = query(self->fd);
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(region)
{
	close(self->fd);
}

static void check_nothing_held(struct __test_metadata *_metadata,
			       struct _test_data_region *self)
{
	struct uldma_query now = query(self->fd);

	EXPECT_EQ(0, now.out_file_regions);
	EXPECT_EQ(0, now.out_mm_pinned);
	EXPECT_EQ(self->before.out_regions, now.out_regions);
	EXPECT_EQ(self->before.out_pages, now.out_pages);
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

TEST_F(region, register_and_unregister)
{
	ASSERT_EQ(0, region_register(self->fd, self->buf, PAGES * self->page,
				     RW, &self->r));
	EXPECT_NE(0, self->r.handle);
	EXPECT_NE(0, self->r.index);
	EXPECT_GE(self->before.out_max_regions, self->r.index);
	EXPECT_EQ(PAGES * self->page, self->r.shadow_length);
	EXPECT_EQ(0, self->r.shadow_offset % self->page);
	EXPECT_EQ(1, query(self->fd).out_file_regions);
	EXPECT_EQ(self->before.out_regions + 1, query(self->fd).out_regions);
	EXPECT_EQ(self->before.out_pages + PAGES, query(self->fd).out_pages);
	EXPECT_EQ(PAGES, pinned_pages(self->fd));
	EXPECT_EQ(PAGES, vm_pin());
	EXPECT_EQ(self->pins + PAGES, machine_pins());

	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	check_nothing_held(_metadata, self);
}

TEST_F(region, zero_length)
{
	EXPECT_EQ(-EINVAL,
		  region_register(self->fd, self->buf, 0, RW, &self->r));
	EXPECT_EQ(-EINVAL, region_register(self->fd, NULL, 0, RW, &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, no_access)
{
	EXPECT_EQ(-EINVAL, region_register(self->fd, self->buf, self->page, 0,
					   &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, wraps_around)
{
	EXPECT_EQ(-EOVERFLOW,
		  region_register(self->fd, self->buf, ~0ULL, RW, &self->r));
	EXPECT_EQ(-EOVERFLOW,
		  region_register(self->fd, self->buf,
				  -(__u64)(uintptr_t)self->buf + 1, RW,
				  &self->r));
	/* The end fits, but not when it is rounded up to a page. */
	EXPECT_EQ(-EOVERFLOW, region_register(self->fd, (void *)~99UL, 50, RW,
					      &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, kernel_address)
{
	void *kernel = (void *)(~0UL - 0x10000000 + 1);

	EXPECT_EQ(-EFAULT, region_register(self->fd, kernel, self->page,
					   ULDMA_ACCESS_READ, &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, unmapped)
{
	ASSERT_EQ(0, munmap(self->buf, PAGES * self->page));
	EXPECT_EQ(-EFAULT, region_register(self->fd, self->buf, self->page, RW,
					   &self->r));
	check_nothing_held(_metadata, self);
}

/* Pins before the hole must be given back. */
TEST_F(region, hole)
{
	ASSERT_EQ(0, munmap(self->buf + 4 * self->page, self->page));
	EXPECT_EQ(-EFAULT, region_register(self->fd, self->buf,
					   PAGES * self->page, RW, &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, readonly_memory)
{
	ASSERT_EQ(0, mprotect(self->buf, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, region_register(self->fd, self->buf, self->page,
					   ULDMA_ACCESS_WRITE, &self->r));
	EXPECT_EQ(-EFAULT, region_register(self->fd, self->buf, 2 * self->page,
					   RW, &self->r));
	check_nothing_held(_metadata, self);
	EXPECT_EQ(0, region_register(self->fd, self->buf, self->page,
				     ULDMA_ACCESS_READ, &self->r));
}

TEST_F(region, inaccessible_memory)
{
	ASSERT_EQ(0, mprotect(self->buf, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, region_register(self->fd, self->buf, self->page,
					   ULDMA_ACCESS_READ, &self->r));
	check_nothing_held(_metadata, self);
}

TEST_F(region, absurd_length)
{
	int ret = region_register(self->fd, self->buf, 1ULL << 43, RW,
				  &self->r);

	EXPECT_TRUE(ret == -EFAULT || ret == -ENOSPC || ret == -ENOMEM ||
		    ret == -EINVAL)
		TH_LOG("got %d", ret);
	check_nothing_held(_metadata, self);
}

TEST_F(region, bytes_decide_the_pages)
{
	char *last = self->buf + self->page - 1;

	ASSERT_EQ(0, region_register(self->fd, last, 1, RW, &self->r));
	EXPECT_EQ(1, vm_pin());
	EXPECT_EQ(1, pinned_pages(self->fd));
	EXPECT_EQ(self->page, self->r.shadow_length);
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));

	ASSERT_EQ(0, region_register(self->fd, last, 2, RW, &self->r));
	EXPECT_EQ(2, vm_pin());
	EXPECT_EQ(2, pinned_pages(self->fd));
	EXPECT_EQ(2 * self->page, self->r.shadow_length);
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	check_nothing_held(_metadata, self);
}

TEST_F(region, unregister_twice)
{
	ASSERT_EQ(0, region_register(self->fd, self->buf, 1, RW, &self->r));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, 0));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, ~0U));
	check_nothing_held(_metadata, self);
}

/* A handle that was given back must not come to mean something else. */
TEST_F(region, old_handle)
{
	__u32 old[64];
	__u64 ticket;

	for (int i = 0; i < ARRAY_SIZE(old); i++) {
		ASSERT_EQ(0, region_register(self->fd, self->buf, 1, RW,
					     &self->r));
		old[i] = self->r.handle;
		ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	}
	ASSERT_EQ(0, region_register(self->fd, self->buf, 64, RW, &self->r));
	for (int i = 0; i < ARRAY_SIZE(old); i++) {
		EXPECT_NE(old[i], self->r.handle);
		EXPECT_EQ(-ENOENT, kernel_start(self->fd, old[i], 0,
						self->r.handle, 32, 8,
						&ticket));
		EXPECT_EQ(-ENOENT, region_unregister(self->fd, old[i]));
	}
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->r, 32,
			      8));
}

TEST_F(region, handle_of_another_file)
{
	int other = uldma_open(0);
	struct region own;
	__u64 ticket;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 64, RW, &self->r));
	/* One more, so that the handles of the two files differ. */
	ASSERT_EQ(0, region_register(self->fd, self->buf, 64, RW, &self->r));
	ASSERT_EQ(0, region_register(other, self->buf, 64, RW, &own));
	ASSERT_NE(own.handle, self->r.handle);

	EXPECT_EQ(-ENOENT, region_unregister(other, self->r.handle));
	EXPECT_EQ(-ENOENT, region_export(other, self->r.handle, RW, 1));
	EXPECT_EQ(-ENOENT, kernel_start(other, self->r.handle, 0, own.handle,
					32, 8, &ticket));
	EXPECT_EQ(-ENOENT, kernel_start(other, own.handle, 0, self->r.handle,
					32, 8, &ticket));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->r, 32,
			      8));
	close(other);
}

TEST_F(region, two_files_share_pages)
{
	int other = uldma_open(0);
	struct region theirs;

	ASSERT_LE(0, other);
	pattern_fill(self->buf, 64, 1);
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->page, RW,
				     &self->r));
	ASSERT_EQ(0, region_register(other, self->buf, self->page, RW,
				     &theirs));
	EXPECT_EQ(1, vm_pin());
	ASSERT_EQ(0, close(other));
	EXPECT_EQ(1, vm_pin());
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 100, &self->r, 0,
			      64));
	EXPECT_EQ(-1, pattern_check(self->buf + 100, 64, 1));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	check_nothing_held(_metadata, self);
}

TEST_F(region, close_releases)
{
	struct region r[4];
	int other = uldma_open(0);

	ASSERT_LE(0, other);
	for (int i = 0; i < ARRAY_SIZE(r); i++) {
		ASSERT_EQ(0, region_register(other, self->buf + i * self->page,
					     3 * self->page, RW, &r[i]));
	}
	EXPECT_EQ(6, vm_pin());
	ASSERT_EQ(0, close(other));
	check_nothing_held(_metadata, self);
}

static int register_again(void *arg)
{
	struct _test_data_region *self = arg;

	return region_register(self->fd, self->buf, 64, RW, &self->r);
}

static int dma_again(void *arg)
{
	struct _test_data_region *self = arg;
	__u64 ticket;

	return kernel_start(self->fd, self->r.handle, 0, self->r.handle, 32, 8,
			    &ticket);
}

static int close_it(void *arg)
{
	struct _test_data_region *self = arg;

	return close(self->fd);
}

/* The file belongs to the address space that opened it. */
TEST_F(region, fork)
{
	ASSERT_EQ(0, region_register(self->fd, self->buf, 64, RW, &self->r));
	EXPECT_EQ(-EPERM, in_child(register_again, self));
	EXPECT_EQ(-EPERM, in_child(dma_again, self));

	EXPECT_EQ(0, in_child(close_it, self));
	EXPECT_EQ(1, vm_pin());
	EXPECT_EQ(1, query(self->fd).out_file_regions);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->r, 32,
			      8));
}

static int register_and_exit(void *arg)
{
	struct _test_data_region *self = arg;
	int fd = uldma_open(0);

	return fd < 0 ? fd : region_register(fd, self->buf,
					     PAGES * self->page, RW, &self->r);
}

static int register_and_die(void *arg)
{
	int ret = register_and_exit(arg);

	raise(SIGKILL);
	return ret;
}

static int register_and_exec(void *arg)
{
	struct _test_data_region *self = arg;
	int fd = uldma_open(0);
	int ret;

	if (fd < 0)
		return fd;
	ret = region_register(fd, self->buf, PAGES * self->page, RW, &self->r);
	if (ret || fcntl(fd, F_SETFD, 0))
		return ret ?: -errno;
	/* A program that has the file open, but another address space. */
	freopen("/dev/null", "w", stderr);
	execl("/proc/self/exe", "uldma_region", "-l", NULL);
	return -errno;
}

TEST_F(region, exit_releases)
{
	EXPECT_EQ(0, in_child(register_and_exit, self));
	check_nothing_held(_metadata, self);
}

TEST_F(region, sigkill_releases)
{
	EXPECT_EQ(SIGKILL, in_child(register_and_die, self));
	check_nothing_held(_metadata, self);
}

TEST_F(region, exec_releases)
{
	EXPECT_EQ(-KSFT_SKIP, in_child(register_and_exec, self));
	check_nothing_held(_metadata, self);
}

/* Runs out of table entries, not of anything else, and recovers. */
TEST_F(region, exhaustion)
{
	__u32 max = self->before.out_max_regions;
	__u32 *handles = calloc(max + 1, sizeof(*handles));
	__u32 count = 0;
	int ret = 0;

	ASSERT_NE(NULL, handles);
	while (count <= max) {
		ret = region_register(self->fd, self->buf, 1, RW, &self->r);
		if (ret)
			break;
		handles[count++] = self->r.handle;
	}
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_LT(0, count);
	EXPECT_EQ(count, query(self->fd).out_file_regions);
	EXPECT_EQ(1, vm_pin());
	while (count) {
		ASSERT_EQ(0, region_unregister(self->fd, handles[--count]))
			TH_LOG("region %u", count);
	}
	check_nothing_held(_metadata, self);
	EXPECT_EQ(0, region_register(self->fd, self->buf, 1, RW, &self->r));
	free(handles);
}

/* Registers the first memory of an address space, and says how that was. */
static void register_first(int out, void *arg)
{
	struct region r;
	char *buf = buffer(page_size());
	int fd = uldma_open(0);
	int ret;

	if (fd < 0 || !buf || write(out, &fd, sizeof(fd)) != sizeof(fd))
		_exit(1);
	ret = region_register(fd, buf, 1, RW, &r);
	if (write(out, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

/* Being stopped and continued interrupts a program, but no call that it makes. */
TEST_F(region, stopped_meanwhile)
{
	struct helper h;
	int ret;

	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(0, helper_start(&h, register_first, NULL));
		ASSERT_EQ(sizeof(ret), read(h.fd, &ret, sizeof(ret)));
		for (int stops = 0; stops < 20; stops++) {
			ASSERT_EQ(0, kill(h.pid, SIGSTOP));
			ASSERT_EQ(0, kill(h.pid, SIGCONT));
		}
		ASSERT_EQ(sizeof(ret), read(h.fd, &ret, sizeof(ret)));
		ASSERT_EQ(0, helper_kill(&h));
		ASSERT_EQ(0, ret)
			TH_LOG("process %d", i);
	}
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
