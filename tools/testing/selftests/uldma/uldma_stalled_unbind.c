// SPDX-License-Identifier: GPL-2.0
/*
 * The driver is unbound while one thread waits for a device that has stopped
 * answering, and another one ends memory of the same address space.
 *
 * The runner stops the device's engine, starts this program, and unbinds the
 * driver once the program says so. The exit status is 0 if all calls end, 2 if
 * the first call ended before the driver was being unbound, which the runner
 * tries again, and 1 otherwise.
 */
#include <pthread.h>
#include <stdio.h>

#include "uldma_method.h"

#define TOO_LATE 2

/**
 * struct waiter - a thread that ends a context, and waits for the device
 * @thread: the thread
 * @fd: the open file with the context
 * @ret: what the call returned
 * @ended: true if it did
 */
struct waiter {
	pthread_t thread;
	int fd;
	int ret;
	bool ended;
};

static void *run_waiter(void *arg)
{
	struct waiter *w = arg;

	puts("ending the context");
	fflush(stdout);
	w->ret = context_destroy(w->fd);
	__atomic_store_n(&w->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Returns true once no call enters the driver any more; false if the thread ended first. */
static bool is_unbound(struct waiter *w, int fd)
{
	while (!__atomic_load_n(&w->ended, __ATOMIC_ACQUIRE)) {
		struct uldma_query q = { .size = sizeof(q) };

		if (ioctl(fd, ULDMA_IOC_QUERY, &q) && errno == ENODEV)
			return true;
		sched_yield();
	}
	return false;
}

int main(void)
{
	struct party p, other;
	struct job j;
	struct waiter w;
	bool in_time;
	int ret;

	ret = party_open(&p) ?: party_open(&other) ?:
	      party_context(&p, ULDMA_METHOD_EXTENDED_SHADOW, 0);
	if (ret) {
		fprintf(stderr, "preparing: %s\n", strerror(-ret));
		return 1;
	}
	/* The context does not end before its transfer. */
	j = party_job(&p, 0, 0, p.length);
	if (method_start(&p.c, &j) <= 0)
		return 1;
	w = (struct waiter){ .fd = p.fd };
	if (pthread_create(&w.thread, NULL, run_waiter, &w))
		return 1;
	in_time = is_unbound(&w, other.fd);
	ret = region_unregister(other.fd, other.s.handle);
	pthread_join(w.thread, NULL);
	if (!in_time)
		return TOO_LATE;
	if ((ret && ret != -ENODEV) || w.ret != -ETIMEDOUT) {
		fprintf(stderr, "the region returned %d, the context %d\n", ret,
			w.ret);
		return 1;
	}
	return 0;
}
