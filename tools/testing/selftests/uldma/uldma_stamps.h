/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory in which each word says where it is, whose it is and how old it is, and
 * two threads that have the device read and write it all the time. Whatever is
 * done with the memory meanwhile, they find a byte of another page, a byte that
 * was gone before, and a write that was acknowledged and lost.
 *
 * The device reads the first half of the owner's memory and writes the second
 * one. It copies words of eight bytes whole, so each is checked by itself: a copy
 * of a line that is just being written has old words and new ones.
 */
#ifndef __SELFTEST_ULDMA_STAMPS_H
#define __SELFTEST_ULDMA_STAMPS_H

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "uldma_process.h"

enum tenant {
	OWNER = 1,
	/* What the device writes. */
	PEER,
	/* A process that gets what others free. */
	SQUATTER,
	CHILD,
};

#define NUMBER_BITS 24
#define NUMBER_MASK ((1U << NUMBER_BITS) - 1)

/* The word at a place, which is a multiple of eight, and its proof above. */
static inline __u64 stamp(size_t place, enum tenant tenant, __u32 number)
{
	__u64 low = (__u64)tenant << NUMBER_BITS | (number & NUMBER_MASK);
	__u64 mixed = ((__u64)place << 32 ^ low) * 0x9e3779b97f4a7c15ULL;

	mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ULL;
	return (mixed & ~0ULL << 32) | low;
}

/* Whether a word is a stamp of this place and tenant: then its number. */
static inline bool stamped(__u64 word, size_t place, enum tenant tenant,
			   __u32 *number)
{
	*number = word & NUMBER_MASK;
	return word == stamp(place, tenant, *number);
}

static inline void stamp_page(void *at, size_t place, enum tenant tenant,
			      __u32 number)
{
	__u64 *words = at;

	for (size_t i = 0; i < page_size() / sizeof(__u64); i++)
		WRITE_ONCE(words[i], stamp(place + i * sizeof(__u64), tenant,
					   number));
}

/**
 * struct page_state - what the words of a page may be
 * @oldest: of a page that is read, the oldest state that it may have
 * @newest: of a page that is read, the newest one: 2 * N when it has been
 *	discarded for the Nth time, and one more when it is stamped
 * @acked: of a page that is written, the last write that has ended
 * @tried: the last one that has begun
 * @gone: a write up to this one may not come to light any more
 * @since: a write after this one has to be there
 * @shut: odd while the device may not access the page
 */
struct page_state {
	__u32 oldest;
	__u32 newest;
	__u32 acked;
	__u32 tried;
	__u32 gone;
	__u32 since;
	__u32 shut;
};

#define LOAD_ACQUIRE(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELEASE)

#define HARM_LENGTH 160

/* Transfers that are under way together. */
#define DEPTH 8

/**
 * struct mover - a thread that has the device transfer
 * @thread: it
 * @owner: of the memory
 * @fd: the device
 * @c: its context
 * @r: the half of the owner's memory
 * @pinned: other memory, which stays
 * @buf: that memory
 * @seen: states of the pages before the transfers
 * @rounds: how many times it has moved something, or met an exception
 * @moved: those with bytes
 * @exceptions: those that a missing page has ended
 * @ret: 0, a negated errno or an enum uldma_dma_status
 * @harm: what it has found
 */
struct mover {
	pthread_t thread;
	struct owner *owner;
	int fd;
	struct context c;
	struct region r;
	struct region pinned;
	char *buf;
	struct page_state *seen;
	unsigned long rounds;
	unsigned long moved;
	unsigned long exceptions;
	int ret;
	char harm[HARM_LENGTH];
};

/**
 * struct owner - memory that nothing pins
 * @at: the pages
 * @page: bytes of one
 * @half: how many are read, and as many after them are written
 * @file: what is mapped, or -1
 * @zeroes: a page may have no words yet
 * @state: of each page
 * @copy: as much memory, for what the device is not to access
 * @reader: reads the first half
 * @writer: writes the second half
 * @number: of the next random number
 * @events: what the adversary has counted
 * @stop: the threads are to end
 * @pause: the writer is to begin nothing
 */
struct owner {
	char *at;
	size_t page;
	size_t half;
	int file;
	bool zeroes;
	struct page_state *state;
	char *copy;
	struct mover reader;
	struct mover writer;
	__u32 number;
	unsigned long events;
	bool stop;
	bool pause;
};

/* Notes what has been found first. */
__attribute__((format(printf, 2, 3)))
static inline void note_harm(char found[HARM_LENGTH], const char *format, ...)
{
	va_list args;

	if (*found)
		return;
	va_start(args, format);
	vsnprintf(found, HARM_LENGTH, format, args);
	va_end(args);
}

static inline size_t place_of(const struct owner *o, size_t page)
{
	return page * o->page;
}

static inline char *page_at(const struct owner *o, size_t page)
{
	return o->at + page * o->page;
}

/* Numbers that are the same in each run. */
static inline size_t random_below(struct owner *o, size_t limit)
{
	o->number = o->number * 1103515245 + 12345;
	return (o->number >> 8) % limit;
}

/*
 * Has the device move the pages from @first on, DEPTH times at once. Returns how many
 * pages one of them has moved; @missing is whether one was missing.
 */
static inline size_t move_pages_from(struct mover *m, bool write, size_t first,
				     bool *missing)
{
	size_t page = m->owner->page, length = (m->owner->half - first) * page;
	const struct region *to = write ? &m->r : &m->pinned;
	const struct region *from = write ? &m->pinned : &m->r;
	__u64 limit = now_ns() + PATIENCE, most = 0;
	__s64 tickets[DEPTH];

	for (int i = 0; i < DEPTH; i++) {
		tickets[i] = shadow_start(to, first * page, from, first * page,
					  length);
		if (tickets[i] <= 0) {
			m->ret = -tickets[i] ?: -EPROTO;
			return 0;
		}
	}
	while (LOAD_ACQUIRE(m->c.status->completed) < tickets[DEPTH - 1]) {
		if (now_ns() > limit) {
			m->ret = -ETIMEDOUT;
			return 0;
		}
		sched_yield();
	}
	for (int i = 0; i < DEPTH; i++) {
		struct uldma_completion *done =
			&m->c.status->records[tickets[i] % ULDMA_STATUS_RECORDS];

		if (done->status && done->status != ULDMA_DMA_NOT_RESIDENT)
			m->ret = done->status;
		*missing |= done->status == ULDMA_DMA_NOT_RESIDENT;
		most = done->bytes > most ? done->bytes : most;
	}
	if (most % page)
		m->ret = -EPROTO;
	return most / page;
}

/* No transfer has moved a page that the device could not access all the time. */
static inline void check_shut(struct mover *m, const struct page_state *before,
			      const struct page_state *now, const char *what)
{
	if (before->shut % 2 && LOAD_ACQUIRE(now->shut) == before->shut)
		note_harm(m->harm, "%s: page %zu was not to be accessed", what,
			  now - m->owner->state);
}

/* What the device has read of a page was there meanwhile. */
static inline void check_read(struct mover *m, size_t page,
			      const struct page_state *before)
{
	struct page_state *now = &m->owner->state[page];
	const __u64 *words = (void *)(m->buf + page * m->owner->page);
	__u32 oldest = before->oldest, newest = LOAD_ACQUIRE(now->newest);
	bool zero = m->owner->zeroes && newest / 2 * 2 >= oldest;
	__u32 number;

	check_shut(m, before, now, "read");
	for (size_t i = 0; i < m->owner->page / sizeof(__u64); i++) {
		size_t place = place_of(m->owner, page) + i * sizeof(__u64);
		__u64 word = READ_ONCE(words[i]);

		if (!word && zero)
			continue;
		if (stamped(word, place, OWNER, &number) &&
		    2 * number + 1 >= oldest && 2 * number < newest)
			continue;
		note_harm(m->harm, "read: page %zu, byte %zu: %#llx is not of %u to %u",
			  page, i * sizeof(__u64), word, oldest, newest);
		return;
	}
}

static inline void *read_on(void *arg)
{
	struct mover *m = arg;
	struct owner *o = m->owner;
	size_t first = 0, moved;

	while (!READ_ONCE(o->stop) && !m->ret && !*m->harm) {
		bool missing = false;

		for (size_t p = first; p < o->half; p++) {
			m->seen[p].oldest = LOAD_ACQUIRE(o->state[p].oldest);
			m->seen[p].shut = LOAD_ACQUIRE(o->state[p].shut);
		}
		moved = move_pages_from(m, false, first, &missing);
		for (size_t p = first; p < first + moved; p++)
			check_read(m, p, &m->seen[p]);
		m->exceptions += missing;
		m->moved += moved > 0;
		/* The next one begins behind the page that is missing. */
		first += moved + 1;
		if (first >= o->half)
			first = 0;
		STORE_RELEASE(m->rounds, m->rounds + 1);
	}
	return NULL;
}

static inline void *write_on(void *arg)
{
	struct mover *m = arg;
	struct owner *o = m->owner;
	struct page_state *state = o->state + o->half;
	size_t first = 0, moved;
	__u32 number = 0;

	while (!READ_ONCE(o->stop) && !m->ret && !*m->harm) {
		bool missing = false;

		STORE_RELEASE(m->rounds, m->rounds + 1);
		if (READ_ONCE(o->pause)) {
			sched_yield();
			continue;
		}
		number++;
		for (size_t p = first; p < o->half; p++) {
			stamp_page(m->buf + p * o->page,
				   place_of(o, o->half + p), PEER, number);
			m->seen[p].shut = LOAD_ACQUIRE(state[p].shut);
			STORE_RELEASE(state[p].tried, number);
		}
		moved = move_pages_from(m, true, first, &missing);
		for (size_t p = first; p < o->half; p++) {
			if (p < first + moved) {
				check_shut(m, &m->seen[p], &state[p], "write");
				STORE_RELEASE(state[p].acked, number);
			} else if (!m->ret) {
				/* Behind what was moved nothing may be. */
				STORE_RELEASE(state[p].tried, state[p].acked);
			}
		}
		m->exceptions += missing;
		m->moved += moved > 0;
		first += moved + 1;
		if (first >= o->half)
			first = 0;
	}
	return NULL;
}

/* What the device has written to a page is there, and nothing else; @at is where the page is. */
static inline void check_write(struct owner *o, size_t page, const void *at)
{
	struct page_state *state = &o->state[page];
	__u32 acked = LOAD_ACQUIRE(state->acked), tried, number;
	const __u64 *words = at;
	bool needed = acked > state->since;

	for (size_t i = 0; i < o->page / sizeof(__u64); i++) {
		size_t place = place_of(o, page) + i * sizeof(__u64);
		__u64 word = READ_ONCE(words[i]);

		if (!word && !needed)
			continue;
		tried = LOAD_ACQUIRE(state->tried);
		if (stamped(word, place, PEER, &number) &&
		    number > state->gone && number <= tried &&
		    (!needed || number >= acked))
			continue;
		note_harm(o->writer.harm,
			  "write: page %zu, byte %zu: %#llx is not of %u to %u, or %u, %u",
			  page, i * sizeof(__u64), word, acked, tried,
			  state->gone, state->since);
		return;
	}
}

static inline void check_writes(struct owner *o, size_t first, size_t count)
{
	for (size_t p = first; p < first + count; p++)
		if (p >= o->half)
			check_write(o, p, page_at(o, p));
}

/* Makes a page present and writable without a change of it. */
static inline void touch_page(const struct owner *o, size_t page)
{
	__atomic_fetch_or((__u64 *)page_at(o, page), 0, __ATOMIC_SEQ_CST);
}

static inline void touch_pages(const struct owner *o, size_t first,
			       size_t count)
{
	for (size_t p = first; p < first + count; p++)
		touch_page(o, p);
}

/* The number of what a page that is read has now. */
static inline __u32 number_of(const struct owner *o, size_t page)
{
	return o->state[page].newest / 2;
}

/* Gives pages that are read new stamps where they are. */
static inline void restamp(struct owner *o, size_t first, size_t count)
{
	for (size_t p = first; p < first + count && p < o->half; p++) {
		__u32 next = (number_of(o, p) + 1) * 2 + 1;

		STORE_RELEASE(o->state[p].newest, next);
		stamp_page(page_at(o, p), place_of(o, p), OWNER, next / 2);
		STORE_RELEASE(o->state[p].oldest, next);
	}
}

/* What the pages have is about to go. */
static inline void discard_begin(struct owner *o, size_t first, size_t count)
{
	for (size_t p = first; p < first + count; p++) {
		struct page_state *state = &o->state[p];

		if (p < o->half)
			STORE_RELEASE(state->newest, (number_of(o, p) + 1) * 2);
		else
			/* Read before it goes, for discard_end(). */
			state->newest = LOAD_ACQUIRE(state->acked);
	}
}

/* It is gone, or may go at any time unless @for_good. */
static inline void discard_end(struct owner *o, size_t first, size_t count,
			       bool for_good)
{
	for (size_t p = first; p < first + count; p++) {
		struct page_state *state = &o->state[p];

		if (p >= o->half) {
			state->since = LOAD_ACQUIRE(state->tried);
			if (for_good)
				state->gone = state->newest;
		} else if (for_good) {
			STORE_RELEASE(state->oldest, state->newest);
		}
	}
}

/* Brings discarded pages back, in another order than the last time. */
static inline void refill(struct owner *o, size_t first, size_t count)
{
	size_t start = random_below(o, count);
	bool back = random_below(o, 2);

	for (size_t i = 0; i < count; i++) {
		size_t p = first + (start + (back ? count - i : i)) % count;
		__u32 next = o->state[p].newest | 1;

		if (p >= o->half) {
			touch_page(o, p);
			continue;
		}
		STORE_RELEASE(o->state[p].newest, next);
		stamp_page(page_at(o, p), place_of(o, p), OWNER, next / 2);
		STORE_RELEASE(o->state[p].oldest, next);
	}
}

#endif /* __SELFTEST_ULDMA_STAMPS_H */
