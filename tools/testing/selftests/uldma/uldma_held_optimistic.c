// SPDX-License-Identifier: GPL-2.0
/*
 * A page that nothing pins is taken away while a transfer to it is under way: the
 * device writes to it no more once the process has other memory there.
 *
 * The runner holds the device between looking the page up and writing to it, and
 * says when to go on: "uldma_held_optimistic FIFO" says what it has done, and reads
 * FIFO to wait.
 */
#include "uldma_optimistic.h"
#include "uldma_process.h"
#include "uldma_steps.h"

#define STAMP 0x5a

static int held(int fifo)
{
	size_t page = page_size();
	char *at = buffer(page), *source = buffer(page);
	struct region r, from;
	__u64 ticket;
	int fd, ret;

	fd = uldma_open(0);
	if (fd < 0)
		return fd;
	if (!at || !source)
		return -ENOMEM;
	memset(at, 1, page);
	memset(source, 2, page);
	ret = region_register(fd, source, page, RW, &from) ?:
	      region_register(fd, at, page, RW | ULDMA_REGISTER_OPTIMISTIC,
			      &r) ?:
	      copy_all(fd, &r, 0, &from, 0, page) ?:
	      go_on(fifo, "ready") ?:
	      kernel_start(fd, r.handle, 0, from.handle, 0, page, &ticket) ?:
	      go_on(fifo, "started");
	if (ret)
		return ret;
	if (madvise(at, page, MADV_DONTNEED))
		return -errno;
	/* The page that was freed last is the first to be used again. */
	memset(at, STAMP, page);
	ret = go_on(fifo, "returned");
	for (size_t i = 0; i < page && !ret; i++)
		if (at[i] != STAMP)
			ret = -EFAULT;
	return ret;
}

int main(int argc, char **argv)
{
	int fifo, ret;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FIFO\n", argv[0]);
		return 2;
	}
	fifo = steps_open(argv[1]);
	ret = fifo < 0 ? fifo : held(fifo);
	if (ret)
		fprintf(stderr, "%d: %s\n", ret, strerror(ret < 0 ? -ret : ret));
	return ret ? 1 : 0;
}
