// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers that must not happen: each is refused with the reason that the
 * interface documents, nothing is moved, and the refusal is counted.
 */
#include "uldma_harness.h"

#define PAGES 4
#define NO_REGION 0x3ffe

FIXTURE(refuse) {
	int fd;
	size_t page;
	size_t length;
	struct context c;
	char *src;
	char *dst;
	/* All of the pages, with both rights. */
	struct region s;
	struct region d;
	/* The first two pages of each, with the right for the other role. */
	struct region unreadable;
	struct region unwritable;
	/* Both buffers as they were. */
	char *copy;
};

FIXTURE_SETUP(refuse)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	self->src = buffer(2 * self->length);
	self->copy = buffer(2 * self->length);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->copy);
	self->dst = self->src + self->length;
	pattern_fill(self->src, 2 * self->length, 1);
	memcpy(self->copy, self->src, 2 * self->length);
	ASSERT_EQ(0, region_register(self->fd, self->src, self->length, RW,
				     &self->s));
	ASSERT_EQ(0, region_register(self->fd, self->dst, self->length, RW,
				     &self->d));
	ASSERT_EQ(0, region_register(self->fd, self->src, 2 * self->page,
				     ULDMA_ACCESS_WRITE, &self->unreadable));
	ASSERT_EQ(0, region_register(self->fd, self->dst, 2 * self->page,
				     ULDMA_ACCESS_READ, &self->unwritable));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->s, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, region_map(self->fd, &self->d, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(refuse)
{
	close(self->fd);
}

/* Starts a transfer by the kernel between regions: 0 or a negated errno. */
static int by_kernel(struct _test_data_refuse *self, const struct region *d,
		     __u64 dst, const struct region *s, __u64 src, __u64 bytes)
{
	__u64 ticket;

	return kernel_start(self->fd, d->handle, dst, s->handle, src, bytes,
			    &ticket);
}

/* Starts a transfer by the device from the start of both buffers: its answer. */
static __s64 by_shadow(struct _test_data_refuse *self, __u32 dst, __u32 src,
		       __u64 bytes)
{
	return shadow_pass(shadow_of(&self->d, 0), shadow_of(&self->s, 0),
			   bytes, dst, src);
}

static void check_refused(struct __test_metadata *_metadata,
			  struct _test_data_refuse *self, __u64 times)
{
	struct uldma_context_stats s = context_stats(self->fd);

	EXPECT_EQ(0, memcmp(self->copy, self->src, 2 * self->length));
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_EQ(0, s.out_bytes);
	EXPECT_EQ(times, s.out_refused);

	/* And what is allowed goes on as if nothing had been. */
	EXPECT_LT(0, by_shadow(self, self->d.index, self->s.index, 8));
	EXPECT_EQ(0, transfer_wait(self->fd, BY_SHADOW, 1, 8));
	EXPECT_EQ(0, memcmp(self->src, self->dst, 8));
}

TEST_F(refuse, zero_size)
{
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, 0, 0));
	EXPECT_EQ(-ULDMA_DMA_BAD_SIZE,
		  by_shadow(self, self->d.index, self->s.index, 0));
	EXPECT_EQ(-ULDMA_DMA_BAD_SIZE, by_shadow(self, 0, 0, 0));
	check_refused(_metadata, self, 2);
}

TEST_F(refuse, kernel_bounds)
{
	__u64 max = query(self->fd).out_max_transfer;
	__u64 len = self->length;

	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, 0, len + 1));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 1, &self->s, 0, len));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, 1, len));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, len, &self->s, 0, 1));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, len, 1));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, ~0ULL, 8));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, ~7ULL, &self->s, 0, 16));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 1ULL << 48, &self->s, 0,
				     8));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, 0, ~0ULL));
	EXPECT_EQ(-EINVAL, by_kernel(self, &self->d, 0, &self->s, 0, max + 1));
	check_refused(_metadata, self, 0);
}

TEST_F(refuse, shadow_bounds)
{
	static const size_t offsets[] = { 0, 1, 8, 4095 };

	for (int i = 0; i < ARRAY_SIZE(offsets); i++) {
		size_t too_much = self->length - offsets[i] + 1;

		EXPECT_EQ(-ULDMA_DMA_BOUNDS,
			  shadow_start(&self->d, offsets[i], &self->s, 0,
				       too_much));
		EXPECT_EQ(-ULDMA_DMA_BOUNDS,
			  shadow_start(&self->d, 0, &self->s, offsets[i],
				       too_much));
	}
	EXPECT_EQ(-ULDMA_DMA_BOUNDS,
		  by_shadow(self, self->d.index, self->s.index,
			    ULDMA_SIZE_WORD_BYTES_MASK));
	check_refused(_metadata, self, 2 * ARRAY_SIZE(offsets) + 1);
}

/* Bytes of the region's first and last page that are not the region's. */
TEST_F(refuse, shadow_bounds_within_a_page)
{
	struct region part;

	ASSERT_EQ(0, region_register(self->fd, self->dst + 100, 1000, RW,
				     &part));
	part.shadow = self->d.shadow;
	EXPECT_EQ(-ULDMA_DMA_BOUNDS, shadow_start(&part, 0, &self->s, 0, 1001));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS, shadow_start(&part, -1, &self->s, 0, 8));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS, shadow_start(&part, 999, &self->s, 0, 2));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS, shadow_start(&part, 1000, &self->s, 0, 1));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS, shadow_start(&self->s, 0, &part, -1, 8));
	check_refused(_metadata, self, 5);
}

/* Without a region index, the page is the limit. */
TEST_F(refuse, page_limit)
{
	size_t at = self->page - 100;

	EXPECT_EQ(-ULDMA_DMA_BOUNDS, by_shadow(self, 0, 0, self->page + 1));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS,
		  shadow_pass(shadow_of(&self->d, at), shadow_of(&self->s, 0),
			      101, 0, self->s.index));
	EXPECT_EQ(-ULDMA_DMA_BOUNDS,
		  shadow_pass(shadow_of(&self->d, 0), shadow_of(&self->s, at),
			      101, self->d.index, 0));
	check_refused(_metadata, self, 3);
}

/* And all of the page is allowed. */
TEST_F(refuse, page_limit_reached)
{
	__s64 ticket = shadow_pass(shadow_of(&self->d, self->page),
				   shadow_of(&self->s, 0), self->page, 0, 0);

	ASSERT_LT(0, ticket);
	ASSERT_EQ(0, transfer_wait(self->fd, BY_SHADOW, ticket, self->page));
	memcpy(self->copy + self->length + self->page, self->copy, self->page);
	EXPECT_EQ(0, memcmp(self->copy, self->src, 2 * self->length));
}

TEST_F(refuse, wrong_direction)
{
	EXPECT_EQ(-EACCES, by_kernel(self, &self->unwritable, 0, &self->s, 0,
				     8));
	EXPECT_EQ(-EACCES, by_kernel(self, &self->d, 0, &self->unreadable, 0,
				     8));
	EXPECT_EQ(-ULDMA_DMA_NO_RIGHT,
		  by_shadow(self, self->unwritable.index, self->s.index, 8));
	EXPECT_EQ(-ULDMA_DMA_NO_RIGHT,
		  by_shadow(self, self->d.index, self->unreadable.index, 8));
	check_refused(_metadata, self, 2);
}

/* With no second region over the pages, the pages lack the right too. */
TEST_F(refuse, unreadable_page)
{
	char *buf = buffer(self->page);
	struct region r;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, self->page,
				     ULDMA_ACCESS_WRITE, &r));
	ASSERT_EQ(0, region_map(self->fd, &r, PROT_WRITE));
	EXPECT_EQ(-ULDMA_DMA_NO_RIGHT,
		  shadow_pass(shadow_of(&self->d, 0), shadow_of(&r, 0), 8, 0,
			      0));
	EXPECT_EQ(-ULDMA_DMA_NO_RIGHT,
		  shadow_start(&self->d, 0, &r, 0, 8));
	check_refused(_metadata, self, 2);
}

TEST_F(refuse, unknown_region)
{
	struct region none = { .handle = 0x7fffffff };

	EXPECT_EQ(-ENOENT, by_kernel(self, &none, 0, &self->s, 0, 8));
	EXPECT_EQ(-ENOENT, by_kernel(self, &self->d, 0, &none, 0, 8));
	EXPECT_EQ(-ULDMA_DMA_NOT_VALID,
		  by_shadow(self, NO_REGION, self->s.index, 8));
	EXPECT_EQ(-ULDMA_DMA_NOT_VALID,
		  by_shadow(self, self->d.index, NO_REGION, 8));
	check_refused(_metadata, self, 2);
}

TEST_F(refuse, unregistered_region)
{
	struct region gone;

	ASSERT_EQ(0, region_register(self->fd, self->dst, self->page, RW,
				     &gone));
	ASSERT_EQ(0, region_unregister(self->fd, gone.handle));
	EXPECT_EQ(-ENOENT, by_kernel(self, &gone, 0, &self->s, 0, 8));
	EXPECT_EQ(-ULDMA_DMA_NOT_VALID,
		  by_shadow(self, gone.index, self->s.index, 8));
	EXPECT_EQ(-ULDMA_DMA_NOT_VALID,
		  by_shadow(self, self->d.index, gone.index, 8));
	check_refused(_metadata, self, 2);
}

/* An index that is the owner's own, but of a region of other pages. */
TEST_F(refuse, region_of_other_pages)
{
	EXPECT_GT(0, by_shadow(self, self->s.index, self->s.index, 8));
	EXPECT_GT(0, by_shadow(self, self->d.index, self->d.index, 8));
	check_refused(_metadata, self, 2);
}

static void register_and_tell(int fd, void *arg)
{
	struct _test_data_refuse *self = arg;
	struct region r = { };
	int own = uldma_open(0);

	if (own < 0 || region_register(own, self->dst, self->length, RW, &r))
		r.index = 0;
	if (write(fd, &r.index, sizeof(r.index)) != sizeof(r.index))
		_exit(1);
}

TEST_F(refuse, region_of_another_process)
{
	struct helper helper = { };
	__u32 index = 0;

	ASSERT_EQ(0, helper_start(&helper, register_and_tell, self));
	ASSERT_EQ(sizeof(index), read(helper.fd, &index, sizeof(index)));
	ASSERT_NE(0, index);
	EXPECT_EQ(-ULDMA_DMA_NOT_OWNER,
		  by_shadow(self, index, self->s.index, 8));
	EXPECT_EQ(-ULDMA_DMA_NOT_OWNER,
		  by_shadow(self, self->d.index, index, 8));
	check_refused(_metadata, self, 2);
	EXPECT_EQ(0, helper_kill(&helper));
}

TEST_F(refuse, load_without_store)
{
	__u64 *s = (__u64 *)self->s.shadow;

	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, (__s64)READ_ONCE(*s));
	/* A refusal takes the arguments away. */
	EXPECT_EQ(-ULDMA_DMA_BAD_SIZE,
		  by_shadow(self, self->d.index, self->s.index, 0));
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, (__s64)READ_ONCE(*s));
	check_refused(_metadata, self, 3);
}

/* So does a start. */
TEST_F(refuse, second_load)
{
	__u64 *s = (__u64 *)self->s.shadow;

	ASSERT_EQ(1, by_shadow(self, self->d.index, self->s.index, 8));
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, (__s64)READ_ONCE(*s));
	EXPECT_EQ(1, context_stats(self->fd).out_initiations);
	EXPECT_EQ(1, context_stats(self->fd).out_refused);
}

/* A store that is followed by a store is forgotten. */
TEST_F(refuse, second_store)
{
	__u64 *d = (__u64 *)self->d.shadow;
	__s64 ticket;

	WRITE_ONCE(*d, size_word(self->length, 0, 0, self->s.index,
				 self->d.index));
	ticket = by_shadow(self, self->d.index, self->s.index, 16);
	ASSERT_LT(0, ticket);
	ASSERT_EQ(0, transfer_wait(self->fd, BY_SHADOW, ticket, 16));
	memcpy(self->copy + self->length, self->copy, 16);
	EXPECT_EQ(0, memcmp(self->copy, self->src, 2 * self->length));
	EXPECT_EQ(16, context_stats(self->fd).out_bytes);
}

FIXTURE(width) {
	int fd;
	char *buf;
	struct context c;
	struct region r;
};

FIXTURE_VARIANT(width) {
	size_t bytes;
	size_t at;
};

FIXTURE_SETUP(width)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(page_size());
	ASSERT_NE(NULL, self->buf);
	pattern_fill(self->buf, page_size(), 1);
	ASSERT_EQ(0, region_register(self->fd, self->buf, page_size(), RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(width)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(width, byte) { 1, 0 };
FIXTURE_VARIANT_ADD(width, word) { 2, 0 };
FIXTURE_VARIANT_ADD(width, byte_unaligned) { 1, 3 };
FIXTURE_VARIANT_ADD(width, word_unaligned) { 2, 6 };
FIXTURE_VARIANT_ADD(width, four_unaligned) { 4, 4 };

static void narrow_store(char *at, size_t bytes, __u64 value)
{
	if (bytes == 1)
		WRITE_ONCE(*(__u8 *)at, value);
	else if (bytes == 2)
		WRITE_ONCE(*(__u16 *)at, value);
	else
		WRITE_ONCE(*(__u32 *)at, value);
}

static void narrow_load(char *at, size_t bytes)
{
	if (bytes == 1)
		(void)READ_ONCE(*(__u8 *)at);
	else if (bytes == 2)
		(void)READ_ONCE(*(__u16 *)at);
	else
		(void)READ_ONCE(*(__u32 *)at);
}

TEST_F(width, store)
{
	struct uldma_context_stats s;

	narrow_store(self->r.shadow + variant->at, variant->bytes, 16);
	/* A refused initiation leaves no arguments in the device. */
	EXPECT_GT(0, (__s64)READ_ONCE(*(__u64 *)(self->r.shadow + 64)));
	s = context_stats(self->fd);
	EXPECT_EQ(1, s.out_shadow_stores);
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_LE(1, s.out_refused);
	EXPECT_EQ(-1, pattern_check(self->buf, page_size(), 1));
}

TEST_F(width, load)
{
	struct uldma_context_stats s;

	WRITE_ONCE(*(__u64 *)self->r.shadow,
		   size_word(16, 0, 0, self->r.index, self->r.index));
	narrow_load(self->r.shadow + 64 + variant->at, variant->bytes);
	s = context_stats(self->fd);
	EXPECT_EQ(1, s.out_shadow_loads);
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_EQ(1, s.out_refused);
	EXPECT_EQ(0, s.out_bytes);
	EXPECT_EQ(-1, pattern_check(self->buf, page_size(), 1));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
