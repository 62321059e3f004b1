// SPDX-License-Identifier: GPL-2.0
/*
 * The interface as a program of 32 bits has it on a kernel of 64: structures
 * have the same fields at the same places, pointers and mmap offsets fit, and
 * a transfer can be started with and without the kernel. Built with nolibc, as
 * machines that build tests need not have a C library of 32 bits.
 */
#include "nolibc.h"

#include "kselftest.h"
#include "uldma_layout.h"

#define PAGE 4096
#define LENGTH (3 * PAGE + 77)
#define SECOND 1000000000ULL
#define RW (ULDMA_ACCESS_READ | ULDMA_ACCESS_WRITE)

static_assert(sizeof(void *) == 4, "a program of 32 bits");

/**
 * struct memory - registered memory
 * @start: its first byte
 * @reg: what registering returned
 * @shadow: its shadow pages, where the device has them
 */
struct memory {
	unsigned char *start;
	struct uldma_region_register reg;
	volatile __u64 *shadow;
};

/* Zero or a negated errno. */
static int call(int fd, unsigned long cmd, void *arg)
{
	return _syscall(__NR_ioctl, fd, cmd, arg);
}

/* The C library's off_t may have 32 bits; the kernel counts in pages. */
static void *map(int fd, __u64 offset, size_t length, int prot)
{
	long ret = _syscall(__NR_mmap2, NULL, length, prot, MAP_SHARED, fd,
			    (unsigned long)(offset / PAGE));

	return (unsigned long)ret >= -4095UL ? NULL : (void *)ret;
}

/* One access of 64 bits, which only vector registers can make here. */
static void store64(volatile __u64 *at, __u64 value)
{
	asm volatile("movq %1, %%xmm0\n\tmovq %%xmm0, %0\n\tmfence"
		     : "=m"(*at) : "m"(value) : "xmm0", "memory");
}

static __u64 load64(const volatile __u64 *at)
{
	__u64 value;

	asm volatile("movq %1, %%xmm0\n\tmovq %%xmm0, %0"
		     : "=m"(value) : "m"(*at) : "xmm0", "memory");
	return value;
}

static bool is_registered(int fd, struct memory *m, __u32 access)
{
	m->start = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->start == MAP_FAILED)
		return false;
	m->reg = (struct uldma_region_register){
		.size = sizeof(m->reg),
		.flags = access,
		.addr = (uintptr_t)m->start,
		.length = LENGTH,
	};
	return !call(fd, ULDMA_IOC_REGION_REGISTER, &m->reg);
}

static void fill(unsigned char *at, int seed)
{
	for (int i = 0; i < LENGTH; i++)
		at[i] = i * 7 + seed;
}

static bool has_arrived(const struct memory *dst, int seed)
{
	for (int i = 0; i < LENGTH; i++)
		if (dst->start[i] != (unsigned char)(i * 7 + seed))
			return false;
	return true;
}

static int wait_for(int fd, __u64 ticket, __u32 flags,
		    struct uldma_dma_wait *wait)
{
	*wait = (struct uldma_dma_wait){
		.size = sizeof(*wait),
		.flags = flags,
		.ticket = ticket,
		.timeout_ns = 20 * SECOND,
	};
	return call(fd, ULDMA_IOC_DMA_WAIT, wait);
}

static bool moves_by_kernel(int fd, struct memory *dst, struct memory *src)
{
	struct uldma_dma_wait wait;
	struct uldma_dma dma = {
		.size = sizeof(dma),
		.src = src->reg.out_handle,
		.dst = dst->reg.out_handle,
		.length = LENGTH,
	};

	fill(src->start, 1);
	return !call(fd, ULDMA_IOC_DMA, &dma) &&
	       !wait_for(fd, dma.out_ticket, 0, &wait) &&
	       wait.out_status == ULDMA_DMA_OK && wait.out_bytes == LENGTH &&
	       has_arrived(dst, 1);
}

static bool is_mapped(int fd, struct memory *m)
{
	m->shadow = map(fd, m->reg.out_shadow_offset, m->reg.out_shadow_length,
			PROT_READ | PROT_WRITE);
	return m->shadow;
}

/* Extended shadow addressing: a store, a barrier, a load. */
static bool moves_by_itself(int fd, struct memory *dst, struct memory *src)
{
	struct uldma_status_page *status;
	struct uldma_context_create create = {
		.size = sizeof(create),
		.method = ULDMA_METHOD_EXTENDED_SHADOW,
	};
	struct uldma_dma_wait wait;
	__u64 word, ticket;

	if (call(fd, ULDMA_IOC_CONTEXT_CREATE, &create))
		return false;
	status = map(fd, create.out_status_offset, create.out_page_length,
		     PROT_READ);
	if (!status || !is_mapped(fd, dst) || !is_mapped(fd, src))
		return false;
	fill(src->start, 2);
	word = LENGTH;
	word |= (__u64)src->reg.out_index << ULDMA_SIZE_WORD_SRC_REGION_SHIFT;
	word |= (__u64)dst->reg.out_index << ULDMA_SIZE_WORD_DST_REGION_SHIFT;
	store64(dst->shadow, word);
	ticket = load64(src->shadow);
	return (__s64)ticket > 0 &&
	       !wait_for(fd, ticket, ULDMA_WAIT_CONTEXT, &wait) &&
	       wait.out_status == ULDMA_DMA_OK && has_arrived(dst, 2) &&
	       load64(&status->completed) >= ticket && !load64(&status->failed);
}

int main(void)
{
	const char *node = getenv("ULDMA_DEVICE") ?: "/dev/uldma0";
	struct uldma_query query = { .size = sizeof(query) };
	struct memory src, dst;
	int fd;

	ksft_print_header();
	fd = open(node, O_RDWR);
	if (fd < 0)
		ksft_exit_skip("no device node %s\n", node);
	ksft_set_plan(5);
	ksft_test_result(!call(fd, ULDMA_IOC_QUERY, &query) &&
			 query.out_abi_version == ULDMA_ABI_VERSION &&
			 query.out_user_max_requests, "query\n");
	ksft_test_result(call(fd, ULDMA_IOC_QUERY, NULL) == -EFAULT,
			 "no_structure\n");
	ksft_test_result(is_registered(fd, &src, RW) &&
			 is_registered(fd, &dst, RW), "register\n");
	if (query.out_backend != ULDMA_BACKEND_ADAPTER) {
		ksft_test_result_skip("dma: the device has no engine\n");
		ksft_test_result_skip("shadow: the device has no engine\n");
	} else {
		ksft_test_result(moves_by_kernel(fd, &dst, &src), "dma\n");
		ksft_test_result(moves_by_itself(fd, &dst, &src), "shadow\n");
	}
	ksft_finished();
}
