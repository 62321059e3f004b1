// SPDX-License-Identifier: GPL-2.0
/*
 * A process that has an open file while the system sleeps.
 *
 *	uldma_asleep		# prints "ready"
 *
 * It is told that the device of its file has ended: by poll(), by calls and by
 * mappings. Then it finds another device under the same name, which works.
 * Exits with 1 if anything is otherwise.
 */
#include <stdio.h>

#include "uldma_kinds.h"
#include "uldma_process.h"

#define LENGTH 65536
#define NAME 0x61736c65
/* In which the system falls asleep, in milliseconds. */
#define FALL_ASLEEP 60000

/**
 * struct held - what the process has of a device
 * @fd: its file
 * @r: registered memory, whose shadow is mapped
 * @c: a context, whose pages are mapped
 * @s: a segment, which is mapped
 */
struct held {
	int fd;
	struct region r;
	struct context c;
	struct segment s;
};

static int hold(struct held *h, void *buf)
{
	h->fd = uldma_open(0);
	if (h->fd < 0)
		return h->fd;
	return region_register(h->fd, buf, LENGTH, RW, &h->r) ?:
	       context_create(h->fd, &h->c) ?:
	       context_map(h->fd, &h->c) ?:
	       region_map(h->fd, &h->r, PROT_READ | PROT_WRITE) ?:
	       segment_create(h->fd, NAME, LENGTH, &h->s) ?:
	       segment_map(h->fd, &h->s) ?:
	       transfer(h->fd, BY_KERNEL, &h->r, LENGTH / 2, &h->r, 0,
			LENGTH / 2) ?:
	       transfer(h->fd, BY_SHADOW, &h->r, LENGTH / 2, &h->r, 0,
			LENGTH / 2);
}

/* Mappings end after poll() has told that the device has. */
static bool is_ended(void *addr, enum touch how)
{
	__u64 begun = now_ns();

	while (touch(addr, how) != SIGBUS) {
		if (now_ns() - begun > PATIENCE)
			return false;
		usleep(1000);
	}
	return true;
}

/* Returns what is not as it has to be once the device has ended, or NULL. */
static const char *check_ended(struct held *h)
{
	struct uldma_query q = { .size = sizeof(q) };
	struct uldma_event event;
	__u64 ticket;

	if (uldma_ioctl(h->fd, ULDMA_IOC_QUERY, &q) != -ENODEV)
		return "QUERY";
	if (kernel_start(h->fd, h->r.handle, LENGTH / 2, h->r.handle, 0, 8,
			 &ticket) != -ENODEV)
		return "DMA";
	if (read(h->fd, &event, sizeof(event)) != -1 || errno != ENODEV)
		return "read()";
	if (!is_ended((void *)shadow_of(&h->r, 0), STORE))
		return "the shadow of a region";
	if (!is_ended(h->s.map, LOAD))
		return "the mapping of a segment";
	return NULL;
}

int main(void)
{
	void *buf = buffer(LENGTH);
	struct held h, again;
	const char *wrong;
	__u64 begun;
	int ret;

	ret = buf ? hold(&h, buf) : -ENOMEM;
	if (ret) {
		printf("before: %s\n", strerror(-ret));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (!(poll_for(h.fd, FALL_ASLEEP) & POLLHUP)) {
		struct uldma_event event;

		if (read(h.fd, &event, sizeof(event)) < 0 && errno != ENODEV) {
			printf("not told\n");
			return 1;
		}
	}
	wrong = check_ended(&h);
	if (wrong) {
		printf("%s has not ended\n", wrong);
		return 1;
	}
	begun = now_ns();
	do
		ret = hold(&again, buf);
	while ((ret == -ENOENT || ret == -ENODEV || ret == -ENXIO) &&
	       now_ns() - begun < PATIENCE && !usleep(1000));
	if (ret) {
		printf("afterwards: %s\n", strerror(-ret));
		return 1;
	}
	wrong = check_ended(&h);
	if (wrong)
		printf("%s has not ended afterwards\n", wrong);
	return !!wrong;
}
