// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of the device: all kinds obey the same rules, so that no process
 * reaches memory that is not, or no longer, its own.
 */
#include <sys/uio.h>

#include "uldma_harness.h"

#define NAME 0x75746d6d6170ULL

enum kind {
	SHADOW,
	CONTEXT,
	STATUS,
	QUEUE,
	SEGMENT,
};

FIXTURE(mapping) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	struct context c;
	struct segment s;
	/* Of the kind under test. */
	__u64 offset;
	size_t length;
	int prot;
	char *at;
};

FIXTURE_VARIANT(mapping) {
	enum kind kind;
};

FIXTURE_SETUP(mapping)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(2 * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 2 * self->page, RW,
				     &self->r));
	ASSERT_EQ(0, context_create_as(self->fd, variant->kind == QUEUE ?
				       ULDMA_METHOD_QUEUE :
				       ULDMA_METHOD_EXTENDED_SHADOW, 0,
				       &self->c));
	ASSERT_EQ(0, segment_create(self->fd, NAME, 2 * self->page, &self->s));

	self->prot = PROT_READ | PROT_WRITE;
	self->length = self->c.page_length;
	switch (variant->kind) {
	case SHADOW:
		self->offset = self->r.shadow_offset;
		self->length = self->r.shadow_length;
		break;
	case CONTEXT:
		self->offset = self->c.page_offset;
		break;
	case STATUS:
		self->offset = self->c.status_offset;
		self->prot = PROT_READ;
		break;
	case QUEUE:
		self->offset = self->c.queue_offset;
		break;
	case SEGMENT:
		self->offset = self->s.offset;
		self->length = self->s.length;
		break;
	}
	ASSERT_EQ(0, map(self->fd, self->offset, self->length, self->prot,
			 MAP_SHARED, &self->at));
}

FIXTURE_TEARDOWN(mapping)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(mapping, shadow) { SHADOW };
FIXTURE_VARIANT_ADD(mapping, context) { CONTEXT };
FIXTURE_VARIANT_ADD(mapping, status) { STATUS };
FIXTURE_VARIANT_ADD(mapping, queue) { QUEUE };
FIXTURE_VARIANT_ADD(mapping, segment) { SEGMENT };

/* Returns true if all pages of the mapping can be accessed. */
static int usable(struct _test_data_mapping *self)
{
	enum touch how = self->prot & PROT_WRITE ? STORE : LOAD;

	return touch(self->at, LOAD) ?: touch(self->at, how) ?:
	       touch(self->at + self->length - 8, how);
}

TEST_F(mapping, works)
{
	EXPECT_EQ(0, usable(self));
}

TEST_F(mapping, private)
{
	char *at;

	EXPECT_EQ(-EINVAL, map(self->fd, self->offset, self->length,
			       PROT_READ, MAP_PRIVATE, &at));
	EXPECT_EQ(-EINVAL, map(self->fd, self->offset, self->length,
			       PROT_READ | PROT_WRITE, MAP_PRIVATE, &at));
}

/* EPERM is the kernel's own answer where /dev is mounted noexec. */
TEST_F(mapping, executable)
{
	char *at;
	int ret = map(self->fd, self->offset, self->length,
		      PROT_READ | PROT_EXEC, MAP_SHARED, &at);

	EXPECT_TRUE(ret == -EACCES || ret == -EPERM)
		TH_LOG("got %d", ret);
	EXPECT_EQ(-1, mprotect(self->at, self->length, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(0, usable(self));
}

TEST_F(mapping, past_the_end)
{
	char *at;

	EXPECT_EQ(-EINVAL, map(self->fd, self->offset,
			       self->length + self->page, self->prot,
			       MAP_SHARED, &at));
	EXPECT_EQ(-EINVAL, map(self->fd, self->offset, 1024 * self->length,
			       self->prot, MAP_SHARED, &at));
	EXPECT_EQ(-EINVAL, map(self->fd,
			       self->offset + self->length - self->page,
			       2 * self->page, self->prot, MAP_SHARED, &at));
}

TEST_F(mapping, grow)
{
	EXPECT_EQ(MAP_FAILED, mremap(self->at, self->length,
				     self->length + self->page,
				     MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	/* A second mapping of the same, from an old length of zero. */
	EXPECT_EQ(MAP_FAILED, mremap(self->at, 0, self->length,
				     MREMAP_MAYMOVE));
	EXPECT_EQ(0, usable(self));
}

TEST_F(mapping, move)
{
	char *to = mmap(NULL, self->length, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, to);
	EXPECT_EQ(MAP_FAILED, mremap(self->at, self->length, self->length,
				     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_EQ(EPERM, errno);
	EXPECT_EQ(MAP_FAILED, mremap(self->at, self->length, self->length,
				     MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(0, usable(self));
}

static int touch_again(void *arg)
{
	struct _test_data_mapping *self = arg;

	signal(SIGSEGV, SIG_DFL);
	(void)READ_ONCE(*(__u64 *)self->at);
	return 0;
}

static int map_again(void *arg)
{
	struct _test_data_mapping *self = arg;
	char *at;

	return map(self->fd, self->offset, self->length, self->prot,
		   MAP_SHARED, &at);
}

TEST_F(mapping, fork)
{
	EXPECT_EQ(SIGSEGV, in_child(touch_again, self));
	EXPECT_EQ(-EPERM, in_child(map_again, self));
	EXPECT_EQ(0, usable(self));
}

/* An mmap offset is valid for the open file that got it only. */
TEST_F(mapping, other_file)
{
	bool of_context = variant->kind == CONTEXT || variant->kind == STATUS;
	int other = uldma_open(0);
	struct context c;
	char *at;

	ASSERT_LE(0, other);
	if (!of_context)
		ASSERT_EQ(0, context_create(other, &c));
	EXPECT_EQ(-EINVAL,
		  map(other, self->offset, self->length, self->prot,
		      MAP_SHARED, &at));
	close(other);
}

/* The kernel must not load from device memory for a process. */
TEST_F(mapping, read_by_the_kernel)
{
	struct uldma_context_stats before = context_stats(self->fd);
	struct iovec remote = { .iov_base = self->at, .iov_len = 8 };
	struct iovec local;
	char data[8];
	int mem;

	local = (struct iovec){ .iov_base = data, .iov_len = sizeof(data) };
	ASSERT_EQ(0, touch(self->at, LOAD));
	EXPECT_EQ(-1, process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
	EXPECT_EQ(EFAULT, errno);
	mem = open("/proc/self/mem", O_RDWR);
	ASSERT_LE(0, mem);
	EXPECT_GE(0, pread(mem, data, sizeof(data), (uintptr_t)self->at));
	EXPECT_GE(0, pwrite(mem, data, sizeof(data), (uintptr_t)self->at));
	close(mem);
	if (variant->kind == SHADOW) {
		/* Only that of touch(). */
		EXPECT_EQ(before.out_shadow_loads + 1,
			  context_stats(self->fd).out_shadow_loads);
		EXPECT_EQ(before.out_shadow_stores,
			  context_stats(self->fd).out_shadow_stores);
	}
}

TEST_F(mapping, registered)
{
	struct region r;

	ASSERT_EQ(0, touch(self->at, LOAD));
	EXPECT_EQ(-EOPNOTSUPP, region_register(self->fd, self->at, self->page,
					       ULDMA_ACCESS_READ, &r));
	EXPECT_EQ(-EOPNOTSUPP, region_register(self->fd, self->at, self->page,
					       RW, &r));
	EXPECT_EQ(2, vm_pin());
}

static int end_object(struct _test_data_mapping *self, enum kind kind)
{
	switch (kind) {
	case SHADOW:
		return region_unregister(self->fd, self->r.handle);
	case SEGMENT:
		return segment_destroy(self->fd, self->s.handle);
	default:
		return context_destroy(self->fd);
	}
}

/* Accesses raise SIGBUS, by a mapping that was accessed before and by one that was not. */
TEST_F(mapping, after_the_end)
{
	char *untouched = NULL;

	ASSERT_EQ(0, map(self->fd, self->offset, self->length, self->prot,
			 MAP_SHARED, &untouched));
	ASSERT_EQ(0, usable(self));
	ASSERT_EQ(0, end_object(self, variant->kind));
	EXPECT_EQ(SIGBUS, touch(self->at, LOAD));
	EXPECT_EQ(SIGBUS, touch(untouched, LOAD));
	if (self->prot & PROT_WRITE)
		EXPECT_EQ(SIGBUS, touch(self->at, STORE));
	EXPECT_NE(0, map(self->fd, self->offset, self->length, self->prot,
			 MAP_SHARED, &untouched));
}

/* Old mappings must not show later objects at the same place. */
TEST_F(mapping, after_the_end_somebody_new)
{
	int other = uldma_open(0);
	struct context c;
	struct segment s;
	struct region r;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, usable(self));
	ASSERT_EQ(0, end_object(self, variant->kind));
	EXPECT_EQ(0, region_register(other, self->buf, 2 * self->page, RW,
				     &r));
	EXPECT_EQ(0, context_create(other, &c));
	EXPECT_EQ(0, segment_create(other, NAME + 1, 2 * self->page, &s));
	EXPECT_EQ(SIGBUS, touch(self->at, LOAD));
	close(other);
}

FIXTURE(mmap) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	struct context c;
	char *at;
};

FIXTURE_SETUP(mmap)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(4 * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 4 * self->page, RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
}

FIXTURE_TEARDOWN(mmap)
{
	close(self->fd);
}

TEST_F(mmap, offset_of_nothing)
{
	static const __u64 offsets[] = {
		1ULL << 46, 1ULL << 55, 1ULL << 62, 0x7ffffffffffff000ULL,
	};

	for (int i = 0; i < ARRAY_SIZE(offsets); i++) {
		EXPECT_EQ(-EINVAL, map(self->fd, offsets[i], self->page,
				       PROT_READ, MAP_SHARED, &self->at))
			TH_LOG("offset %llx", offsets[i]);
	}
	/* Past all regions there are. */
	EXPECT_EQ(-EINVAL,
		  map(self->fd, self->r.shadow_offset + 64 * self->page,
		      self->page, PROT_READ, MAP_SHARED, &self->at));
}

TEST_F(mmap, needs_a_context)
{
	ASSERT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(-ENXIO, region_map(self->fd, &self->r, PROT_READ));
}

TEST_F(mmap, write_right)
{
	struct region readonly;

	ASSERT_EQ(0, region_register(self->fd, self->buf, self->page,
				     ULDMA_ACCESS_READ, &readonly));
	EXPECT_EQ(-EACCES, region_map(self->fd, &readonly,
				      PROT_READ | PROT_WRITE));
	EXPECT_EQ(-EACCES, region_map(self->fd, &readonly, PROT_WRITE));
	ASSERT_EQ(0, region_map(self->fd, &readonly, PROT_READ));
	EXPECT_EQ(-1, mprotect(readonly.shadow, self->page,
			       PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(SIGSEGV, touch(readonly.shadow, STORE));
	EXPECT_EQ(0, touch(readonly.shadow, LOAD));
}

/* Not even where the shadow pages of both regions are at the same offset. */
TEST_F(mmap, write_right_of_the_past)
{
	struct region readonly;

	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, touch(self->r.shadow, STORE));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	ASSERT_EQ(0, region_register(self->fd, self->buf, 4 * self->page,
				     ULDMA_ACCESS_READ, &readonly));
	EXPECT_NE(0, touch(self->r.shadow, STORE));
}

TEST_F(mmap, status_page_is_readonly)
{
	EXPECT_EQ(-EACCES, map(self->fd, self->c.status_offset,
			       self->c.page_length, PROT_READ | PROT_WRITE,
			       MAP_SHARED, &self->at));
	ASSERT_EQ(0, map(self->fd, self->c.status_offset, self->c.page_length,
			 PROT_READ, MAP_SHARED, &self->at));
	EXPECT_EQ(-1, mprotect(self->at, self->c.page_length,
			       PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(SIGSEGV, touch(self->at, STORE));
}

/* Some of the pages, from the middle: they are the right ones. */
TEST_F(mmap, part)
{
	struct region part = self->r;
	struct context *c = &self->c;
	__s64 ticket;

	ASSERT_EQ(0, context_map(self->fd, c));
	part.shadow_offset += 2 * self->page;
	part.shadow_length = self->page;
	ASSERT_EQ(0, region_map(self->fd, &part, PROT_READ | PROT_WRITE));
	pattern_fill(self->buf + 2 * self->page, 64, 1);
	ticket = shadow_start(&part, 1000, &part, 0, 64);
	ASSERT_LT(0, ticket);
	ASSERT_EQ(0, transfer_wait(self->fd, BY_SHADOW, ticket, 64));
	EXPECT_EQ(-1, pattern_check(self->buf + 2 * self->page + 1000, 64, 1));
}

/* A mapping is one object: it goes as a whole. */
TEST_F(mmap, split)
{
	char *at;

	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	at = self->r.shadow;
	EXPECT_EQ(-1, munmap(at + 2 * self->page, self->page));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, munmap(at, self->page));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, mprotect(at, self->page, PROT_READ));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(0, touch(at, STORE));
	EXPECT_EQ(0, touch(at + 2 * self->page, STORE));
	EXPECT_EQ(0, munmap(at, 4 * self->page));
	EXPECT_EQ(SIGSEGV, touch(at, LOAD));
}

/* The mapping keeps the file open; unmapping it releases all objects. */
TEST_F(mmap, outlives_the_descriptor)
{
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, close(self->fd));
	EXPECT_EQ(0, touch(self->r.shadow, LOAD));
	EXPECT_EQ(4, vm_pin());
	ASSERT_EQ(0, region_unmap(&self->r));
	EXPECT_EQ(0, vm_pin());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
