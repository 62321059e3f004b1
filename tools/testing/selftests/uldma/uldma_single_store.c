// SPDX-License-Identifier: GPL-2.0
/*
 * Single-store initiation: one store, whose result is in the status page.
 */
#include "uldma_harness.h"
#include "uldma_method.h"

#define NO_REGION 0x3ffe

FIXTURE(single) {
	struct party p;
	char *model;
};

FIXTURE_SETUP(single)
{
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_SINGLE_STORE, 0));
}

FIXTURE_TEARDOWN(single)
{
	close(self->p.fd);
}

/* Stores a word to a byte of the destination: how its ticket ends. */
static int put(struct party *p, size_t dst_at, __u64 word)
{
	device_store(shadow_of(&p->d, dst_at), word);
	return status_of(&p->c, ++p->c.ticket);
}

static int put_words(struct party *p, size_t dst_at, __u32 src, __u64 src_at,
		     __u64 bytes, __u32 dst)
{
	return put(p, dst_at, single_store_word(bytes, src, src_at, dst));
}

/* The only access is one store. */
TEST_F(single, one_store)
{
	struct party *p = &self->p;
	struct uldma_context_stats s;

	for (int i = 1; i <= 3 * ULDMA_STATUS_RECORDS; i++) {
		ASSERT_EQ(0, put_words(p, 8 * i, p->s.index, 16 * i, 8,
				       p->d.index));
		ASSERT_EQ(i, READ_ONCE(p->c.status->completed));
		EXPECT_EQ(8, status_record(&p->c, i).bytes);
		memcpy(self->model + 8 * i, p->src + 16 * i, 8);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	s = context_stats(p->fd);
	EXPECT_EQ(3 * ULDMA_STATUS_RECORDS, s.out_shadow_stores);
	EXPECT_EQ(0, s.out_shadow_loads + s.out_page_stores + s.out_page_loads);
	EXPECT_EQ(3 * ULDMA_STATUS_RECORDS, s.out_initiations);
	EXPECT_EQ(0, s.out_refused);
}

/* A refused store takes a ticket, too, or the process could not count. */
TEST_F(single, refusals_have_records)
{
	struct party *p = &self->p;
	__u32 s = p->s.index, d = p->d.index;
	struct region ro;

	ASSERT_EQ(0, region_register(p->fd, p->dst, p->length,
				     ULDMA_ACCESS_READ, &ro));
	EXPECT_EQ(ULDMA_DMA_BAD_SIZE, put_words(p, 0, s, 0, 0, d));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, put_words(p, 0, s, 0, p->length + 8, d));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, put_words(p, 0, s, p->length, 8, d));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  put_words(p, p->length - 8, s, 0, 16, d));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, put_words(p, 0, 0, 0, 8, d));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, put_words(p, 0, NO_REGION, 0, 8, d));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, put_words(p, 0, s, 0, 8, NO_REGION));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT, put_words(p, 0, s, 0, 8, ro.index));
	EXPECT_EQ(8, READ_ONCE(p->c.status->failed));
	EXPECT_EQ(8, READ_ONCE(p->c.status->completed));
	EXPECT_EQ(0, READ_ONCE(p->c.status->refused));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, put_words(p, 0, s, 0, 8, d));
	EXPECT_EQ(0, memcmp(p->dst, p->src, 8));
}

/* Without a destination region its page is the limit. */
TEST_F(single, page_limit)
{
	struct party *p = &self->p;
	size_t page = page_size();

	EXPECT_EQ(0, put_words(p, page, p->s.index, 8, page, 0));
	memcpy(self->model + page, p->src + 8, page);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  put_words(p, page, p->s.index, 8, page + 8, 0));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  put_words(p, 2 * page - 8, p->s.index, 8, 16, 0));
	EXPECT_EQ(0, put_words(p, 2 * page - 8, p->s.index, 8, 8, 0));
	memcpy(self->model + 2 * page - 8, p->src + 8, 8);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* The first byte of a source is a multiple of eight in memory as well. */
TEST_F(single, unaligned_source_region)
{
	struct party *p = &self->p;
	struct region odd;
	int status;

	ASSERT_EQ(0, region_register(p->fd, p->src + 3, 1000, RW, &odd));
	status = put_words(p, 0, odd.index, 0, 8, p->d.index);
	/* Carried exactly, or not at all. */
	if (!status)
		memcpy(self->model, p->src + 3, 8);
	else
		EXPECT_EQ(ULDMA_DMA_NOT_ALIGNED, status);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

static void narrow(char *at, size_t bytes, __u64 value)
{
	if (bytes == 1)
		WRITE_ONCE(*(__u8 *)at, value);
	else if (bytes == 2)
		WRITE_ONCE(*(__u16 *)at, value);
	else
		WRITE_ONCE(*(__u32 *)at, value);
}

/* No part of a word names a source, so nothing moves. */
TEST_F(single, narrow_stores)
{
	struct party *p = &self->p;
	__u64 word = single_store_word(64, p->s.index, 0, p->d.index);
	char *at = p->d.shadow;

	for (size_t bytes = 1; bytes <= 4; bytes *= 2)
		for (size_t i = 0; i < 8; i += bytes)
			narrow(at + i, bytes, word >> 8 * i);
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, ULDMA_METHOD_SINGLE_STORE, 0));
	EXPECT_EQ(0, party_works(p));
}

TEST_F(single, loads_start_nothing)
{
	struct party *p = &self->p;

	EXPECT_GT(0, device_load(shadow_of(&p->s, 0)));
	EXPECT_GT(0, device_load(shadow_of(&p->d, 0)));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, READ_ONCE(p->c.status->completed));
	EXPECT_EQ(0, put_words(p, 0, p->s.index, 0, 8, p->d.index));
}

/*
 * The device drops stores beyond its room, and counts them.
 * Their number depends on the device's speed; the sum does not.
 */
TEST_F(single, more_than_there_is_room_for)
{
	struct party *p = &self->p;
	__u64 word = single_store_word(p->length, p->s.index, 0, p->d.index);
	__u64 stores = 8 * ULDMA_STATUS_RECORDS, refused, completed;
	struct timespec now, limit;

	for (__u64 i = 0; i < stores; i++)
		device_store(shadow_of(&p->d, 0), word);
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		completed = __atomic_load_n(&p->c.status->completed,
					    __ATOMIC_ACQUIRE);
		refused = READ_ONCE(p->c.status->refused);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (completed + refused < stores && now.tv_sec < limit.tv_sec);
	EXPECT_EQ(stores, completed + refused);
	EXPECT_EQ(refused, context_stats(p->fd).out_refused);
	EXPECT_EQ(completed, context_stats(p->fd).out_initiations);
	EXPECT_EQ(completed * p->length, context_stats(p->fd).out_bytes);
	EXPECT_EQ(0, READ_ONCE(p->c.status->failed));
	EXPECT_EQ(-1, pattern_check(p->dst, p->length, 1));
	p->c.ticket = completed;
	EXPECT_EQ(0, party_works(p));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
