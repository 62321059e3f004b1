// SPDX-License-Identifier: GPL-2.0
/*
 * A full queue refuses, loses nothing, and takes more when it has room. The
 * runner holds the device until the queue is full: "uldma_full FIFO kernel", or
 * "shadow", says what it has done, and reads FIFO to wait.
 */
#include "uldma_process.h"
#include "uldma_steps.h"

#define BYTES 4096
/* More than any queue has room for. */
#define TRIES 65536

/* Says which of the facts does not hold. */
static int fact(bool holds, const char *what)
{
	if (!holds)
		fprintf(stderr, "not so: %s\n", what);
	return holds ? 0 : -EPROTO;
}

#define FACT(_what) fact(_what, #_what)

static int full(int fifo, enum how how)
{
	int refusal = how == BY_KERNEL ? -EBUSY : ULDMA_DMA_QUEUE_FULL;
	char *src = buffer(BYTES), *dst = buffer(BYTES);
	__u64 ticket, last = 0;
	struct region s, d;
	struct context c;
	int fd, ret, count = 0, refused = 0;

	fd = uldma_open(0);
	if (fd < 0)
		return fd;
	if (!src || !dst)
		return -ENOMEM;
	pattern_fill(src, BYTES, 1);
	ret = context_create(fd, &c) ?: context_map(fd, &c) ?:
	      region_register(fd, src, BYTES, RW, &s) ?:
	      region_register(fd, dst, BYTES, RW, &d) ?:
	      region_map(fd, &s, PROT_READ | PROT_WRITE) ?:
	      region_map(fd, &d, PROT_READ | PROT_WRITE) ?:
	      go_on(fifo, "ready");
	if (ret)
		return ret;
	while (count < TRIES && !refused) {
		refused = transfer_start(fd, how, &d, 0, &s, 0, BYTES, &ticket);
		if (!refused) {
			last = ticket;
			count++;
		}
	}
	ret = FACT(refused == refusal) ?: FACT(count > 0) ?:
	      FACT(dst[0] == 0 && dst[BYTES - 1] == 0) ?: go_on(fifo, "full") ?:
	      transfer_wait(fd, how, last, BYTES) ?:
	      FACT(pattern_check(dst, BYTES, 1) == -1);
	if (!ret && how == BY_SHADOW) {
		struct uldma_context_stats stats = context_stats(fd);

		ret = FACT(stats.out_initiations == count) ?:
		      FACT(stats.out_completed == count) ?:
		      FACT(stats.out_refused == 1) ?:
		      FACT(stats.out_bytes == (__u64)count * BYTES) ?:
		      FACT(READ_ONCE(c.status->failed) == 0);
	}
	return ret ?: transfer_start(fd, how, &d, 0, &s, 0, BYTES, &ticket) ?:
	       transfer_wait(fd, how, ticket, BYTES);
}

int main(int argc, char **argv)
{
	int fifo, ret;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FIFO kernel|shadow\n", argv[0]);
		return 2;
	}
	fifo = steps_open(argv[1]);
	ret = fifo < 0 ? fifo :
			 full(fifo, strcmp(argv[2], "kernel") ? BY_SHADOW :
								BY_KERNEL);
	if (ret)
		fprintf(stderr, "%s\n", strerror(-ret));
	return ret ? 1 : 0;
}
