// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes that want nothing but their own transfers, or one that wants
 * harm: whatever the order of their accesses, nothing of one reaches the other,
 * and reported successes are true.
 */
#include "uldma_duel.h"
#include "uldma_harness.h"

/* The longest program, of both, in all orders. */
#define LONGEST 5
/* Accesses of the random schedule. */
#define RANDOM 1500

struct program {
	int count;
	enum act acts[LONGEST];
	/* True if the access names the source, false for the destination. */
	bool source[LONGEST];
};

static const struct program two = { 2, { ST, LD }, { false, true } };
static const struct program by_key = {
	4, { KEY, KEY, SIZE, GO }, { false, true, false, false }
};

static const struct program five = {
	5, { ST, LD, ST, LD, LD }, { false, true, false, true, false }
};

/* The accesses of a process: victim A to B, attacker C to D. */
static struct step program_step(const struct program *p, enum actor who, int i)
{
	enum page_name source = who == VICTIM ? A : C;

	return (struct step){
		.who = who,
		.act = p->acts[i],
		.page = p->source[i] ? source : source + 1,
	};
}

/* The order of which bit i says whose step i is; false if that is none. */
static bool interleave(const struct program *p, unsigned int order,
		       struct step *steps)
{
	int next[ACTORS] = { 0, 0 };

	if (__builtin_popcount(order) != p->count)
		return false;
	for (int i = 0; i < 2 * p->count; i++) {
		enum actor who = order >> i & 1;

		steps[i] = program_step(p, who, next[who]++);
	}
	return true;
}

FIXTURE(interleave) {
	struct duel duel;
};

FIXTURE_VARIANT(interleave) {
	enum uldma_method method;
	const struct program *program;
	/* True if both always succeed. */
	bool always;
};

FIXTURE_SETUP(interleave)
{
	ASSERT_EQ(0, duel_start(&self->duel, false));
}

FIXTURE_TEARDOWN(interleave)
{
	duel_end(&self->duel);
}

FIXTURE_VARIANT_ADD(interleave, extended_shadow) {
	ULDMA_METHOD_EXTENDED_SHADOW, &two, true };
FIXTURE_VARIANT_ADD(interleave, extended_shadow_shared) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED, &two, false };
FIXTURE_VARIANT_ADD(interleave, shrimp_2_abort) {
	ULDMA_METHOD_SHRIMP_2_ABORT, &two, false };
FIXTURE_VARIANT_ADD(interleave, flash) { ULDMA_METHOD_FLASH, &two, false };
FIXTURE_VARIANT_ADD(interleave, key) { ULDMA_METHOD_KEY, &by_key, true };
FIXTURE_VARIANT_ADD(interleave, repeated_5) {
	ULDMA_METHOD_REPEATED_5, &five, false };

/* Returns true if the last load of a process reported a started transfer. */
static bool told_success(const struct duel *duel, enum actor who,
			 __u32 method)
{
	const struct duel_board *board = duel->board;
	__s64 got = -ULDMA_DMA_NO_ARGS;

	for (int i = 0; i < board->count; i++)
		if (board->steps[i].who == who)
			got = board->results[i];
	if (method == ULDMA_METHOD_REPEATED_5)
		return got > 0 && repeated_code(got) == ULDMA_REPEATED_OK3;
	/* Of the key-based method it is what is left to move. */
	return method == ULDMA_METHOD_KEY ? got >= 0 : got > 0;
}

TEST_F(interleave, all_orders)
{
	const struct program *p = variant->program;
	struct step steps[2 * LONGEST];
	struct duel *duel = &self->duel;
	int orders = 0, successes = 0;

	for (unsigned int order = 0; order < 1U << 2 * p->count; order++) {
		bool moved[ACTORS];

		if (!interleave(p, order, steps))
			continue;
		ASSERT_EQ(0, duel_begin(duel, variant->method));
		ASSERT_EQ(0, duel_play(duel, steps, 2 * p->count));
		ASSERT_TRUE(duel_is_fair(duel))
			TH_LOG("order %x", order);
		moved[VICTIM] = duel_holds(duel, B) == A;
		moved[ATTACKER] = duel_holds(duel, D) == C;
		for (int who = 0; who < ACTORS; who++) {
			ASSERT_EQ(moved[who], told_success(duel, who,
							   variant->method))
				TH_LOG("order %x: process %d", order, who);
			successes += moved[who];
		}
		orders++;
	}
	ASSERT_EQ(p->count == 2 ? 6 : p->count == 4 ? 70 : 252, orders);
	if (variant->always)
		EXPECT_EQ(2 * orders, successes);
	/* One after the other always works, but for a switch in between. */
	if (variant->method != ULDMA_METHOD_SHRIMP_2_ABORT)
		EXPECT_LE(2, successes);
	/* Each hand-over is a switch, so let both try again until they succeed. */
	ASSERT_EQ(0, duel_begin(duel, variant->method));
	EXPECT_EQ(0, duel_both(duel, DUEL_TRANSFER, 0));
	EXPECT_EQ(A, duel_holds(duel, B));
	EXPECT_EQ(C, duel_holds(duel, D));
}

/* The next number of a sequence that is the same each time. */
static unsigned int dice(__u64 *state, unsigned int sides)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*state >> 33) % sides;
}

/*
 * The victim begins anew whenever it is not told what it should be; the other
 * one does what comes to its mind, with each of its pages.
 */
TEST_F(interleave, random_attacker)
{
	const struct program *p = variant->program;
	struct duel *duel = &self->duel;
	struct step steps[DUEL_STEPS];
	__u64 state = 1;

	for (int n = 0; n < RANDOM / DUEL_STEPS; n++) {
		int next = 0;

		for (int i = 0; i < DUEL_STEPS; i++) {
			if (dice(&state, 2)) {
				steps[i] = program_step(p, VICTIM, next);
				next = (next + 1) % p->count;
				continue;
			}
			steps[i] = (struct step){
				.who = ATTACKER,
				.act = p->acts[dice(&state, p->count)],
				.page = C + dice(&state, DUEL_PAGES - C),
			};
		}
		ASSERT_EQ(0, duel_begin(duel, variant->method));
		ASSERT_EQ(0, duel_play(duel, steps, DUEL_STEPS));
		ASSERT_TRUE(duel_is_fair(duel))
			TH_LOG("round %d", n);
	}
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
