// SPDX-License-Identifier: GPL-2.0
/*
 * A page of exchangeable memory that the driver frees, while the device still
 * has its bus address: no call makes the device take a new transfer to it.
 *
 * The runner holds the device between looking a page up and writing to it, so
 * that the call that ends a send waits. It says when to go on: the program
 * "uldma_held_exchange FIFO" prints what it has done, and reads FIFO to wait.
 * The exit status is 2 if the call ended before the transfers were tried, which
 * the runner does again.
 */
#include <pthread.h>

#include "uldma_exchange.h"
#include "uldma_method.h"
#include "uldma_steps.h"

#define TOO_LATE 2

/**
 * struct sender - memory the only page of which is sent
 * @fd: its open file
 * @m: the memory
 * @s: the source of transfers to it
 * @c: a context
 * @ret: what the end of the send returned
 * @ended: true if it has
 */
struct sender {
	int fd;
	struct memory m;
	struct region s;
	struct context c;
	int ret;
	bool ended;
};

static int sender_open(struct sender *s)
{
	size_t page = page_size();
	char *from = buffer(page);

	s->fd = uldma_open(0);
	if (s->fd < 0 || !from)
		return s->fd < 0 ? s->fd : -ENOMEM;
	return memory_create(s->fd, page, &s->m) ?: memory_map(s->fd, &s->m) ?:
	       region_register(s->fd, from, page, RW, &s->s) ?:
	       context_create_as(s->fd, ULDMA_METHOD_EXTENDED_SHADOW, 0,
				 &s->c) ?:
	       context_map(s->fd, &s->c) ?:
	       region_map(s->fd, &s->s, PROT_READ | PROT_WRITE) ?:
	       region_map(s->fd, &s->m.r, PROT_READ | PROT_WRITE);
}

/* Starts a transfer to the memory: true if the device took it. */
static bool is_taken(struct sender *s)
{
	struct job j = { .dst = &s->m.r, .src = &s->s, .bytes = 64 };

	return method_start(&s->c, &j) > 0;
}

static void *end_send(void *arg)
{
	struct sender *s = arg;

	s->ret = memory_release(s->fd, &s->m, 0, page_size());
	__atomic_store_n(&s->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* 0, TOO_LATE, or a negated errno. */
static int try(struct sender *s)
{
	bool before = is_taken(s);
	int ret = map_out(s->fd, s->m.r.handle, 0, 0, 0, 1);
	bool after = is_taken(s);

	if (__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE))
		return TOO_LATE;
	if (before)
		fprintf(stderr, "the device uses the page that is freed\n");
	if (after && !before)
		fprintf(stderr, "mapping it out publishes the page again\n");
	return ret ?: before || after ? -EFAULT : 0;
}

static int held(int fifo)
{
	size_t page = page_size();
	struct sender s = {};
	pthread_t thread;
	struct party p;
	struct job j;
	int ret;

	ret = party_open(&p) ?:
	      party_context(&p, ULDMA_METHOD_EXTENDED_SHADOW, 0) ?:
	      sender_open(&s);
	if (ret)
		return ret;
	if (!is_taken(&s))
		return -EPROTO;
	ret = memory_protect(s.fd, &s.m, 0, page);
	if (ret)
		return ret;
	/* The original has only the device's reference then. */
	WRITE_ONCE(*s.m.at, 1);
	ret = go_on(fifo, "ready");
	if (ret)
		return ret;
	j = party_job(&p, 0, 0, 64);
	if (method_start(&p.c, &j) <= 0)
		return -EPROTO;
	ret = go_on(fifo, "started") ?:
	      -pthread_create(&thread, NULL, end_send, &s);
	if (ret)
		return ret;
	ret = go_on(fifo, "ending") ?: try(&s);
	/* The runner lets the device go on. */
	ret = go_on(fifo, "tried") ?: ret;
	pthread_join(thread, NULL);
	if (!ret && s.ret != 1) {
		fprintf(stderr, "the end of the send returned %d\n", s.ret);
		return -EPROTO;
	}
	return ret ?: is_taken(&s) ? 0 : -EPROTO;
}

int main(int argc, char **argv)
{
	int fifo, ret;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FIFO\n", argv[0]);
		return 1;
	}
	fifo = steps_open(argv[1]);
	ret = fifo < 0 ? fifo : held(fifo);
	if (ret < 0)
		fprintf(stderr, "%s\n", strerror(-ret));
	return ret < 0 ? 1 : ret;
}
