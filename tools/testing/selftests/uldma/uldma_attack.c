// SPDX-License-Identifier: GPL-2.0
/*
 * The attacks on user-level initiation that the papers describe, access by
 * access, by two processes that share nothing: they succeed where the papers
 * say so, and fail with every method that is offered to everybody.
 */
#include "uldma_duel.h"
#include "uldma_harness.h"

/* Any context switch in between spoils an attack that races. */
#define RACES 200

#define V(_act, _page) { VICTIM, _act, _page }
#define M(_act, _page) { ATTACKER, _act, _page }

/* Arguments mix: C arrives in B. */
static const struct step mix[] = { V(ST, B), M(LD, C) };

/* And the other way round: A arrives in D. */
static const struct step leak[] = { V(ST, B), M(ST, D), V(LD, A) };

/* "User-level DMA", figure 5: C arrives in B. */
static const struct step figure_5[] = {
	V(LD, A), M(ST, E), M(LD, E), M(LD, C), V(ST, B), M(LD, C), V(LD, A)
};

/* The same method, the other way round: A arrives in C. */
static const struct step leak_by_3[] = {
	V(LD, A), V(ST, B), M(LD, C), V(LD, A), M(ST, C), V(LD, A)
};

/* Figure 6: A arrives in B, but the device reports a failure to the victim. */
static const struct step figure_6[] = {
	V(ST, B), V(LD, A), V(ST, B), M(LD, A), V(LD, A)
};

struct script {
	const char *name;
	const struct step *steps;
	int count;
	/* The attacker may read A. */
	bool share_source;
};

static const struct script scripts[] = {
	{ "mix", mix, ARRAY_SIZE(mix), false },
	{ "leak", leak, ARRAY_SIZE(leak), false },
	{ "figure 5", figure_5, ARRAY_SIZE(figure_5), false },
	{ "leak by 3", leak_by_3, ARRAY_SIZE(leak_by_3), false },
	{ "figure 6", figure_6, ARRAY_SIZE(figure_6), true },
};

#define NEEDS "needs a module with insecure_methods=1"

static bool offered(__u32 method)
{
	int fd = uldma_open(0);
	bool offered = fd >= 0 && method_offered(fd, method);

	close(fd);
	return offered;
}

FIXTURE(attack) {
	struct duel duel;
	/* The share of the source differs from script to script. */
	struct duel shared;
};

FIXTURE_SETUP(attack)
{
	ASSERT_EQ(0, duel_start(&self->duel, false));
	ASSERT_EQ(0, duel_start(&self->shared, true));
	/* On one CPU, as in the papers. */
	ASSERT_EQ(0, duel_pin(&self->duel, 0, 0));
	ASSERT_EQ(0, duel_pin(&self->shared, 0, 0));
}

FIXTURE_TEARDOWN(attack)
{
	duel_end(&self->duel);
	duel_end(&self->shared);
}

/* Arguments mix by any method whose registers all share. */
static void check_mixes(struct __test_metadata *_metadata, struct duel *duel,
			__u32 method)
{
	ASSERT_EQ(0, duel_begin(duel, method));
	ASSERT_EQ(0, duel_play(duel, mix, ARRAY_SIZE(mix)));
	EXPECT_LT(0, duel->board->results[1]);
	EXPECT_EQ(C, duel_holds(duel, B));

	ASSERT_EQ(0, duel_begin(duel, method));
	ASSERT_EQ(0, duel_play(duel, leak, ARRAY_SIZE(leak)));
	EXPECT_EQ(A, duel_holds(duel, D));
	EXPECT_EQ(B, duel_holds(duel, B));
}

TEST_F(attack, shrimp_2)
{
	if (!offered(ULDMA_METHOD_SHRIMP_2))
		SKIP(return, NEEDS);
	check_mixes(_metadata, &self->duel, ULDMA_METHOD_SHRIMP_2);
	ASSERT_EQ(0, duel_pin(&self->duel, 0, 1));
	check_mixes(_metadata, &self->duel, ULDMA_METHOD_SHRIMP_2);
}

/* The attacker does not restart what was preempted. */
TEST_F(attack, pal)
{
	if (!offered(ULDMA_METHOD_PAL))
		SKIP(return, NEEDS);
	check_mixes(_metadata, &self->duel, ULDMA_METHOD_PAL);
}

/* One register names the running context, but two contexts run. */
TEST_F(attack, flash_single)
{
	struct duel *duel = &self->duel;
	int mixed = 0;

	if (!offered(ULDMA_METHOD_FLASH_SINGLE))
		SKIP(return, NEEDS);
	ASSERT_EQ(0, duel_pin(duel, 0, 1));
	for (int i = 0; i < RACES && !mixed; i++) {
		ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_FLASH_SINGLE));
		ASSERT_EQ(0, duel_race(duel, mix, ARRAY_SIZE(mix)));
		mixed = duel_holds(duel, B) == C;
	}
	EXPECT_TRUE(mixed);
	mixed = 0;
	for (int i = 0; i < RACES && !mixed; i++) {
		ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_FLASH_SINGLE));
		ASSERT_EQ(0, duel_race(duel, leak, ARRAY_SIZE(leak)));
		mixed = duel_holds(duel, D) == A;
	}
	EXPECT_TRUE(mixed);
}

/* On one CPU it is what its authors say. */
TEST_F(attack, flash_single_on_one_cpu)
{
	struct duel *duel = &self->duel;

	if (!offered(ULDMA_METHOD_FLASH_SINGLE))
		SKIP(return, NEEDS);
	for (int i = 0; i < ARRAY_SIZE(scripts); i++) {
		ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_FLASH_SINGLE));
		if (scripts[i].share_source)
			continue;
		ASSERT_EQ(0, duel_play(duel, scripts[i].steps,
				       scripts[i].count));
		EXPECT_TRUE(duel_is_fair(duel))
			TH_LOG("%s", scripts[i].name);
	}
}

TEST_F(attack, repeated_3)
{
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;

	if (!offered(ULDMA_METHOD_REPEATED_3))
		SKIP(return, NEEDS);
	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_REPEATED_3));
	ASSERT_EQ(0, duel_play(duel, figure_5, ARRAY_SIZE(figure_5)));
	EXPECT_NE(ULDMA_REPEATED_OK3, repeated_code(got[2]));
	EXPECT_EQ(ULDMA_REPEATED_OK3, repeated_code(got[5]));
	EXPECT_EQ(C, duel_holds(duel, B));
	/* The device reports no such transfer to the victim. */
	EXPECT_NE(ULDMA_REPEATED_OK3, repeated_code(got[6]));

	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_REPEATED_3));
	ASSERT_EQ(0, duel_play(duel, leak_by_3, ARRAY_SIZE(leak_by_3)));
	EXPECT_EQ(A, duel_holds(duel, C));
	EXPECT_EQ(B, duel_holds(duel, B));
}

TEST_F(attack, repeated_4)
{
	struct duel *duel = &self->shared;
	const __s64 *got = duel->board->results;

	if (!offered(ULDMA_METHOD_REPEATED_4))
		SKIP(return, NEEDS);
	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_REPEATED_4));
	ASSERT_EQ(0, duel_play(duel, figure_6, ARRAY_SIZE(figure_6)));
	EXPECT_EQ(ULDMA_REPEATED_OK1, got[1]);
	EXPECT_EQ(ULDMA_REPEATED_OK3, repeated_code(got[3]));
	EXPECT_NE(ULDMA_REPEATED_OK3, repeated_code(got[4]));
	EXPECT_EQ(A, duel_holds(duel, B));
}

FIXTURE(defence) {
	struct duel duel;
	struct duel shared;
};

FIXTURE_VARIANT(defence) {
	enum uldma_method method;
	/* Runs the steps: one CPU, two, or two without a context switch. */
	int cpus;
	bool race;
};

FIXTURE_SETUP(defence)
{
	ASSERT_EQ(0, duel_start(&self->duel, false));
	ASSERT_EQ(0, duel_start(&self->shared, true));
	if (sysconf(_SC_NPROCESSORS_ONLN) < variant->cpus)
		SKIP(return, "needs %d CPUs", variant->cpus);
	ASSERT_EQ(0, duel_pin(&self->duel, 0, variant->cpus - 1));
	ASSERT_EQ(0, duel_pin(&self->shared, 0, variant->cpus - 1));
}

FIXTURE_TEARDOWN(defence)
{
	duel_end(&self->duel);
	duel_end(&self->shared);
}

FIXTURE_VARIANT_ADD(defence, extended_shadow_one_cpu) {
	ULDMA_METHOD_EXTENDED_SHADOW, 1, false };
FIXTURE_VARIANT_ADD(defence, extended_shadow_two_cpus) {
	ULDMA_METHOD_EXTENDED_SHADOW, 2, false };
FIXTURE_VARIANT_ADD(defence, extended_shadow_race) {
	ULDMA_METHOD_EXTENDED_SHADOW, 2, true };
FIXTURE_VARIANT_ADD(defence, extended_shadow_shared_one_cpu) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED, 1, false };
FIXTURE_VARIANT_ADD(defence, extended_shadow_shared_two_cpus) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED, 2, false };
FIXTURE_VARIANT_ADD(defence, extended_shadow_shared_race) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED, 2, true };
FIXTURE_VARIANT_ADD(defence, repeated_5_one_cpu) {
	ULDMA_METHOD_REPEATED_5, 1, false };
FIXTURE_VARIANT_ADD(defence, repeated_5_two_cpus) {
	ULDMA_METHOD_REPEATED_5, 2, false };
FIXTURE_VARIANT_ADD(defence, repeated_5_race) {
	ULDMA_METHOD_REPEATED_5, 2, true };
FIXTURE_VARIANT_ADD(defence, shrimp_2_abort_one_cpu) {
	ULDMA_METHOD_SHRIMP_2_ABORT, 1, false };
FIXTURE_VARIANT_ADD(defence, shrimp_2_abort_two_cpus) {
	ULDMA_METHOD_SHRIMP_2_ABORT, 2, false };
FIXTURE_VARIANT_ADD(defence, shrimp_2_abort_race) {
	ULDMA_METHOD_SHRIMP_2_ABORT, 2, true };
FIXTURE_VARIANT_ADD(defence, flash_one_cpu) {
	ULDMA_METHOD_FLASH, 1, false };
FIXTURE_VARIANT_ADD(defence, flash_two_cpus) {
	ULDMA_METHOD_FLASH, 2, false };
FIXTURE_VARIANT_ADD(defence, flash_race) {
	ULDMA_METHOD_FLASH, 2, true };

/*
 * The schedules above do to none of these what they do to the others. Methods
 * whose registers a store and a load of shadow pages do not reach are attacked
 * by uldma_key, uldma_queue_abuse, uldma_single_store and uldma_shrimp.
 */
TEST_F(defence, holds)
{
	const struct script *script;
	struct duel *duel;
	long ret;

	for (int i = 0; i < ARRAY_SIZE(scripts); i++) {
		script = &scripts[i];
		duel = script->share_source ? &self->shared : &self->duel;
		ASSERT_EQ(0, duel_begin(duel, variant->method));
		ret = variant->race ?
			      duel_race(duel, script->steps, script->count) :
			      duel_play(duel, script->steps, script->count);
		ASSERT_EQ(0, ret)
			TH_LOG("%s: %ld", script->name, ret);
		EXPECT_TRUE(duel_is_fair(duel))
			TH_LOG("%s", script->name);
		if (variant->method == ULDMA_METHOD_REPEATED_5)
			EXPECT_EQ(0, duel_both(duel, DUEL_STATS, 0));
		/* A process that wanted only its own memory gets it, undisturbed. */
		EXPECT_EQ(0, duel_both(duel, DUEL_TRANSFER, 0));
		EXPECT_EQ(A, duel_holds(duel, B));
		EXPECT_EQ(C, duel_holds(duel, D));
	}
}

/* The result that the victim gets is true. */
TEST_F(defence, truth)
{
	struct duel *duel = &self->duel;
	const __s64 *got = duel->board->results;
	bool moved;

	if (variant->method == ULDMA_METHOD_REPEATED_5)
		SKIP(return, "the load of A is not what starts a transfer");
	ASSERT_EQ(0, duel_begin(duel, variant->method));
	ASSERT_EQ(0, variant->race ?
			     duel_race(duel, leak, ARRAY_SIZE(leak)) :
			     duel_play(duel, leak, ARRAY_SIZE(leak)));
	moved = duel_holds(duel, B) == A;
	EXPECT_EQ(moved, got[2] > 0)
		TH_LOG("told %lld", got[2]);
	EXPECT_EQ(D, duel_holds(duel, D));
	/* Only with registers of its own the victim is sure to succeed. */
	if (variant->method == ULDMA_METHOD_EXTENDED_SHADOW)
		EXPECT_TRUE(moved);
	if (variant->method == ULDMA_METHOD_EXTENDED_SHADOW_SHARED)
		EXPECT_EQ(-ULDMA_DMA_MIXED, got[2]);
}

FIXTURE(by_name) {
	struct duel duel;
};

FIXTURE_SETUP(by_name)
{
	ASSERT_EQ(0, duel_start(&self->duel, false));
}

FIXTURE_TEARDOWN(by_name)
{
	duel_end(&self->duel);
}

/* One store names the victim's region as the source. */
TEST_F(by_name, single_store)
{
	static const struct step steal[] = {
		{ ATTACKER, NAME, D, A }, { ATTACKER, NAME, C, B },
		{ ATTACKER, NAME, D, C },
	};
	struct duel *duel = &self->duel;

	ASSERT_EQ(0, duel_begin(duel, ULDMA_METHOD_SINGLE_STORE));
	ASSERT_EQ(0, duel_play(duel, steal, ARRAY_SIZE(steal)));
	EXPECT_TRUE(duel_is_fair(duel));
	EXPECT_EQ(1, partner_call(&duel->partner[ATTACKER], DUEL_STATS, 0));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
