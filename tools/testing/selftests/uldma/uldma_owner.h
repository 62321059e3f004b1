/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The owner of memory that nothing pins, which the device transfers to and from all
 * the time; and what has to have happened before a test of it has shown anything.
 */
#ifndef __SELFTEST_ULDMA_OWNER_H
#define __SELFTEST_ULDMA_OWNER_H

#include "uldma_kinds.h"
#include "uldma_stamps.h"

#define COUNTERS "/sys/kernel/debug/uldma0/optimistic"
/* How often each of the things that a test is about has to happen. */
#define ENOUGH 20
/* For all of them, on a machine that has little time. */
#define LIMIT (90 * SECOND)

/* A counter of the kernel's memory manager. */
static inline long long events_of(const char *name)
{
	return number_in("/proc/vmstat", name);
}

/* Memory of small pages, of which each has to be touched. */
static inline void *map_small(struct owner *o, size_t length)
{
	void *p = map_anonymous(length);

	if (p && madvise(p, length, MADV_NOHUGEPAGE))
		return no_memory("MADV_NOHUGEPAGE: %s", strerror(errno));
	return p;
}

/* A thread without the owner's memory yet, for which there is as much of its own. */
static inline int mover_open(struct mover *m, struct owner *o)
{
	m->owner = o;
	m->fd = uldma_open(0);
	if (m->fd < 0)
		return m->fd;
	m->buf = buffer(o->half * o->page);
	m->seen = calloc(o->half, sizeof(*m->seen));
	return m->buf && m->seen ? 0 : -ENOMEM;
}

/* Lets it transfer from and to the owner's memory, which it has registered or imported. */
static inline int mover_map(struct mover *m)
{
	return region_register(m->fd, m->buf, m->owner->half * m->owner->page,
			       RW, &m->pinned) ?:
	       context_create(m->fd, &m->c) ?: context_map(m->fd, &m->c) ?:
	       region_map(m->fd, &m->r, PROT_READ | PROT_WRITE) ?:
	       region_map(m->fd, &m->pinned, PROT_READ | PROT_WRITE);
}

/* 0, -EOPNOTSUPP where nothing is optimistic, or another error. */
static inline int mover_make(struct mover *m, struct owner *o, size_t first)
{
	return mover_open(m, o) ?:
	       region_register(m->fd, page_at(o, first), o->half * o->page,
			       RW | ULDMA_REGISTER_OPTIMISTIC, &m->r) ?:
	       mover_map(m);
}

/* Registers the memory, of which no page is touched yet. */
static inline int owner_make(struct owner *o)
{
	size_t pages = 2 * o->half;

	o->state = calloc(pages, sizeof(*o->state));
	o->copy = buffer(pages * o->page);
	if (!o->state || !o->copy)
		return -ENOMEM;
	return mover_make(&o->reader, o, 0) ?:
	       mover_make(&o->writer, o, o->half);
}

/* Starts the threads. */
static inline int owner_go(struct owner *o)
{
	return -pthread_create(&o->reader.thread, NULL, read_on, &o->reader) ?:
	       -pthread_create(&o->writer.thread, NULL, write_on, &o->writer);
}

static inline void owner_halt(struct owner *o)
{
	WRITE_ONCE(o->stop, true);
	pthread_join(o->reader.thread, NULL);
	pthread_join(o->writer.thread, NULL);
}

static inline int owner_start(struct owner *o)
{
	restamp(o, 0, o->half);
	touch_pages(o, o->half, o->half);
	return owner_go(o);
}

/* Ends the threads, and checks what is there when nothing goes on any more. */
static inline void owner_stop(struct owner *o)
{
	owner_halt(o);
	check_writes(o, o->half, o->half);
}

static inline void owner_end(struct owner *o)
{
	close(o->reader.fd);
	close(o->writer.fd);
}

static inline bool owner_fails(const struct owner *o)
{
	return *o->reader.harm || *o->writer.harm || READ_ONCE(o->reader.ret) ||
	       READ_ONCE(o->writer.ret);
}

/* Waits until both threads have begun anew and gone round once: what they do then is later. */
static inline int owner_wait(struct owner *o)
{
	unsigned long reads = LOAD_ACQUIRE(o->reader.rounds) + 2;
	unsigned long writes = LOAD_ACQUIRE(o->writer.rounds) + 2;
	__u64 limit = now_ns() + PATIENCE;

	while (LOAD_ACQUIRE(o->reader.rounds) < reads ||
	       LOAD_ACQUIRE(o->writer.rounds) < writes) {
		if (owner_fails(o))
			return 0;
		if (now_ns() > limit)
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

/* From here on the device may not access the pages, or again. */
static inline void owner_shut(struct owner *o, size_t first, size_t count)
{
	for (size_t p = first; p < first + count; p++)
		STORE_RELEASE(o->state[p].shut, o->state[p].shut + 1);
}

/* What is done with some pages. */
typedef int (*change_fn)(struct owner *o, size_t first, size_t count);

/* Has @change discard what pages have, at once or at any time from here on. */
static inline int discard(struct owner *o, size_t first, size_t count,
			  change_fn change, bool for_good)
{
	int ret;

	check_writes(o, first, count);
	discard_begin(o, first, count);
	ret = change(o, first, count);
	discard_end(o, first, count, for_good);
	return ret;
}

/**
 * struct shown - counters when a test began
 * @filled: pages that were entered
 * @ended: pages that were taken out
 */
struct shown {
	long long filled;
	long long ended;
};

static inline struct shown shown_now(void)
{
	return (struct shown){
		.filled = number_in(COUNTERS, "filled"),
		.ended = number_in(COUNTERS, "ended"),
	};
}

/* Whether the race was run: bytes were moved, pages missed, entered and taken out. */
static inline bool shown_enough(const struct owner *o,
				const struct shown *before)
{
	struct shown now = shown_now();

	return LOAD_ACQUIRE(o->reader.moved) >= ENOUGH &&
	       LOAD_ACQUIRE(o->writer.moved) >= ENOUGH &&
	       LOAD_ACQUIRE(o->writer.exceptions) >= ENOUGH &&
	       now.filled - before->filled >= ENOUGH &&
	       now.ended - before->ended >= ENOUGH;
}

/**
 * struct squat - memory of the process that gets what others free
 * @rounds: how often it has checked its pages
 * @harm: what it has found
 * @stop: it is to end
 */
struct squat {
	unsigned long rounds;
	char harm[HARM_LENGTH];
	bool stop;
};

#define SQUATTED 16

/* Takes free pages, and finds that none but itself writes them, as long as its parent lives. */
static inline void squat(struct squat *s, pid_t parent)
{
	size_t page = page_size(), length = SQUATTED * page;
	__u32 number = 0, found;
	char *at;

	/* A test that is skipped may end before this process has begun. */
	while (!READ_ONCE(s->stop) && !*s->harm && getppid() == parent) {
		at = mmap(NULL, length, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			break;
		number++;
		for (size_t p = 0; p < length; p += page)
			stamp_page(at + p, p, SQUATTER, number);
		for (int i = 0; i < 4; i++)
			sched_yield();
		for (size_t p = 0; p < length; p += sizeof(__u64)) {
			__u64 word = READ_ONCE(*(__u64 *)(at + p));

			if (!stamped(word, p, SQUATTER, &found) ||
			    found != number) {
				note_harm(s->harm, "write: other process, byte %zu: %#llx",
					  p, word);
				break;
			}
		}
		munmap(at, length);
		STORE_RELEASE(s->rounds, s->rounds + 1);
	}
}

/* Starts it; its state is shared. */
static inline struct squat *squat_start(pid_t *pid)
{
	struct squat *s = map_shared(page_size());
	pid_t parent = getpid();

	if (!s)
		return NULL;
	*pid = fork();
	if (*pid < 0)
		return NULL;
	if (!*pid) {
		squat(s, parent);
		_exit(0);
	}
	return s;
}

static inline int squat_stop(struct squat *s, pid_t pid)
{
	int status;

	WRITE_ONCE(s->stop, true);
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return status;
}

#endif /* __SELFTEST_ULDMA_OWNER_H */
