// SPDX-License-Identifier: GPL-2.0
/*
 * Repeated passing of arguments by five accesses: the codes of the right order,
 * the status of each wrong order, and what a disturbed process can do.
 */
#include "uldma_duel.h"
#include "uldma_harness.h"

#define OK1 ULDMA_REPEATED_OK1
#define OK2 ULDMA_REPEATED_OK2
#define OK3 ULDMA_REPEATED_OK3
#define FAIL ULDMA_REPEATED_FAIL

FIXTURE(repeated) {
	struct party p;
	char *model;
	uintptr_t d;
	uintptr_t s;
	__u64 word;
};

FIXTURE_SETUP(repeated)
{
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_REPEATED_5, 0));
	self->d = shadow_of(&self->p.d, 0);
	self->s = shadow_of(&self->p.s, 0);
	self->word = size_word(64, 0, 0, self->p.s.index, self->p.d.index);
}

FIXTURE_TEARDOWN(repeated)
{
	close(self->p.fd);
}

static __u64 started(struct _test_data_repeated *self)
{
	return context_stats(self->p.fd).out_initiations;
}

/* Whatever was passed, nothing is after this: two loads never fit. */
static void begin_anew(struct _test_data_repeated *self)
{
	uintptr_t elsewhere = shadow_of(&self->p.s, 4096);

	for (int i = 0; i < 5 && device_load(elsewhere) != FAIL; i++)
		;
}

TEST_F(repeated, codes)
{
	struct party *p = &self->p;
	__s64 got;

	for (int i = 1; i <= 2 * ULDMA_STATUS_RECORDS; i++) {
		device_store(self->d, self->word);
		ASSERT_EQ(OK1, device_load(self->s));
		device_store(self->d, self->word);
		ASSERT_EQ(OK2, device_load(self->s));
		got = device_load(self->d);
		ASSERT_EQ(OK3, repeated_code(got));
		ASSERT_EQ(i, repeated_ticket(got));
		ASSERT_EQ(0, status_of(&p->c, i));
	}
	memcpy(self->model, p->src, 64);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(3 * 2 * ULDMA_STATUS_RECORDS,
		  context_stats(p->fd).out_shadow_loads);
	EXPECT_EQ(2 * 2 * ULDMA_STATUS_RECORDS,
		  context_stats(p->fd).out_shadow_stores);
}

/*
 * Of all strings of five accesses to two addresses only these start. Bit 0 says
 * which address it is, and bit 1 that the access is a load.
 */
static bool is_right(const int *access)
{
	int d = access[0] & 1, s = access[1] & 1;

	return access[0] == d && access[1] == (2 | s) && access[2] == d &&
	       access[3] == (2 | s) && access[4] == (2 | d);
}

TEST_F(repeated, all_orders)
{
	struct party *p = &self->p;
	__u64 word = size_word(64, 0, 0, 0, 0);
	uintptr_t at[] = { self->d, self->s };
	int right = 0;

	for (int string = 0; string < 1 << 10; string++) {
		int access[5];
		__s64 got = 0;

		for (int i = 0; i < 5; i++)
			access[i] = string >> 2 * i & 3;
		for (int i = 0; i < 5; i++) {
			ASSERT_NE(OK3, repeated_code(got))
				TH_LOG("string %x after %d", string, i);
			got = 0;
			if (access[i] & 2)
				got = device_load(at[access[i] & 1]);
			else
				device_store(at[access[i] & 1], word);
		}
		ASSERT_EQ(is_right(access), repeated_code(got) == OK3)
			TH_LOG("string %x: %llx", string, got);
		right += is_right(access);
		ASSERT_EQ(0, status_wait(&p->c, right));
		begin_anew(self);
	}
	/* From each of the two to each. */
	EXPECT_EQ(4, right);
	EXPECT_EQ(4, started(self));
}

/* The third store has to be the first one again, the word included. */
TEST_F(repeated, sizes_differ)
{
	static const __u64 others[] = { 1, 63, 65, 128 };
	struct party *p = &self->p;

	for (int i = 0; i < ARRAY_SIZE(others); i++) {
		begin_anew(self);
		device_store(self->d, self->word);
		EXPECT_EQ(OK1, device_load(self->s));
		device_store(self->d, size_word(others[i], 0, 0, p->s.index,
						p->d.index));
		EXPECT_EQ(FAIL, device_load(self->s));
		EXPECT_EQ(FAIL, device_load(self->d));
	}
	EXPECT_EQ(0, started(self));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, party_works(p));
}

/* An access that does not fit is consumed, and does not start a new sequence. */
TEST_F(repeated, mismatch_is_consumed)
{
	uintptr_t other = shadow_of(&self->p.d, 4096);

	begin_anew(self);
	device_store(self->d, self->word);
	device_store(other, self->word);
	EXPECT_EQ(FAIL, device_load(self->s));
	device_store(self->d, self->word);
	EXPECT_EQ(OK1, device_load(self->s));
	device_store(other, self->word);
	EXPECT_EQ(FAIL, device_load(self->s));
	device_store(self->d, self->word);
	EXPECT_EQ(OK1, device_load(self->s));
	device_store(self->d, self->word);
	EXPECT_EQ(OK2, device_load(self->s));
	device_store(self->d, self->word);
	EXPECT_EQ(FAIL, device_load(self->s));
	EXPECT_EQ(0, started(self));
	EXPECT_EQ(0, party_works(&self->p));
}

/*
 * What a write buffer leaves of the five accesses: a load that overtakes the
 * stores, which are one. (uldma-interleave barriers)
 */
TEST_F(repeated, combined)
{
	for (int i = 0; i < ULDMA_STATUS_RECORDS; i++) {
		EXPECT_NE(OK3, repeated_code(device_load(self->s)));
		device_store(self->d, self->word);
	}
	EXPECT_EQ(0, started(self));
	EXPECT_EQ(0, memcmp(self->model, self->p.dst, self->p.length));
	begin_anew(self);
	EXPECT_EQ(0, party_works(&self->p));
}

TEST_F(repeated, readonly_source)
{
	struct party *p = &self->p;
	char *buf = buffer(page_size());
	struct region r;
	struct job j;

	ASSERT_NE(NULL, buf);
	pattern_fill(buf, page_size(), 5);
	ASSERT_EQ(0, mprotect(buf, page_size(), PROT_READ));
	ASSERT_EQ(0, region_register(p->fd, buf, page_size(),
				     ULDMA_ACCESS_READ, &r));
	ASSERT_EQ(0, region_map(p->fd, &r, PROT_READ));
	j = party_job(p, 0, 0, page_size());
	j.src = &r;
	EXPECT_EQ(0, method_transfer(&p->c, &j));
	EXPECT_EQ(-1, pattern_check(p->dst, page_size(), 5));
}

/* The last access is a load, so that writing alone is not enough. */
TEST_F(repeated, writeonly_destination)
{
	struct party *p = &self->p;
	char *buf = buffer(page_size());
	struct region r;
	struct job j;

	ASSERT_NE(NULL, buf);
	memset(buf, 0x11, page_size());
	ASSERT_EQ(0, region_register(p->fd, buf, page_size(),
				     ULDMA_ACCESS_WRITE, &r));
	ASSERT_EQ(0, region_map(p->fd, &r, PROT_WRITE));
	j = party_job(p, 0, 0, 64);
	j.dst = &r;
	EXPECT_EQ(-ULDMA_DMA_NO_RIGHT, method_start(&p->c, &j));
	EXPECT_EQ(0, started(self));
	for (int i = 0; i < 64; i++)
		ASSERT_EQ(0x11, buf[i]);
	/* By a method without that load it is. */
	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, ULDMA_METHOD_EXTENDED_SHADOW, 0));
	EXPECT_EQ(0, method_transfer(&p->c, &j));
	EXPECT_EQ(0, memcmp(buf, p->src, 64));
}

FIXTURE(together) {
	struct duel duel;
};

FIXTURE_SETUP(together)
{
	ASSERT_EQ(0, duel_start(&self->duel, false));
	ASSERT_EQ(0, duel_begin(&self->duel, ULDMA_METHOD_REPEATED_5));
}

FIXTURE_TEARDOWN(together)
{
	duel_end(&self->duel);
}

#define P1(_act, _page) { VICTIM, _act, _page }
#define P2(_act, _page) { ATTACKER, _act, _page }

/*
 * "User-level DMA", section 4.4: P1 wants A in B and P2 wants C in D, and
 * processes switch after steps 4 and 8. One switch costs two initiations.
 */
TEST_F(together, interleaving_c)
{
	static const struct step before[] = {
		P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A),
		P2(ST, D), P2(LD, C),
	};
	static const struct step after[] = {
		P2(ST, D), P1(LD, B), P1(ST, B), P1(LD, A),
		P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A), P1(LD, B),
	};
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;

	ASSERT_EQ(0, duel_play(duel, before, ARRAY_SIZE(before)));
	EXPECT_EQ(OK1, got[1]);
	EXPECT_EQ(OK2, got[3]);
	EXPECT_EQ(FAIL, got[5]);
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(0, partner_call(&duel->partner[ATTACKER],
					  DUEL_TRANSFER, 0));
	EXPECT_EQ(20, partner_call(&duel->partner[ATTACKER], DUEL_STATS, 0));
	EXPECT_EQ(B, duel_holds(duel, B));

	ASSERT_EQ(0, duel_play(duel, after, ARRAY_SIZE(after)));
	EXPECT_EQ(OK1, got[1]);
	EXPECT_EQ(FAIL, got[3]);
	EXPECT_EQ(OK1, got[5]);
	EXPECT_EQ(OK2, got[7]);
	EXPECT_EQ(OK3, repeated_code(got[8]));
	EXPECT_EQ(A, duel_holds(duel, B));
	EXPECT_EQ(C, duel_holds(duel, D));
	EXPECT_EQ(1, partner_call(&duel->partner[VICTIM], DUEL_STATS, 0));
}

/* Number of attempts before a process uses the kernel. */
#define TRIES 16

/* Lone accesses keep others from starting anything; the kernel still can. */
TEST_F(together, denial_of_service)
{
	static const struct step attempt[] = {
		P1(ST, B), P1(LD, A), P2(ST, D), P1(ST, B), P1(LD, A),
		P2(ST, E), P1(LD, B), P2(LD, C),
	};
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;
	struct party p;
	int tries = 0;

	do {
		ASSERT_EQ(0, duel_play(duel, attempt, ARRAY_SIZE(attempt)));
	} while (repeated_code(got[6]) != OK3 && ++tries < TRIES);
	EXPECT_EQ(TRIES, tries);
	EXPECT_EQ(0, duel_both(duel, DUEL_STATS, 0));
	EXPECT_EQ(B, duel_holds(duel, B));

	ASSERT_EQ(0, party_open(&p));
	ASSERT_EQ(0, party_context(&p, ULDMA_METHOD_REPEATED_5, 0));
	EXPECT_EQ(0, transfer(p.fd, BY_KERNEL, &p.d, 0, &p.s, 0, p.length));
	EXPECT_EQ(-1, pattern_check(p.dst, p.length, 1));
	/* Alone again, it works at once. */
	EXPECT_EQ(0, party_works(&p));
	close(p.fd);
}

FIXTURE(reader) {
	struct duel duel;
};

FIXTURE_SETUP(reader)
{
	ASSERT_EQ(0, duel_start_sharing(&self->duel, B, ULDMA_ACCESS_READ));
	ASSERT_EQ(0, duel_begin(&self->duel, ULDMA_METHOD_REPEATED_5));
}

FIXTURE_TEARDOWN(reader)
{
	duel_end(&self->duel);
}

/* "User-level DMA", footnote 8: a process that may load from B takes the last step. */
TEST_F(reader, takes_the_success_away)
{
	static const struct step steps[] = {
		P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A), P2(LD, B),
		P1(LD, B),
	};
	/* As a lock has it: the sharer comes before or after. */
	static const struct step in_turn[] = {
		P2(LD, B), P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A),
		P1(LD, B), P2(LD, B),
	};
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;

	ASSERT_EQ(0, duel_play(duel, steps, ARRAY_SIZE(steps)));
	EXPECT_EQ(OK3, repeated_code(got[4]));
	EXPECT_EQ(FAIL, got[5]);
	EXPECT_EQ(A, duel_holds(duel, B));

	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_REPEATED_5));
	ASSERT_EQ(0, duel_play(duel, in_turn, ARRAY_SIZE(in_turn)));
	EXPECT_EQ(OK3, repeated_code(got[5]));
	EXPECT_EQ(FAIL, got[6]);
	EXPECT_EQ(A, duel_holds(duel, B));
}

FIXTURE(writer) {
	struct duel duel;
};

FIXTURE_SETUP(writer)
{
	ASSERT_EQ(0, duel_start_sharing(&self->duel, B, RW));
	ASSERT_EQ(0, duel_begin(&self->duel, ULDMA_METHOD_REPEATED_5));
}

FIXTURE_TEARDOWN(writer)
{
	duel_end(&self->duel);
}

/* A process that may store to B has the victim believe in another transfer. */
TEST_F(writer, feigns_success)
{
	static const struct step steps[] = {
		P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A), P2(LD, C),
		P2(ST, B), P2(LD, C), P2(ST, B), P2(LD, C), P1(LD, B),
	};
	static const struct step in_turn[] = {
		P2(ST, B), P2(LD, C), P1(ST, B), P1(LD, A),
		P1(ST, B), P1(LD, A), P1(ST, B), P1(LD, A), P1(LD, B),
		P2(ST, B), P2(LD, C),
	};
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;

	ASSERT_EQ(0, duel_play(duel, steps, ARRAY_SIZE(steps)));
	EXPECT_EQ(OK3, repeated_code(got[9]));
	EXPECT_EQ(C, duel_holds(duel, B));

	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_REPEATED_5));
	ASSERT_EQ(0, duel_play(duel, in_turn, ARRAY_SIZE(in_turn)));
	EXPECT_NE(OK1, got[3]);
	EXPECT_EQ(OK3, repeated_code(got[8]));
	EXPECT_EQ(A, duel_holds(duel, B));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
