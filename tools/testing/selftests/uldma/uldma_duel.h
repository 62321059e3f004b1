/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two processes, each with an open file, a context and pages of its own, whose
 * accesses to the device come in an order that is given. The victim wants to
 * move A to B; C, D and E are the attacker's.
 */
#ifndef __SELFTEST_ULDMA_DUEL_H
#define __SELFTEST_ULDMA_DUEL_H

#include "uldma_method.h"
#include "uldma_process.h"

enum actor {
	VICTIM,
	ATTACKER,
	ACTORS,
};

enum page_name {
	A,
	B,
	C,
	D,
	E,
	DUEL_PAGES,
};

/**
 * enum act - one access
 * @ST: store the size word to the page's shadow
 * @LD: load from the page's shadow
 * @KEY: store the key to the page's shadow
 * @SIZE: store the size word to the context page
 * @GO: load from the context page
 * @NAME: store a word that names a region as source to the page's shadow
 */
enum act {
	ST,
	LD,
	KEY,
	SIZE,
	GO,
	NAME,
};

struct step {
	enum actor who;
	enum act act;
	enum page_name page;
	/* ULDMA_METHOD_SINGLE_STORE: the source. */
	enum page_name source;
};

#define DUEL_STEPS 32
#define DUEL_BYTES 64
/* Seconds after which a turn that has not come will not come. */
#define DUEL_PATIENCE 10

/**
 * struct duel_board - what both processes and the test share
 * @steps: the accesses, in order
 * @results: what each load returned; what stores left alone
 * @count: how many there are
 * @arrived: how many of the two are ready
 * @turn: whose turn it is: the number of the step
 * @index: the regions of all pages, as their owners have them
 */
struct duel_board {
	struct step steps[DUEL_STEPS];
	__s64 results[DUEL_STEPS];
	int count;
	int arrived;
	int turn;
	__u32 index[DUEL_PAGES];
};

/**
 * struct duel - the two, as the test sees them
 * @board: what they share
 * @memory: the pages
 * @partner: the processes
 * @shared: the page of the victim that the attacker has, too
 * @shared_access: its rights on it; none without any
 */
struct duel {
	struct duel_board *board;
	char *memory;
	struct partner partner[ACTORS];
	enum page_name shared;
	__u32 shared_access;
};

/**
 * struct duelist - one of them, as it sees itself
 * @duel: the duel
 * @who: index of the duellist
 * @fd: its open file
 * @r: the pages that it has
 * @c: its context
 */
struct duelist {
	const struct duel *duel;
	enum actor who;
	int fd;
	struct region r[DUEL_PAGES];
	struct context c;
};

enum duel_verb {
	DUEL_OPEN,	/* register the pages */
	DUEL_METHOD,	/* a new context, by method */
	DUEL_PIN,	/* run on a CPU */
	DUEL_STEP,	/* do step number arg */
	DUEL_RUN,	/* do all own steps, never sleeping, as the turn comes */
	DUEL_SETTLE,	/* wait until all transfers have ended */
	DUEL_TRANSFER,	/* start and finish an own transfer */
	DUEL_STATS,	/* how many transfers were started */
	DUEL_BAD_KEYS,
};

/* Whose pages these are. */
static inline enum actor page_owner(enum page_name page)
{
	return page < C ? VICTIM : ATTACKER;
}

static inline char *duel_page(const struct duel *duel, enum page_name page)
{
	return duel->memory + page * page_size();
}

static inline int duelist_open(struct duelist *me)
{
	int ret = 0;

	me->fd = uldma_open(0);
	if (me->fd < 0)
		return me->fd;
	for (int i = 0; i < DUEL_PAGES && !ret; i++) {
		struct region *r = &me->r[i];
		char *at = duel_page(me->duel, i);

		if (page_owner(i) == me->who) {
			ret = region_register(me->fd, at, page_size(), RW, r);
			me->duel->board->index[i] = r->index;
		} else if (i == me->duel->shared && me->duel->shared_access) {
			ret = region_register(me->fd, at, page_size(),
					      me->duel->shared_access, r);
		}
	}
	return ret;
}

static inline int duelist_method(struct duelist *me, __u32 method)
{
	int prot, ret = 0;

	if (me->c.page) {
		ret = context_unmap(&me->c) ?: context_destroy(me->fd);
		if (ret)
			return ret;
	}
	ret = context_create_as(me->fd, method, 0, &me->c) ?:
	      context_map(me->fd, &me->c);
	for (int i = 0; i < DUEL_PAGES && !ret; i++) {
		struct region *r = &me->r[i];

		if (!r->handle || r->shadow)
			continue;
		prot = PROT_READ | PROT_WRITE;
		if (page_owner(i) != me->who &&
		    me->duel->shared_access == ULDMA_ACCESS_READ)
			prot = PROT_READ;
		ret = region_map(me->fd, r, prot);
	}
	return ret;
}

/*
 * Regions are not named, so that the page alone is the limit: a region that is
 * not the page's would protect from much.
 */
static inline __s64 duelist_step(struct duelist *me, const struct step *step)
{
	const struct region *r = &me->r[step->page];
	__u64 word = size_word(DUEL_BYTES, 0, 0, 0, 0);

	/* Any store takes a ticket there, also what is refused. */
	if (me->c.method == ULDMA_METHOD_SINGLE_STORE &&
	    (step->act == ST || step->act == NAME))
		me->c.ticket++;
	switch (step->act) {
	case ST:
		device_store((uintptr_t)r->shadow, word);
		return 0;
	case LD:
		return device_load((uintptr_t)r->shadow);
	case KEY:
		device_store((uintptr_t)r->shadow, me->c.key);
		return 0;
	case SIZE:
		device_store((uintptr_t)me->c.page, word);
		return 0;
	case GO:
		return device_load((uintptr_t)me->c.page);
	case NAME:
		word = single_store_word(DUEL_BYTES,
					 me->duel->board->index[step->source],
					 0, 0);
		device_store((uintptr_t)r->shadow, word);
		return 0;
	}
	return -EINVAL;
}

/* Waits for the turn without sleeping, since sleeping switches contexts. */
static inline int duelist_turn(const int *value, int wanted)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += DUEL_PATIENCE;
	while (__atomic_load_n(value, __ATOMIC_ACQUIRE) < wanted) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > limit.tv_sec)
			return -ETIMEDOUT;
	}
	return 0;
}

static inline int duelist_run(struct duelist *me)
{
	struct duel_board *board = me->duel->board;
	int ret;

	__atomic_fetch_add(&board->arrived, 1, __ATOMIC_ACQ_REL);
	ret = duelist_turn(&board->arrived, ACTORS);
	for (int i = 0; i < board->count && !ret; i++) {
		if (board->steps[i].who != me->who)
			continue;
		ret = duelist_turn(&board->turn, i);
		if (ret)
			break;
		board->results[i] = duelist_step(me, &board->steps[i]);
		__atomic_store_n(&board->turn, i + 1, __ATOMIC_RELEASE);
	}
	/* Who went to sleep now would be a context switch before the last. */
	return ret ?: duelist_turn(&board->turn, board->count);
}

static inline int duelist_settle(struct duelist *me)
{
	return status_wait(&me->c, context_stats(me->fd).out_initiations);
}

static inline long duelist_transfer(struct duelist *me)
{
	struct job j = {
		.dst = &me->r[me->who == VICTIM ? B : D],
		.src = &me->r[me->who == VICTIM ? A : C],
		.bytes = DUEL_BYTES,
	};

	return method_transfer(&me->c, &j);
}

static inline long duelist_serve(long verb, long arg, void *data)
{
	struct duelist *me = data;
	struct duel_board *board = me->duel->board;

	switch (verb) {
	case DUEL_OPEN:
		return duelist_open(me);
	case DUEL_METHOD:
		return duelist_method(me, arg);
	case DUEL_PIN:
		return pin_to(arg);
	case DUEL_STEP:
		board->results[arg] = duelist_step(me, &board->steps[arg]);
		return 0;
	case DUEL_RUN:
		return duelist_run(me);
	case DUEL_SETTLE:
		return duelist_settle(me);
	case DUEL_TRANSFER:
		return duelist_transfer(me);
	case DUEL_STATS:
		return context_stats(me->fd).out_initiations;
	case DUEL_BAD_KEYS:
		return context_stats(me->fd).out_bad_keys;
	}
	return -EINVAL;
}

/* Tells both, one after the other: the first thing that goes wrong. */
static inline long duel_both(struct duel *duel, long verb, long arg)
{
	return partner_call(&duel->partner[VICTIM], verb, arg) ?:
	       partner_call(&duel->partner[ATTACKER], verb, arg);
}

static inline int duel_start_sharing(struct duel *duel, enum page_name page,
				     __u32 access)
{
	/* Each process gets a copy of its own. */
	static struct duelist me;
	int ret = 0;

	*duel = (struct duel){ .shared = page, .shared_access = access };
	duel->board = mmap(NULL, sizeof(*duel->board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	duel->memory = mmap(NULL, DUEL_PAGES * page_size(),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (duel->board == MAP_FAILED || duel->memory == MAP_FAILED)
		return -errno;
	for (int i = 0; i < ACTORS && !ret; i++) {
		me = (struct duelist){ .duel = duel, .who = i };
		ret = partner_start(&duel->partner[i], duelist_serve, &me);
	}
	return ret ?: duel_both(duel, DUEL_OPEN, 0);
}

static inline int duel_start(struct duel *duel, bool share_source)
{
	return duel_start_sharing(duel, A,
				  share_source ? ULDMA_ACCESS_READ : 0);
}

static inline void duel_end(struct duel *duel)
{
	for (int i = 0; i < ACTORS; i++)
		if (duel->partner[i].pid)
			partner_end(&duel->partner[i]);
}

/* Each page has a pattern of its own, which identifies the source of bytes. */
static inline void duel_fill(struct duel *duel)
{
	for (int i = 0; i < DUEL_PAGES; i++)
		pattern_fill(duel_page(duel, i), page_size(), i + 1);
}

/* Contexts that know of nothing, and pages as they were. */
static inline long duel_begin(struct duel *duel, __u32 method)
{
	duel_fill(duel);
	return duel_both(duel, DUEL_METHOD, method);
}

static inline void duel_script(struct duel *duel, const struct step *steps,
			       int count)
{
	struct duel_board *board = duel->board;

	memcpy(board->steps, steps, count * sizeof(*steps));
	memset(board->results, 0, sizeof(board->results));
	board->count = count;
	board->arrived = 0;
	board->turn = 0;
}

/* Step by step: between any two, one process sleeps and the other wakes. */
static inline long duel_play(struct duel *duel, const struct step *steps,
			     int count)
{
	long ret = 0;

	duel_script(duel, steps, count);
	for (int i = 0; i < count && !ret; i++)
		ret = partner_call(&duel->partner[steps[i].who], DUEL_STEP, i);
	return ret ?: duel_both(duel, DUEL_SETTLE, 0);
}

/* The same without a context switch, each on its CPU. */
static inline long duel_race(struct duel *duel, const struct step *steps,
			     int count)
{
	long ret;

	duel_script(duel, steps, count);
	ret = partner_tell(&duel->partner[VICTIM], DUEL_RUN, 0) ?:
	      partner_call(&duel->partner[ATTACKER], DUEL_RUN, 0);
	return ret ?: partner_answer(&duel->partner[VICTIM]) ?:
		      duel_both(duel, DUEL_SETTLE, 0);
}

static inline long duel_pin(struct duel *duel, int victim, int attacker)
{
	return partner_call(&duel->partner[VICTIM], DUEL_PIN, victim) ?:
	       partner_call(&duel->partner[ATTACKER], DUEL_PIN, attacker);
}

/* Whose bytes the start of a page holds, or -1 for something else. */
static inline int duel_holds(const struct duel *duel, enum page_name page)
{
	const __u64 *at = (const __u64 *)duel_page(duel, page);
	size_t words = page_size() / sizeof(*at);

	for (size_t i = DUEL_BYTES / sizeof(*at); i < words; i++)
		if (at[i] != pattern_at(page + 1, i))
			return -1;
	for (int i = 0; i < DUEL_PAGES; i++)
		if (pattern_check(at, DUEL_BYTES, i + 1) < 0)
			return i;
	return -1;
}

/* Nothing of either has reached the other. */
static inline bool duel_is_fair(const struct duel *duel)
{
	for (int i = 0; i < DUEL_PAGES; i++) {
		int holds = duel_holds(duel, i);

		if (holds < 0 || page_owner(holds) != page_owner(i))
			return false;
	}
	return true;
}

#endif /* __SELFTEST_ULDMA_DUEL_H */
