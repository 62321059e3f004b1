// SPDX-License-Identifier: GPL-2.0
/*
 * Key-based initiation: only a process that knows the key of a context passes
 * addresses to it; the device counts wrong keys and soon stops serving them.
 */
#include "uldma_harness.h"
#include "uldma_method.h"

/* Wrong keys after which nothing is taken any more. */
#define FORGIVEN 16
#define SECRET (~(__u64)ULDMA_KEY_CONTEXT_MASK)

FIXTURE(key) {
	struct party p;
	char *model;
};

FIXTURE_SETUP(key)
{
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_KEY, 0));
}

FIXTURE_TEARDOWN(key)
{
	close(self->p.fd);
}

static void pass_key(const struct region *r, size_t at, __u64 key)
{
	device_store(shadow_of(r, at) & ~7UL, key);
}

static void pass_size(const struct party *p, __u64 bytes)
{
	device_store((uintptr_t)p->c.page,
		     size_word(bytes, 0, 0, p->s.index, p->d.index));
}

static __s64 go(const struct party *p)
{
	return device_load((uintptr_t)p->c.page);
}

static __u64 bad_keys(const struct party *p)
{
	return context_stats(p->fd).out_bad_keys;
}

TEST_F(key, names_the_context)
{
	struct party *p = &self->p;
	__u64 keys[50];

	for (int i = 0; i < ARRAY_SIZE(keys); i++) {
		keys[i] = p->c.key;
		EXPECT_EQ(p->c.number, keys[i] & ULDMA_KEY_CONTEXT_MASK);
		EXPECT_NE(0, keys[i] & SECRET);
		for (int n = 0; n < i; n++)
			EXPECT_NE(keys[n] & SECRET, keys[i] & SECRET);
		ASSERT_EQ(0, party_no_context(p));
		ASSERT_EQ(0, party_context(p, ULDMA_METHOD_KEY, 0));
	}
}

/* No bit of it is always the same. */
TEST_F(key, every_secret_bit_changes)
{
	struct party *p = &self->p;
	__u64 ones = 0, zeros = 0;

	for (int i = 0; i < 64; i++) {
		ones |= p->c.key;
		zeros |= ~p->c.key;
		ASSERT_EQ(0, party_no_context(p));
		ASSERT_EQ(0, party_context(p, ULDMA_METHOD_KEY, 0));
	}
	EXPECT_EQ(SECRET, ones & SECRET);
	EXPECT_EQ(SECRET, zeros & SECRET);
}

/* A process without such a context uses the kernel's method. */
TEST_F(key, as_many_as_can_be_named)
{
	struct party *p = &self->p;
	struct context c[ULDMA_KEY_CONTEXT_MASK + 1];
	int fds[ULDMA_KEY_CONTEXT_MASK + 1];
	int count = 0, ret = 0;

	for (; !ret && count < ARRAY_SIZE(fds); count++) {
		fds[count] = uldma_open(0);
		ASSERT_LE(0, fds[count]);
		ret = context_create_as(fds[count], ULDMA_METHOD_KEY, 0,
					&c[count]);
		if (ret)
			break;
		EXPECT_EQ(c[count].number,
			  c[count].key & ULDMA_KEY_CONTEXT_MASK);
		EXPECT_NE(p->c.number, c[count].number);
		for (int n = 0; n < count; n++)
			EXPECT_NE(c[n].number, c[count].number);
	}
	EXPECT_EQ(-EBUSY, ret);
	EXPECT_LE(1, count);
	EXPECT_EQ(0, transfer(p->fd, BY_KERNEL, &p->d, 0, &p->s, 0, 64));
	EXPECT_EQ(0, memcmp(p->dst, p->src, 64));
	for (int i = 0; i <= count && i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	EXPECT_EQ(0, party_works(p));
}

/* A wrong key changes nothing of what was passed, and passes nothing. */
TEST_F(key, wrong_key)
{
	static const int bits[] = { 4, 5, 31, 32, 47, 62, 63 };
	struct party *p = &self->p;
	__u64 key = p->c.key, wrong;

	for (int i = 0; i < ARRAY_SIZE(bits); i++) {
		wrong = key ^ 1ULL << bits[i];
		pass_key(&p->d, 0, key);
		pass_key(&p->d, 4096, wrong);
		pass_key(&p->s, 0, key);
		pass_key(&p->s, 4096, wrong);
		pass_size(p, 64);
		ASSERT_LE(0, go(p));
		ASSERT_EQ(0, status_of(&p->c, ++p->c.ticket));
		memcpy(self->model, p->src, 64);
		EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
		EXPECT_EQ(2 * i + 2, bad_keys(p));
	}
	EXPECT_EQ(ARRAY_SIZE(bits), context_stats(p->fd).out_initiations);
}

TEST_F(key, wrong_key_instead)
{
	struct party *p = &self->p;
	__u64 key = p->c.key, wrong = key ^ 1ULL << 40;

	for (int i = 0; i < 3; i++) {
		pass_key(&p->d, 0, i == 0 ? key : wrong);
		pass_key(&p->s, 0, i == 1 ? key : wrong);
		pass_size(p, 64);
		EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	}
	EXPECT_EQ(4, bad_keys(p));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, party_works(p));
}

struct guesser {
	struct party p;
	__u32 victim;
};

enum guess_verb {
	GUESS_OPEN,
	GUESS,		/* so often */
	GUESS_TRY,	/* a transfer of its own */
	GUESS_COUNT,
	GUESS_ANEW,	/* takes another context */
};

static long guess(long verb, long arg, void *data)
{
	struct guesser *g = data;

	switch (verb) {
	case GUESS_OPEN:
		return party_open(&g->p) ?:
		       party_context(&g->p, ULDMA_METHOD_KEY, 0);
	case GUESS:
		for (long i = 0; i < arg; i++)
			pass_key(&g->p.d, 0,
				 pattern_at(9, i) << 4 | g->victim);
		return 0;
	case GUESS_TRY:
		return party_transfer(&g->p, 0, 0, 64);
	case GUESS_COUNT:
		return bad_keys(&g->p);
	case GUESS_ANEW:
		return party_no_context(&g->p) ?:
		       party_context(&g->p, ULDMA_METHOD_KEY, 0);
	}
	return -EINVAL;
}

/* Another process guesses this one's key: only the guesser notices. */
TEST_F(key, guessing)
{
	struct party *p = &self->p;
	struct guesser g = { .victim = p->c.number };
	struct partner other;

	ASSERT_EQ(0, partner_start(&other, guess, &g));
	ASSERT_EQ(0, partner_call(&other, GUESS_OPEN, 0));
	EXPECT_EQ(0, partner_call(&other, GUESS_TRY, 0));

	/* In the middle of what the victim does. */
	pass_key(&p->d, 0, p->c.key);
	ASSERT_EQ(0, partner_call(&other, GUESS, FORGIVEN - 1));
	EXPECT_EQ(FORGIVEN - 1, partner_call(&other, GUESS_COUNT, 0));
	EXPECT_EQ(0, partner_call(&other, GUESS_TRY, 0));
	ASSERT_EQ(0, partner_call(&other, GUESS, 1));
	EXPECT_EQ(ULDMA_DMA_BAD_KEY, partner_call(&other, GUESS_TRY, 0));
	ASSERT_EQ(0, partner_call(&other, GUESS, 1000));
	EXPECT_EQ(ULDMA_DMA_BAD_KEY, partner_call(&other, GUESS_TRY, 0));
	EXPECT_LE(FORGIVEN, partner_call(&other, GUESS_COUNT, 0));

	pass_key(&p->s, 0, p->c.key);
	pass_size(p, 64);
	EXPECT_LE(0, go(p));
	EXPECT_EQ(0, status_of(&p->c, ++p->c.ticket));
	memcpy(self->model, p->src, 64);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, bad_keys(p));

	ASSERT_EQ(0, partner_call(&other, GUESS_ANEW, 0));
	EXPECT_EQ(0, partner_call(&other, GUESS_COUNT, 0));
	EXPECT_EQ(0, partner_call(&other, GUESS_TRY, 0));
	EXPECT_EQ(0, partner_end(&other));
}

/* The key of the past, of the same context. */
TEST_F(key, stale_key)
{
	struct party *p = &self->p;
	__u64 stale = p->c.key;
	__u32 number = p->c.number;

	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, ULDMA_METHOD_KEY, 0));
	ASSERT_EQ(number, p->c.number);
	pass_key(&p->d, 0, stale);
	pass_key(&p->s, 0, stale);
	pass_size(p, 64);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	EXPECT_EQ(2, bad_keys(p));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, party_works(p));
}

/* The context belongs to another process now; its previous owner cannot use it. */
TEST_F(key, stale_key_of_another_owner)
{
	struct party *p = &self->p;
	struct guesser g = { };
	struct party rest = *p;
	struct partner other;
	__u64 stale = p->c.key;

	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, partner_start(&other, guess, &g));
	ASSERT_EQ(0, partner_call(&other, GUESS_OPEN, 0));
	ASSERT_EQ(0, party_context(&rest, ULDMA_METHOD_KEY, 0));
	ASSERT_NE(stale & ULDMA_KEY_CONTEXT_MASK, rest.c.number);
	pass_key(&rest.d, 0, stale);
	pass_key(&rest.s, 0, stale);
	EXPECT_EQ(2, bad_keys(&rest));
	EXPECT_EQ(0, partner_call(&other, GUESS_COUNT, 0));
	EXPECT_EQ(0, partner_call(&other, GUESS_TRY, 0));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, partner_end(&other));
}

/* No mapping of the process contains the key, or a part of it. */
TEST_F(key, is_in_no_mapping)
{
	struct party *p = &self->p;
	const volatile __u64 *pages[] = {
		p->c.page, (__u64 *)p->c.status, (__u64 *)p->s.shadow,
		(__u64 *)p->d.shadow,
	};
	size_t words = page_size() / sizeof(__u64);
	__u64 got;

	EXPECT_EQ(0, party_works(p));
	pass_key(&p->d, 0, p->c.key);
	for (int i = 0; i < ARRAY_SIZE(pages); i++)
		for (size_t n = 0; n < words; n++) {
			got = pages[i][n];
			ASSERT_NE(p->c.key, got);
			ASSERT_NE(p->c.key >> 4, got);
			/* Small numbers and negated ones are equal by chance. */
			ASSERT_FALSE(got >> 32 && got >> 32 == p->c.key >> 32 &&
				     got >> 32 != ~0U);
		}
}

/* A store anywhere in the page passes a size, the last one counts. */
TEST_F(key, context_page_takes_sizes_only)
{
	size_t words = page_size() / sizeof(__u64);
	struct party *p = &self->p;

	pass_key(&p->d, 64, p->c.key);
	pass_key(&p->s, 128, p->c.key);
	for (size_t i = 0; i < words; i++)
		device_store((uintptr_t)&p->c.page[i], p->c.key);
	for (size_t i = 0; i < words; i++)
		device_store((uintptr_t)&p->c.page[i],
			     size_word(8 * (i % 64 + 1), 0, 0, p->s.index,
				       p->d.index));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(2 * words, context_stats(p->fd).out_page_stores);
	ASSERT_LE(0, go(p));
	ASSERT_EQ(0, status_of(&p->c, ++p->c.ticket));
	memcpy(self->model + 64, p->src + 128, 512);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(1, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, bad_keys(p));
}

/* The same, with stores of other widths and places. */
TEST_F(key, context_page_narrow_stores)
{
	struct party *p = &self->p;
	char *page = (char *)p->c.page;

	pass_key(&p->d, 0, p->c.key);
	pass_key(&p->s, 0, p->c.key);
	for (size_t i = 0; i < 64; i++) {
		WRITE_ONCE(*(__u8 *)(page + i), 0xff);
		WRITE_ONCE(*(__u16 *)(page + 2 * i), 0xffff);
		WRITE_ONCE(*(__u32 *)(page + 4 * i), ~0U);
	}
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	pass_size(p, 64);
	ASSERT_LE(0, go(p));
	ASSERT_EQ(0, status_of(&p->c, ++p->c.ticket));
	memcpy(self->model, p->src, 64);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* Only the load at offset zero starts. */
TEST_F(key, other_loads_start_nothing)
{
	size_t words = page_size() / sizeof(__u64);
	struct party *p = &self->p;

	pass_key(&p->d, 0, p->c.key);
	pass_key(&p->s, 0, p->c.key);
	pass_size(p, 64);
	for (size_t i = 1; i < words; i++)
		(void)device_load((uintptr_t)&p->c.page[i]);
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_LE(0, go(p));
	EXPECT_EQ(1, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, status_of(&p->c, ++p->c.ticket));
}

/* The source has to be writable, as its address is passed by a store. */
TEST_F(key, readonly_source)
{
	struct party *p = &self->p;
	struct region r;

	ASSERT_EQ(0, region_register(p->fd, p->src, page_size(),
				     ULDMA_ACCESS_READ, &r));
	EXPECT_EQ(-EACCES, region_map(p->fd, &r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, region_map(p->fd, &r, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch(r.shadow, STORE));
	EXPECT_EQ(0, context_stats(p->fd).out_shadow_stores);
	/* Another method is for that. */
	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, ULDMA_METHOD_EXTENDED_SHADOW, 0));
	p->s = r;
	EXPECT_EQ(0, party_transfer(p, 0, 0, 64));
}

/* Incomplete arguments are refused, and the others are cleared. */
TEST_F(key, half_passed)
{
	struct party *p = &self->p;

	pass_key(&p->d, 0, p->c.key);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	pass_key(&p->s, 0, p->c.key);
	pass_size(p, 64);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	pass_size(p, 64);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	pass_key(&p->d, 0, p->c.key);
	pass_key(&p->s, 0, p->c.key);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	/* A start takes all away. */
	EXPECT_EQ(0, party_transfer(p, 0, 0, 64));
	pass_size(p, 64);
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
	memcpy(self->model, p->src, 64);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(1, context_stats(p->fd).out_initiations);
	EXPECT_EQ(5, context_stats(p->fd).out_refused);
}

static int half_pass(void *arg)
{
	bool kill_me = *(bool *)arg;
	struct party p;
	int ret = party_open(&p) ?: party_context(&p, ULDMA_METHOD_KEY, 0);

	if (ret)
		return ret;
	pass_key(&p.d, 0, p.c.key);
	pass_key(&p.s, 0, p.c.key);
	pass_size(&p, 64);
	if (kill_me)
		raise(SIGKILL);
	return 0;
}

/* The next owner of the context finds no trace of it. */
TEST_F(key, half_passed_at_the_end)
{
	struct party *p = &self->p;
	bool kill_me = false;

	for (int i = 0; i < 2; i++) {
		kill_me = i;
		ASSERT_EQ(0, party_no_context(p));
		ASSERT_EQ(kill_me ? SIGKILL : 0, in_child(half_pass, &kill_me));
		ASSERT_EQ(0, party_context(p, ULDMA_METHOD_KEY, 0));
		pass_size(p, 64);
		EXPECT_EQ(-ULDMA_DMA_NO_ARGS, go(p));
		EXPECT_EQ(0, context_stats(p->fd).out_initiations);
		EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	}
}

/* A child knows the key, but its pages are not the context's to name. */
static long use_inherited_key(long verb, long arg, void *parent)
{
	static struct party own;
	int ret;

	if (verb)
		return pattern_check(own.src, own.length, 1) < 0 ? 0 : -EILSEQ;
	ret = party_open(&own) ?: party_context(&own, ULDMA_METHOD_KEY, 0);
	if (!ret)
		pass_key(&own.s, 0, ((struct party *)parent)->c.key);
	return ret;
}

TEST_F(key, inherited_key)
{
	struct party *p = &self->p;
	struct partner child;

	ASSERT_EQ(0, partner_start(&child, use_inherited_key, p));
	pass_key(&p->d, 0, p->c.key);
	ASSERT_EQ(0, partner_call(&child, 0, 0));
	pass_size(p, 64);
	EXPECT_EQ(-ULDMA_DMA_NOT_OWNER, go(p));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	/* Nor does the child's page become a destination. */
	ASSERT_EQ(0, partner_call(&child, 1, 0));
	EXPECT_EQ(0, party_works(p));
	EXPECT_EQ(0, partner_end(&child));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
