// SPDX-License-Identifier: GPL-2.0
/*
 * Accesses to shadow pages and context pages that no method is made of, by each
 * method: too narrow, too wide, across words. None starts anything, and none
 * disturbs the device.
 */
#include "uldma_harness.h"
#include "uldma_method.h"

FIXTURE(width) {
	struct party p;
	char *model;
};

FIXTURE_VARIANT(width) {
	enum uldma_method method;
};

FIXTURE_SETUP(width)
{
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	ASSERT_EQ(0, party_context(&self->p, variant->method, 0));
}

FIXTURE_TEARDOWN(width)
{
	close(self->p.fd);
}

FIXTURE_VARIANT_ADD(width, extended_shadow) { ULDMA_METHOD_EXTENDED_SHADOW };
FIXTURE_VARIANT_ADD(width, extended_shadow_shared) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED };
FIXTURE_VARIANT_ADD(width, key) { ULDMA_METHOD_KEY };
FIXTURE_VARIANT_ADD(width, single_store) { ULDMA_METHOD_SINGLE_STORE };
FIXTURE_VARIANT_ADD(width, queue) { ULDMA_METHOD_QUEUE };
FIXTURE_VARIANT_ADD(width, repeated_5) { ULDMA_METHOD_REPEATED_5 };
FIXTURE_VARIANT_ADD(width, shrimp_1) { ULDMA_METHOD_SHRIMP_1 };
FIXTURE_VARIANT_ADD(width, shrimp_2_abort) { ULDMA_METHOD_SHRIMP_2_ABORT };
FIXTURE_VARIANT_ADD(width, flash) { ULDMA_METHOD_FLASH };

/* All that was not asked for has not happened, and what is asked for does. */
static void check_harmless(struct __test_metadata *_metadata,
			   struct _test_data_width *self)
{
	struct party *p = &self->p;

	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, context_stats(p->fd).out_bytes);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(-1, pattern_check(p->src, p->length, 1));
	/* Stores that were refused may have taken tickets. */
	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, p->c.method, 0));
	EXPECT_EQ(0, party_works(p));
}

static void store(char *at, size_t bytes, __u64 value)
{
	if (bytes == 1)
		WRITE_ONCE(*(__u8 *)at, value);
	else if (bytes == 2)
		WRITE_ONCE(*(__u16 *)at, value);
	else if (bytes == 4)
		WRITE_ONCE(*(__u32 *)at, value);
	else
		WRITE_ONCE(*(__u64 *)at, value);
}

static void load(char *at, size_t bytes)
{
	if (bytes == 1)
		(void)READ_ONCE(*(__u8 *)at);
	else if (bytes == 2)
		(void)READ_ONCE(*(__u16 *)at);
	else if (bytes == 4)
		(void)READ_ONCE(*(__u32 *)at);
	else
		(void)READ_ONCE(*(__u64 *)at);
}

/* All accesses of all programs, with a width and an offset of its own each. */
static void play(struct party *p, size_t bytes, size_t at)
{
	__u64 value = p->c.key ?: size_word(64, 0, 0, 0, 0);
	char *const pages[] = { p->d.shadow, p->s.shadow, (char *)p->c.page };

	for (int round = 0; round < 2; round++)
		for (int i = 0; i < ARRAY_SIZE(pages); i++) {
			store(pages[i] + at, bytes, value);
			load(pages[(i + 1) % 3] + at, bytes);
			load(pages[i] + at, bytes);
		}
}

TEST_F(width, narrow)
{
	for (size_t bytes = 1; bytes <= 2; bytes++)
		for (size_t at = 0; at < 16; at += bytes)
			play(&self->p, bytes, at);
	check_harmless(_metadata, self);
}

/* Words of four bytes that are no lower halves. */
TEST_F(width, upper_halves)
{
	for (size_t at = 4; at < 64; at += 8)
		play(&self->p, 4, at);
	check_harmless(_metadata, self);
}

/* An access that crosses into the next word; a bus may cut it in two. */
TEST_F(width, across_words)
{
	struct party *p = &self->p;
	char *s = p->s.shadow, *d = p->d.shadow;

	/* Only loads, so that what is cut off passes no arguments. */
	for (size_t at = 1; at < 8; at++) {
		if (variant->method == ULDMA_METHOD_SHRIMP_1)
			break;
		load(s + at, 8);
		load(d + at, 8);
	}
	for (size_t at = 1; at < 8; at++) {
		/* Nothing: no length, no key, no source. */
		store(s + at, 8, 0);
		store(d + at, 8, 0);
		store((char *)p->c.page + at, 8, 0);
	}
	check_harmless(_metadata, self);
}

/* From one shadow page to the next, which is another page's. */
TEST_F(width, across_pages)
{
	struct party *p = &self->p;
	size_t page = page_size();

	for (size_t at = page - 7; at < page; at++) {
		store(p->d.shadow + at, 8, 0);
		if (variant->method != ULDMA_METHOD_SHRIMP_1)
			load(p->s.shadow + at, 8);
	}
	check_harmless(_metadata, self);
}

#ifdef __x86_64__
#include <cpuid.h>

static void store_16(char *at)
{
	asm volatile("pxor %%xmm0, %%xmm0; movdqu %%xmm0, %0"
		     : "=m"(*(char (*)[16])at) : : "xmm0");
}

static void store_32(char *at)
{
	asm volatile("vpxor %%ymm0, %%ymm0, %%ymm0; vmovdqu %%ymm0, %0"
		     : "=m"(*(char (*)[32])at) : : "xmm0");
}

static void store_64(char *at)
{
	asm volatile("vpxorq %%zmm0, %%zmm0, %%zmm0; vmovdqu64 %%zmm0, %0"
		     : "=m"(*(char (*)[64])at) : : "xmm0");
}

static void store_direct_64(char *at)
{
	static char zeros[64] __attribute__((aligned(64)));

	asm volatile("movdir64b %1, %0"
		     : : "r"(at), "m"(zeros) : "memory");
}

static bool has_movdir64b(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1U << 28;
}

/* An emulator may know no such access to a device: SIGILL, which is fine. */
static int wide_store(void (*how)(char *at), char *at)
{
	struct sigaction act = { .sa_handler = touch_failed };
	struct sigaction ill, bus;
	int signal;

	sigaction(SIGILL, &act, &ill);
	sigaction(SIGBUS, &act, &bus);
	signal = sigsetjmp(touch_return, 1);
	if (!signal)
		how(at);
	sigaction(SIGILL, &ill, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return signal;
}

/* Zeros, which name nothing: no length, no key and no source. */
static void check_wide(struct __test_metadata *_metadata,
		       struct _test_data_width *self, void (*how)(char *at))
{
	struct party *p = &self->p;
	char *const pages[] = { p->d.shadow, p->s.shadow, (char *)p->c.page };
	int signal;

	for (int i = 0; i < ARRAY_SIZE(pages); i++)
		for (size_t at = 0; at < 256; at += 64) {
			signal = wide_store(how, pages[i] + at);
			EXPECT_TRUE(!signal || signal == SIGILL)
				TH_LOG("signal %d", signal);
		}
	check_harmless(_metadata, self);
}

TEST_F(width, bytes_16)
{
	check_wide(_metadata, self, store_16);
}

TEST_F(width, bytes_32)
{
	if (!__builtin_cpu_supports("avx2"))
		SKIP(return, "this CPU has no AVX2");
	check_wide(_metadata, self, store_32);
}

TEST_F(width, bytes_64)
{
	if (!__builtin_cpu_supports("avx512f"))
		SKIP(return, "this CPU has no AVX-512");
	check_wide(_metadata, self, store_64);
}

TEST_F(width, direct_64)
{
	if (!has_movdir64b())
		SKIP(return, "this CPU has no MOVDIR64B");
	check_wide(_metadata, self, store_direct_64);
}
#endif

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
