// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic operations on the other node's memory, and transfers to and from it by
 * each initiation method.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_peer_client.h"
#include "uldma_queue.h"
#include "uldma_two_nodes.h"

#define PAGES 4
#define THREADS 4
#define ADDS 100
#define IMPOSSIBLE (~0ULL)

FIXTURE(atomic) {
	struct peer peer;
	int fd;
	struct region r;
	struct context c;
};

FIXTURE_SETUP(atomic)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_PAGES,
			       { 0, NAME, PAGES * page_size(), RW }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 1 }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
}

FIXTURE_TEARDOWN(atomic)
{
	close(self->peer.fd);
	close(self->fd);
}

static __u64 peer_word(struct peer *peer, int number)
{
	return peer_call(peer, PEER_WORD, { 0, number });
}

static int use_fetch_add(int fd, struct region *r, struct context *c)
{
	return context_create_as(fd, ULDMA_METHOD_FETCH_ADD, 0, c) ?:
	       region_map(fd, r, PROT_READ | PROT_WRITE);
}

static int use_queue(int fd, struct context *c)
{
	return context_create_as(fd, ULDMA_METHOD_QUEUE, 0, c) ?:
	       context_map(fd, c);
}

TEST_F(atomic, fetch_add_by_loads)
{
	ASSERT_EQ(0, use_fetch_add(self->fd, &self->r, &self->c));
	for (int number = 0; number < PAGES * 512; number += 171) {
		__u64 was = pattern_at(1, number);

		for (int i = 0; i < 3; i++)
			EXPECT_EQ(was + i,
				  device_load(shadow_of(&self->r, 8 * number)));
		EXPECT_EQ(was + 3, peer_word(&self->peer, number));
	}
	EXPECT_EQ(pattern_at(1, 1), peer_word(&self->peer, 1));
}

struct worker {
	pthread_t thread;
	const struct region *r;
};

static void *add(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < ADDS; i++)
		(void)device_load(shadow_of(w->r, 0));
	return NULL;
}

TEST_F(atomic, threads)
{
	__u64 was = peer_word(&self->peer, 0);
	struct worker workers[THREADS];

	ASSERT_EQ(0, use_fetch_add(self->fd, &self->r, &self->c));
	for (int i = 0; i < THREADS; i++) {
		workers[i].r = &self->r;
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, add,
					    &workers[i]));
	}
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(workers[i].thread, NULL));
	EXPECT_EQ(was + THREADS * ADDS, peer_word(&self->peer, 0));
}

TEST_F(atomic, queue)
{
	__u64 was;

	ASSERT_EQ(0, use_queue(self->fd, &self->c));
	EXPECT_EQ(0, queue_do(&self->c, compare_swap_of(&self->r, 4096, 1, 2),
			      &was));
	EXPECT_EQ(pattern_at(1, 512), was);
	EXPECT_EQ(was, peer_word(&self->peer, 512));
	EXPECT_EQ(0, queue_do(&self->c,
			      compare_swap_of(&self->r, 4096, was, 5), &was));
	EXPECT_EQ(pattern_at(1, 512), was);
	EXPECT_EQ(5, peer_word(&self->peer, 512));
	EXPECT_EQ(0, queue_do(&self->c, fetch_add_of(&self->r, 4096, 6), &was));
	EXPECT_EQ(5, was);
	EXPECT_EQ(11, peer_word(&self->peer, 512));
}

/* A lock and a counter, both at the peer, by compare and swap alone. */
struct contender {
	pthread_t thread;
	int failed;
};

static void *count_by_swaps(void *arg)
{
	struct contender *me = arg;
	__u64 guess = 0, was = 0;
	struct context c;
	struct region r;
	int fd = uldma_open(0), done = 0;

	me->failed = fd < 0 ? fd : region_import(fd, NAME, RW, &r) ?:
		     use_queue(fd, &c);
	while (!me->failed && done < ADDS) {
		me->failed = queue_do(&c, compare_swap_of(&r, 8, guess,
							  guess + 1), &was);
		done += was == guess;
		guess = was == guess ? guess + 1 : was;
	}
	close(fd);
	return NULL;
}

TEST_F(atomic, compare_swap_by_many)
{
	struct contender all[THREADS] = { };
	__u64 was = peer_word(&self->peer, 1);

	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&all[i].thread, NULL,
					    count_by_swaps, &all[i]));
	for (int i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(all[i].thread, NULL));
		EXPECT_EQ(0, all[i].failed);
	}
	EXPECT_EQ(was + THREADS * ADDS, peer_word(&self->peer, 1));
}

/* Operations without the right fail, here or at the peer. */
TEST_F(atomic, rights)
{
	struct region ro;

	ASSERT_EQ(0, region_import(self->fd, NAME, ULDMA_ACCESS_READ, &ro));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_FETCH_ADD, 0,
				       &self->c));
	ASSERT_EQ(0, region_map(self->fd, &ro, PROT_READ));
	EXPECT_EQ(IMPOSSIBLE, device_load(shadow_of(&ro, 0)));
	EXPECT_EQ(pattern_at(1, 0), peer_word(&self->peer, 0));
	ASSERT_EQ(0, context_destroy(self->fd));
	ASSERT_EQ(0, use_queue(self->fd, &self->c));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&self->c, fetch_add_of(&ro, 0, 1), NULL));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNEXPORT, { 0 }));
	EXPECT_EQ(ULDMA_DMA_REVOKED,
		  queue_do(&self->c, fetch_add_of(&self->r, 0, 1), NULL));
	EXPECT_EQ(pattern_at(1, 0), peer_word(&self->peer, 0));
}

FIXTURE(method) {
	struct peer peer;
	struct party p;
	/* The peer's pages take the place of one of the party's regions. */
	struct region r;
};

FIXTURE_VARIANT(method) {
	enum uldma_method method;
};

FIXTURE_SETUP(method)
{
	ASSERT_EQ(0, party_open(&self->p));
	if (!link_up(self->p.fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_PAGES,
			       { 0, NAME, self->p.length, RW }));
	ASSERT_EQ(0, region_import(self->p.fd, NAME, RW, &self->r));
	ASSERT_EQ(0, party_context(&self->p, variant->method, 0));
	ASSERT_EQ(0, region_map(self->p.fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(method)
{
	close(self->peer.fd);
	close(self->p.fd);
}

FIXTURE_VARIANT_ADD(method, extended_shadow) { ULDMA_METHOD_EXTENDED_SHADOW };
FIXTURE_VARIANT_ADD(method, extended_shadow_shared) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED };
FIXTURE_VARIANT_ADD(method, key) { ULDMA_METHOD_KEY };
FIXTURE_VARIANT_ADD(method, single_store) { ULDMA_METHOD_SINGLE_STORE };
FIXTURE_VARIANT_ADD(method, queue) { ULDMA_METHOD_QUEUE };
FIXTURE_VARIANT_ADD(method, repeated_5) { ULDMA_METHOD_REPEATED_5 };
FIXTURE_VARIANT_ADD(method, shrimp_1) { ULDMA_METHOD_SHRIMP_1 };
FIXTURE_VARIANT_ADD(method, shrimp_2_abort) { ULDMA_METHOD_SHRIMP_2_ABORT };
FIXTURE_VARIANT_ADD(method, flash) { ULDMA_METHOD_FLASH };

TEST_F(method, to_the_peer)
{
	bool by_page = variant->method == ULDMA_METHOD_SHRIMP_1;
	struct party *p = &self->p;
	struct job j = party_job(p, 0, 0, by_page ? page_size() : p->length);

	if (by_page)
		ASSERT_EQ(0, map_out(p->fd, p->s.handle, 0, self->r.handle, 0,
				     1));
	j.dst = &self->r;
	EXPECT_EQ(0, method_transfer(&p->c, &j));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ 0, 0, j.bytes, 1 }));
	EXPECT_EQ(-1, pattern_check(p->dst, p->length, 2));
}

TEST_F(method, from_the_peer)
{
	struct party *p = &self->p;
	struct job j = party_job(p, 0, 0, p->length);

	if (variant->method == ULDMA_METHOD_SHRIMP_1)
		SKIP(return, "the peer's pages cannot be mapped out");
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 9 }));
	j.src = &self->r;
	EXPECT_EQ(0, method_transfer(&p->c, &j));
	EXPECT_EQ(-1, pattern_check(p->dst, p->length, 9));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ 0, 0, p->length, 9 }));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, peer_serve, peer_quit);
}
