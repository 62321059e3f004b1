/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The initiation methods, by the accesses that each is made of: in one go for
 * tests that need a transfer, and one by one for tests that interleave accesses.
 */
#ifndef __SELFTEST_ULDMA_METHOD_H
#define __SELFTEST_ULDMA_METHOD_H

#include <sched.h>
#include <time.h>

#include "uldma_utils.h"

#define METHOD_BIT(m) (1U << (m))
/* Which means to begin anew; no negated enum uldma_dma_status is as low. */
#define METHOD_AGAIN (-1000)

static inline bool method_offered(int fd, __u32 method)
{
	return query(fd).out_methods & METHOD_BIT(method);
}

static inline bool method_insecure(__u32 method)
{
	return METHOD_BIT(method) & ULDMA_METHODS_INSECURE;
}

static inline bool method_sched_notify(__u32 method)
{
	return METHOD_BIT(method) & ULDMA_METHODS_SCHED_NOTIFY;
}

/* One access of eight bytes, which nothing is moved across. */
static inline void device_store(uintptr_t at, __u64 value)
{
	WRITE_ONCE(*(__u64 *)at, value);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline __s64 device_load(uintptr_t at)
{
	__s64 value = READ_ONCE(*(__s64 *)at);

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return value;
}

/**
 * struct job - the three arguments of a transfer
 * @dst: region
 * @dst_at: first byte there
 * @src: region
 * @src_at: first byte there
 * @bytes: how many
 */
struct job {
	const struct region *dst;
	size_t dst_at;
	const struct region *src;
	size_t src_at;
	__u64 bytes;
};

/* Where to store and load for a job: its shadow addresses, as words. */
static inline uintptr_t job_dst(const struct job *j)
{
	return shadow_of(j->dst, j->dst_at) & ~7UL;
}

static inline uintptr_t job_src(const struct job *j)
{
	return shadow_of(j->src, j->src_at) & ~7UL;
}

static inline __u64 job_word(const struct job *j)
{
	return size_word(j->bytes, shadow_of(j->src, j->src_at) & 7,
			 shadow_of(j->dst, j->dst_at) & 7, j->src->index,
			 j->dst->index);
}

static inline __u64 single_store_word(__u64 bytes, __u32 src, __u64 src_at,
				      __u32 dst)
{
	return (bytes / 8 & ULDMA_SINGLE_STORE_LENGTH_MASK) |
	       (src_at / 8 & ULDMA_SINGLE_STORE_SRC_OFFSET_MASK)
		       << ULDMA_SINGLE_STORE_SRC_OFFSET_SHIFT |
	       (__u64)src << ULDMA_SINGLE_STORE_SRC_REGION_SHIFT |
	       (__u64)dst << ULDMA_SINGLE_STORE_DST_REGION_SHIFT;
}

/*
 * Each of these starts a transfer: a ticket, a negated enum uldma_dma_status,
 * or METHOD_AGAIN.
 */

static inline __s64 two_access_start(const struct job *j)
{
	device_store(job_dst(j), job_word(j));
	return device_load(job_src(j));
}

static inline __s64 key_start(struct context *c, const struct job *j)
{
	__s64 left;

	device_store(job_dst(j), c->key);
	device_store(job_src(j), c->key);
	device_store((uintptr_t)c->page, job_word(j));
	left = device_load((uintptr_t)c->page);
	if (left < 0)
		return left;
	return ++c->ticket;
}

/* The code and the ticket that a load returned. */
static inline __u64 repeated_code(__s64 got)
{
	return got & ULDMA_REPEATED_CODE_MASK;
}

static inline __s64 repeated_ticket(__s64 got)
{
	return got >> ULDMA_REPEATED_TICKET_SHIFT;
}

static inline __s64 repeated_end(__s64 got)
{
	if (got < 0)
		return got;
	if (repeated_code(got) != ULDMA_REPEATED_OK3)
		return METHOD_AGAIN;
	return repeated_ticket(got);
}

static inline __s64 repeated_3_start(const struct job *j)
{
	__s64 got = device_load(job_src(j));

	if (got != ULDMA_REPEATED_OK1)
		return got < 0 ? got : METHOD_AGAIN;
	device_store(job_dst(j), job_word(j));
	return repeated_end(device_load(job_src(j)));
}

static inline __s64 repeated_4_start(const struct job *j)
{
	__s64 got;

	device_store(job_dst(j), job_word(j));
	got = device_load(job_src(j));
	if (got != ULDMA_REPEATED_OK1)
		return got < 0 ? got : METHOD_AGAIN;
	device_store(job_dst(j), job_word(j));
	return repeated_end(device_load(job_src(j)));
}

static inline __s64 repeated_5_start(const struct job *j)
{
	__s64 got;

	device_store(job_dst(j), job_word(j));
	got = device_load(job_src(j));
	if (got != ULDMA_REPEATED_OK1)
		return got < 0 ? got : METHOD_AGAIN;
	device_store(job_dst(j), job_word(j));
	got = device_load(job_src(j));
	if (got != ULDMA_REPEATED_OK2)
		return got < 0 ? got : METHOD_AGAIN;
	return repeated_end(device_load(job_dst(j)));
}

static inline __s64 single_store_start(struct context *c, const struct job *j)
{
	device_store(job_dst(j), single_store_word(j->bytes, j->src->index,
						   j->src_at, j->dst->index));
	return ++c->ticket;
}

/* Where the job goes was said by map_out(), but for the length of the job. */
static inline __s64 shrimp_1_start(const struct job *j)
{
	return device_load(job_src(j) + j->bytes - 8);
}

/* Never sleeps, so that the status page is all that is read. */
static inline int status_wait(const struct context *c, __u64 ticket)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	while (__atomic_load_n(&c->status->completed, __ATOMIC_ACQUIRE) <
	       ticket) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > limit.tv_sec)
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

/* The record of a ticket that has ended. */
static inline struct uldma_completion status_record(const struct context *c,
						    __u64 ticket)
{
	return *(volatile struct uldma_completion *)
		&c->status->records[ticket % ULDMA_STATUS_RECORDS];
}

/* Waits for a ticket: 0 or an enum uldma_dma_status, or a negated errno. */
static inline int status_of(const struct context *c, __u64 ticket)
{
	struct uldma_completion record;
	int ret = status_wait(c, ticket);

	if (ret)
		return ret;
	record = status_record(c, ticket);
	return record.ticket == ticket && !record.flags ? record.status :
							  -EPROTO;
}

/* Writes the next descriptor, once its place is free; does not ring. */
static inline __s64 queue_post(struct context *c,
			       const struct uldma_descriptor *d)
{
	__u64 ticket = c->ticket + 1;
	struct uldma_descriptor *to;

	if (ticket > ULDMA_STATUS_RECORDS &&
	    status_wait(c, ticket - ULDMA_STATUS_RECORDS))
		return -ULDMA_DMA_QUEUE_FULL;
	to = &c->queue[ticket % ULDMA_STATUS_RECORDS];
	to->op = d->op;
	to->flags = d->flags;
	to->src = d->src;
	to->dst = d->dst;
	to->src_offset = d->src_offset;
	to->dst_offset = d->dst_offset;
	to->length = d->length;
	to->operand = d->operand;
	to->compare = d->compare;
	__atomic_store_n(&to->ticket, ticket, __ATOMIC_RELEASE);
	return c->ticket = ticket;
}

/* Wakes the device if it sleeps, and says whether it did. */
static inline bool queue_ring(struct context *c)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!READ_ONCE(c->status->wakeup))
		return false;
	device_store((uintptr_t)c->page, 0);
	return true;
}

static inline __s64 queue_start(struct context *c, const struct job *j)
{
	struct uldma_descriptor d = {
		.op = ULDMA_OP_COPY,
		.src = j->src->index,
		.dst = j->dst->index,
		.src_offset = j->src_at,
		.dst_offset = j->dst_at,
		.length = j->bytes,
	};
	__s64 ticket = queue_post(c, &d);

	queue_ring(c);
	return ticket;
}

/* Starts by the method of the context, once. */
static inline __s64 method_try(struct context *c, const struct job *j)
{
	__s64 got;

	switch (c->method) {
	case ULDMA_METHOD_KEY:
		return key_start(c, j);
	case ULDMA_METHOD_SINGLE_STORE:
		return single_store_start(c, j);
	case ULDMA_METHOD_QUEUE:
		return queue_start(c, j);
	case ULDMA_METHOD_REPEATED_3:
		return repeated_3_start(j);
	case ULDMA_METHOD_REPEATED_4:
		return repeated_4_start(j);
	case ULDMA_METHOD_REPEATED_5:
		return repeated_5_start(j);
	case ULDMA_METHOD_SHRIMP_1:
		return shrimp_1_start(j);
	default:
		got = two_access_start(j);
	}
	/* Partial arguments are cleared when another process runs. */
	if (c->method != ULDMA_METHOD_EXTENDED_SHADOW &&
	    (got == -ULDMA_DMA_NO_ARGS || got == -ULDMA_DMA_MIXED ||
	     got == -ULDMA_DMA_NOT_RUNNING))
		return METHOD_AGAIN;
	return got;
}

/*
 * Starts by the method of the context, as often as it takes: a process on another
 * CPU can break each of many attempts, so the limit is a time.
 */
static inline __s64 method_start(struct context *c, const struct job *j)
{
	__u64 limit = now_ns() + PATIENCE;
	__s64 got;

	for (;;) {
		got = method_try(c, j);
		if (got != METHOD_AGAIN || now_ns() > limit)
			return got;
		sched_yield();
	}
}

/* All of a transfer: 0, a positive enum uldma_dma_status or negated errno. */
static inline int method_transfer(struct context *c, const struct job *j)
{
	__s64 ticket = method_start(c, j);

	if (ticket == METHOD_AGAIN)
		return -EAGAIN;
	if (ticket <= 0)
		return ticket ? -ticket : -EPROTO;
	return status_of(c, ticket);
}

#define PARTY_PAGES 4

/**
 * struct party - an open file with a context, a source and a destination
 * @fd: its file
 * @length: bytes of each buffer, whole pages
 * @src: what the source is
 * @dst: what the destination is
 * @s: the source, which can be read and written
 * @d: the destination, which can be too
 * @c: its context
 */
struct party {
	int fd;
	size_t length;
	char *src;
	char *dst;
	struct region s;
	struct region d;
	struct context c;
};

/* Gives a party a context and maps all there is. */
static inline int party_context(struct party *p, __u32 method, __u32 flags)
{
	int prot = PROT_READ | PROT_WRITE;
	int ret = context_create_as(p->fd, method, flags, &p->c) ?:
		  context_map(p->fd, &p->c) ?:
		  region_map(p->fd, &p->s, prot) ?:
		  region_map(p->fd, &p->d, prot);

	if (ret || method != ULDMA_METHOD_SHRIMP_1)
		return ret;
	return map_out(p->fd, p->s.handle, 0, p->d.handle, 0, PARTY_PAGES);
}

/* Ends the context and the mappings. */
static inline int party_no_context(struct party *p)
{
	return context_unmap(&p->c) ?: region_unmap(&p->s) ?:
	       region_unmap(&p->d) ?: context_destroy(p->fd);
}

/* Opens the device and registers both buffers. */
static inline int party_open(struct party *p)
{
	p->fd = uldma_open(0);
	if (p->fd < 0)
		return p->fd;
	p->length = PARTY_PAGES * page_size();
	p->src = buffer(p->length);
	p->dst = buffer(p->length);
	if (!p->src || !p->dst)
		return -ENOMEM;
	pattern_fill(p->src, p->length, 1);
	pattern_fill(p->dst, p->length, 2);
	return region_register(p->fd, p->src, p->length, RW, &p->s) ?:
	       region_register(p->fd, p->dst, p->length, RW, &p->d);
}

/* A transfer of a party's own. */
static inline struct job party_job(const struct party *p, size_t dst_at,
				   size_t src_at, __u64 bytes)
{
	return (struct job){
		.dst = &p->d,
		.dst_at = dst_at,
		.src = &p->s,
		.src_at = src_at,
		.bytes = bytes,
	};
}

static inline int party_transfer(struct party *p, size_t dst_at,
				 size_t src_at, __u64 bytes)
{
	struct job j = party_job(p, dst_at, src_at, bytes);

	return method_transfer(&p->c, &j);
}

/* Returns true if the method moves data, and if a transfer by it succeeds. */
static inline int party_works(struct party *p)
{
	size_t bytes = 512;
	int ret;

	pattern_fill(p->src, bytes, 7);
	memset(p->dst, 0, bytes);
	ret = party_transfer(p, 0, 0, bytes);
	if (ret)
		return ret;
	return pattern_check(p->dst, bytes, 7) < 0 ? 0 : -EILSEQ;
}

#endif /* __SELFTEST_ULDMA_METHOD_H */
