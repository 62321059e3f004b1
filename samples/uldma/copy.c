// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The shortest C program that copies memory by user-level DMA.
 *
 * Build it with make in this directory.
 */
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/uldma.h>

#define LENGTH 0x100000

struct region {
	unsigned char *bytes;
	volatile __u64 *shadow;
	__u64 index;
};

static struct region make_region(int fd, __u32 access)
{
	struct uldma_region_register reg = {
		.size = sizeof(reg),
		.flags = access,
		.length = LENGTH,
	};
	/* A destination is named by a store, a source by a load. */
	int prot = access == ULDMA_ACCESS_WRITE ? PROT_WRITE : PROT_READ;
	struct region region;
	void *shadow;

	region.bytes = aligned_alloc(4096, LENGTH);
	if (!region.bytes)
		err(1, "memory");
	memset(region.bytes, access == ULDMA_ACCESS_READ ? 42 : 0, LENGTH);
	reg.addr = (uintptr_t)region.bytes;
	if (ioctl(fd, ULDMA_IOC_REGION_REGISTER, &reg))
		err(1, "register (ulimit -l?)");
	shadow = mmap(NULL, reg.out_shadow_length, prot, MAP_SHARED, fd, reg.out_shadow_offset);
	if (shadow == MAP_FAILED)
		err(1, "shadow pages");
	/* The memory starts on a page, so its first byte is the first shadow byte. */
	region.shadow = shadow;
	region.index = reg.out_index;
	return region;
}

int main(void)
{
	struct uldma_context_create context = { .size = sizeof(context) };
	int fd = open("/dev/uldma0", O_RDWR | O_CLOEXEC);
	const struct uldma_status_page *status;
	struct region from, to;
	__s64 ticket;

	if (fd < 0)
		err(1, "/dev/uldma0");
	if (ioctl(fd, ULDMA_IOC_CONTEXT_CREATE, &context))
		err(1, "context");
	status = mmap(NULL, context.out_page_length, PROT_READ, MAP_SHARED, fd,
		      context.out_status_offset);
	if (status == MAP_FAILED)
		err(1, "status page");
	from = make_region(fd, ULDMA_ACCESS_READ);
	to = make_region(fd, ULDMA_ACCESS_WRITE);

	/* Orders the writes to memory before the initiation (x86: a compiler barrier). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*to.shadow = (__u64)LENGTH | from.index << ULDMA_SIZE_WORD_SRC_REGION_SHIFT |
		     to.index << ULDMA_SIZE_WORD_DST_REGION_SHIFT;
	ticket = (__s64)*from.shadow;
	if (ticket <= 0)
		errx(1, "refused: uldma_dma_status %lld", (long long)-ticket);

	/* A real program polls for a moment and then sleeps in poll(). */
	while (__atomic_load_n(&status->completed, __ATOMIC_ACQUIRE) < (__u64)ticket)
		;
	if (status->records[ticket % ULDMA_STATUS_RECORDS].status != ULDMA_DMA_OK)
		errx(1, "failed");
	if (memcmp(from.bytes, to.bytes, LENGTH))
		errx(1, "the bytes differ");
	printf("copied %d bytes with one store and one load\n", LENGTH);
	return 0;
}
