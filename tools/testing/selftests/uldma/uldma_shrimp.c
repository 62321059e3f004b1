// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are mapped out: one access moves a page to the one place where the
 * kernel said that it goes.
 */
#include "uldma_harness.h"
#include "uldma_method.h"

FIXTURE(shrimp) {
	struct party p;
	size_t page;
	char *model;
};

FIXTURE_SETUP(shrimp)
{
	self->page = page_size();
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	/* All of the source goes to all of the destination. */
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_SHRIMP_1, 0));
}

FIXTURE_TEARDOWN(shrimp)
{
	close(self->p.fd);
}

/* Moves the first bytes of a source page: as the load says, or the record. */
static int move(struct party *p, const struct region *s, int number,
		size_t bytes)
{
	__s64 ticket;

	ticket = device_load((uintptr_t)s->shadow + number * page_size() +
			     bytes - 8);
	return ticket < 0 ? -ticket : ticket ? status_of(&p->c, ticket) :
					       -EPROTO;
}

static int map_out_pages(struct party *p, __u32 from, __u32 to, __u32 pages)
{
	return map_out(p->fd, p->s.handle, from, p->d.handle, to, pages);
}

static int unmap_out(struct party *p, __u32 from, __u32 pages)
{
	return map_out(p->fd, p->s.handle, from, 0, 0, pages);
}

TEST_F(shrimp, one_access)
{
	struct party *p = &self->p;
	struct uldma_context_stats s;
	int moves = 0;

	for (int n = 0; n < PARTY_PAGES; n++)
		for (size_t bytes = 8; bytes <= self->page; bytes += 56) {
			size_t at = n * self->page;

			ASSERT_EQ(0, move(p, &p->s, n, bytes));
			memcpy(self->model + at, p->src + at, bytes);
			ASSERT_EQ(0, memcmp(self->model, p->dst, p->length));
			moves++;
		}
	s = context_stats(p->fd);
	EXPECT_EQ(moves, s.out_shadow_loads);
	EXPECT_EQ(moves, s.out_initiations);
	EXPECT_EQ(0, s.out_shadow_stores + s.out_page_loads + s.out_page_stores);
}

/* Another counterpart takes a call; then it is the new one. */
TEST_F(shrimp, remap)
{
	struct party *p = &self->p;

	for (int to = 0; to < PARTY_PAGES; to++) {
		ASSERT_EQ(0, map_out_pages(p, 1, to, 1));
		pattern_fill(p->src + self->page, self->page, to + 20);
		ASSERT_EQ(0, move(p, &p->s, 1, self->page));
		memcpy(self->model + to * self->page, p->src + self->page,
		       self->page);
		ASSERT_EQ(0, memcmp(self->model, p->dst, p->length));
	}
	/* A run of pages, to other places. */
	ASSERT_EQ(0, map_out_pages(p, 0, 2, 2));
	ASSERT_EQ(0, map_out_pages(p, 2, 0, 2));
	for (int n = 0; n < PARTY_PAGES; n++) {
		ASSERT_EQ(0, move(p, &p->s, n, 64));
		memcpy(self->model + (n + 2) % 4 * self->page,
		       p->src + n * self->page, 64);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

TEST_F(shrimp, end)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, unmap_out(p, 1, 2));
	EXPECT_LT(0, move(p, &p->s, 1, 64));
	EXPECT_LT(0, move(p, &p->s, 2, 64));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(2, context_stats(p->fd).out_refused);
	EXPECT_EQ(0, move(p, &p->s, 0, 64));
	EXPECT_EQ(0, move(p, &p->s, 3, 64));
	/* Once more is no error. */
	EXPECT_EQ(0, unmap_out(p, 1, 2));
	ASSERT_EQ(0, map_out_pages(p, 1, 1, 1));
	EXPECT_EQ(0, move(p, &p->s, 1, 64));
}

/* A destination page is no source because of that. */
TEST_F(shrimp, not_mapped_out)
{
	struct party *p = &self->p;

	for (int n = 0; n < PARTY_PAGES; n++)
		EXPECT_LT(0, move(p, &p->d, n, 64));
	EXPECT_EQ(-1, pattern_check(p->src, p->length, 1));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

TEST_F(shrimp, stores_start_nothing)
{
	struct party *p = &self->p;

	for (size_t at = 0; at < self->page; at += 512)
		device_store((uintptr_t)p->s.shadow + at, 64);
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, move(p, &p->s, 0, 64));
}

/* The last byte that an access names has to be the last of eight. */
TEST_F(shrimp, narrow_loads)
{
	struct party *p = &self->p;
	const volatile char *at = p->s.shadow;

	for (int i = 0; i < 16; i++) {
		(void)at[i];
		(void)*(const volatile __u16 *)(at + 2 * i);
		if (i % 2)
			(void)*(const volatile __u32 *)(at + 4 * i);
	}
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

TEST_F(shrimp, arguments)
{
	struct party *p = &self->p;
	__u32 s = p->s.handle, d = p->d.handle;
	struct uldma_map_out arg = {
		.size = sizeof(arg), .src = s, .dst = d, .pages = 1,
	};

	EXPECT_EQ(-ENOENT, map_out(p->fd, 0x7fffffff, 0, d, 0, 1));
	EXPECT_EQ(-ENOENT, map_out(p->fd, s, 0, 0x7fffffff, 0, 1));
	EXPECT_EQ(-ENOENT, map_out(p->fd, 0, 0, d, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, d, 0, 0));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, d, 0, PARTY_PAGES + 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 1, d, 0, PARTY_PAGES));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, d, 1, PARTY_PAGES));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, PARTY_PAGES, d, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, d, PARTY_PAGES, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, ~0U, d, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, d, ~0U, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, ~0U, d, ~0U, ~0U));
	EXPECT_EQ(-EINVAL, map_out(p->fd, s, 0, 0, 0, PARTY_PAGES + 1));
	arg.flags = 1;
	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(p->fd, ULDMA_IOC_CONTEXT_MAP_OUT, &arg));
	arg.flags = 0;
	arg.reserved = 1;
	EXPECT_EQ(-EINVAL,
		  uldma_ioctl(p->fd, ULDMA_IOC_CONTEXT_MAP_OUT, &arg));
	/* None of these has changed anything. */
	for (int n = 0; n < PARTY_PAGES; n++)
		EXPECT_EQ(0, move(p, &p->s, n, self->page));
	EXPECT_EQ(0, memcmp(p->src, p->dst, p->length));
}

TEST_F(shrimp, rights)
{
	struct party *p = &self->p;
	struct region ro, wo;

	ASSERT_EQ(0, region_register(p->fd, p->src, p->length,
				     ULDMA_ACCESS_READ, &ro));
	ASSERT_EQ(0, region_register(p->fd, p->dst, p->length,
				     ULDMA_ACCESS_WRITE, &wo));
	EXPECT_EQ(-EACCES, map_out(p->fd, wo.handle, 0, p->s.handle, 0, 1));
	EXPECT_EQ(-EACCES, map_out(p->fd, p->d.handle, 0, ro.handle, 0, 1));
	EXPECT_EQ(0, map_out(p->fd, ro.handle, 0, wo.handle, 0, 1));
	EXPECT_EQ(0, move(p, &p->s, 0, self->page));
	EXPECT_EQ(0, memcmp(p->src, p->dst, self->page));
}

/* Pages that a region has in part hold bytes that are not the region's. */
TEST_F(shrimp, whole_pages_only)
{
	struct party *p = &self->p;
	struct region part;

	ASSERT_EQ(0, region_register(p->fd, p->src + 8, 3 * self->page - 16, RW,
				     &part));
	EXPECT_EQ(-EINVAL, map_out(p->fd, part.handle, 0, p->d.handle, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, part.handle, 2, p->d.handle, 2, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, part.handle, 1, p->d.handle, 0, 2));
	EXPECT_EQ(-EINVAL, map_out(p->fd, p->d.handle, 0, part.handle, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(p->fd, p->d.handle, 0, part.handle, 2, 1));
	EXPECT_EQ(0, map_out(p->fd, part.handle, 1, p->d.handle, 3, 1));
	EXPECT_EQ(0, map_out(p->fd, p->d.handle, 0, part.handle, 1, 1));
	EXPECT_EQ(0, move(p, &p->d, 0, 64));
	EXPECT_EQ(0, memcmp(p->src + self->page, p->dst, 64));
}

/* Handles are the open file's own, also within one process. */
TEST_F(shrimp, foreign_pages)
{
	struct party *p = &self->p;
	struct party other;

	ASSERT_EQ(0, party_open(&other));
	EXPECT_EQ(-ENOENT, map_out(other.fd, p->s.handle + 100, 0,
				   other.d.handle, 0, 1));
	ASSERT_EQ(0, context_create_as(other.fd, ULDMA_METHOD_SHRIMP_1, 0,
				       &other.c));
	ASSERT_EQ(0, context_map(other.fd, &other.c));
	ASSERT_EQ(0, region_map(other.fd, &other.s, PROT_READ));
	EXPECT_LT(0, move(&other, &other.s, 0, 64));
	EXPECT_EQ(-1, pattern_check(other.dst, other.length, 2));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	close(other.fd);
}

/* A page is mapped out as long as it is locked, and no longer. */
TEST_F(shrimp, source_ends)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, region_unmap(&p->s));
	ASSERT_EQ(0, region_unregister(p->fd, p->s.handle));
	ASSERT_EQ(0, region_register(p->fd, p->src, p->length, RW, &p->s));
	ASSERT_EQ(0, region_map(p->fd, &p->s, PROT_READ | PROT_WRITE));
	for (int n = 0; n < PARTY_PAGES; n++)
		EXPECT_LT(0, move(p, &p->s, n, 64));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* Its memory is another's then, which must not be written. */
TEST_F(shrimp, destination_ends)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, region_unmap(&p->d));
	ASSERT_EQ(0, region_unregister(p->fd, p->d.handle));
	for (int n = 0; n < PARTY_PAGES; n++)
		EXPECT_LT(0, move(p, &p->s, n, 64));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
}

enum other_verb {
	OTHER_OPEN,
	OTHER_CHECK,
};

static long other(long verb, long arg, void *data)
{
	struct party *p = data;

	if (verb == OTHER_OPEN)
		return party_open(p);
	return pattern_check(p->dst, p->length, 2) < 0 &&
	       pattern_check(p->src, p->length, 1) < 0 ? 0 : -EILSEQ;
}

/* Nor is it if the destination's entries are another process's now. */
TEST_F(shrimp, destination_is_another_process)
{
	struct party *p = &self->p;
	struct party theirs = { };
	struct partner partner;

	ASSERT_EQ(0, partner_start(&partner, other, &theirs));
	ASSERT_EQ(0, region_unmap(&p->d));
	ASSERT_EQ(0, region_unregister(p->fd, p->d.handle));
	ASSERT_EQ(0, partner_call(&partner, OTHER_OPEN, 0));
	for (int n = 0; n < PARTY_PAGES; n++)
		EXPECT_LT(0, move(p, &p->s, n, self->page));
	EXPECT_EQ(0, partner_call(&partner, OTHER_CHECK, 0));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, partner_end(&partner));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
