// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The shortest C program that lets the device access memory which nothing pins.
 */
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/uldma.h>

#define LENGTH 0x100000
#define HALF (LENGTH / 2)
#define SECOND_US 1000000

static __u32 make_region(int fd, void *memory, __u32 flags, __u32 limit_us)
{
	struct uldma_region_register reg = {
		.size = sizeof(reg),
		.flags = flags,
		.addr = (uintptr_t)memory,
		.length = LENGTH,
		.limit_us = limit_us,
	};

	if (ioctl(fd, ULDMA_IOC_REGION_REGISTER, &reg))
		err(1, "register (ulimit -l?)");
	return reg.out_handle;
}

/* Copies once, and returns why that has ended. */
static __u32 copy(int fd, __u32 to, __u32 from)
{
	struct uldma_dma dma = {
		.size = sizeof(dma),
		.src = from,
		.dst = to,
		.length = LENGTH,
	};
	struct uldma_dma_wait wait = {
		.size = sizeof(wait),
		.timeout_ns = 1000 * SECOND_US,
	};

	if (ioctl(fd, ULDMA_IOC_DMA, &dma))
		err(1, "dma");
	wait.ticket = dma.out_ticket;
	if (ioctl(fd, ULDMA_IOC_DMA_WAIT, &wait))
		err(1, "wait");
	printf("%llu of %d bytes%s\n", (unsigned long long)wait.out_bytes, LENGTH,
	       wait.out_status == ULDMA_DMA_NOT_RESIDENT ?
		       ", then a page that is not in memory" : "");
	return wait.out_status;
}

int main(void)
{
	int fd = open("/dev/uldma0", O_RDWR | O_CLOEXEC);
	char *memory, *pinned = aligned_alloc(4096, LENGTH);
	__u32 from, to;

	if (fd < 0)
		err(1, "/dev/uldma0");
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || !pinned)
		err(1, "memory");
	memset(memory, 42, HALF);
	/* What is not mapped may come within a second. What was never touched does not. */
	from = make_region(fd, memory, ULDMA_ACCESS_READ | ULDMA_REGISTER_OPTIMISTIC |
				       ULDMA_REGISTER_LOOK_UP, SECOND_US);
	to = make_region(fd, pinned, ULDMA_ACCESS_WRITE, 0);

	if (copy(fd, to, from) != ULDMA_DMA_NOT_RESIDENT)
		errx(1, "memory that was never touched is there");
	/* A peer would ask the owner to do this. */
	memset(memory + HALF, 43, HALF);
	if (copy(fd, to, from) != ULDMA_DMA_OK)
		errx(1, "failed");
	if (memcmp(memory, pinned, LENGTH))
		errx(1, "the bytes differ");
	return 0;
}
