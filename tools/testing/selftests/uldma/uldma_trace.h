/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel's tracer sees of the calls of one thread.
 */
#ifndef __SELFTEST_ULDMA_TRACE_H
#define __SELFTEST_ULDMA_TRACE_H

#include <stdio.h>
#include <sys/stat.h>

#include "uldma_kinds.h"
#include "uldma_process.h"

#define TRACING "/sys/kernel/tracing/"
#define KPROBES TRACING "kprobe_events"

/**
 * struct tracer - a tracer, with a buffer of its own
 * @dir: its directory
 * @on: the file that turns it on and off; opening it would allocate
 */
struct tracer {
	char dir[128];
	int on;
};

static inline bool has_event(const char *event)
{
	char path[256];

	snprintf(path, sizeof(path), TRACING "events/%s/filter", event);
	return !access(path, W_OK);
}

static inline int tracer_set(const struct tracer *t, const char *file,
			     const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->dir, file);
	return put(path, value);
}

static inline int tracer_open(const struct tracer *t, const char *file,
			      int flags)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->dir, file);
	return open(path, flags);
}

/* Makes a tracer that is off. */
static inline int tracer_make(struct tracer *t)
{
	snprintf(t->dir, sizeof(t->dir), TRACING "instances/uldma-%d",
		 getpid());
	if (mkdir(t->dir, 0700))
		return -errno;
	t->on = tracer_open(t, "tracing_on", O_WRONLY);
	return t->on >= 0 && pwrite(t->on, "0", 1, 0) == 1 ? 0 : -EIO;
}

/* Traces an event of this thread, too. */
static inline int tracer_add(const struct tracer *t, const char *event)
{
	char file[128], filter[64];
	int ret;

	snprintf(filter, sizeof(filter), "common_pid == %d", gettid());
	snprintf(file, sizeof(file), "events/%s/filter", event);
	ret = tracer_set(t, file, filter);
	snprintf(file, sizeof(file), "events/%s/enable", event);
	return ret ?: tracer_set(t, file, "1");
}

/* Has the tracer report each call of a function of the kernel. */
static inline int probe(const char *event, const char *function)
{
	char text[128];

	snprintf(text, sizeof(text), "p:uldma_%d/%s %s", getpid(), event,
		 function);
	return put(KPROBES, text);
}

static inline int trace_function(const struct tracer *t, const char *event)
{
	char name[64];

	snprintf(name, sizeof(name), "uldma_%d/%s", getpid(), event);
	return tracer_add(t, name);
}

static inline void no_probe(const char *event)
{
	char text[64];

	snprintf(text, sizeof(text), "-:uldma_%d/%s", getpid(), event);
	put(KPROBES, text);
}

static inline void tracer_end(struct tracer *t)
{
	close(t->on);
	rmdir(t->dir);
}

/* Empties the trace, and goes on tracing. */
static inline int tracer_begin(const struct tracer *t)
{
	/* Opening it so empties the trace. */
	int trace = tracer_open(t, "trace", O_WRONLY | O_TRUNC);

	close(trace);
	return trace >= 0 && pwrite(t->on, "1", 1, 0) == 1 ? 0 : -EIO;
}

static inline int tracer_stop(const struct tracer *t)
{
	return pwrite(t->on, "0", 1, 0) == 1 ? 0 : -EIO;
}

/* The lines of the trace with one of two texts, or -1 if some were lost. */
static inline int traced(const struct tracer *t, const char *text,
			 const char *other)
{
	bool lost = false;
	int count = 0;
	char line[512];
	FILE *f;

	f = fdopen(tracer_open(t, "trace", O_RDONLY), "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		count += strstr(line, text) || strstr(line, other);
		lost |= !!strstr(line, "LOST");
	}
	fclose(f);
	return lost ? -1 : count;
}

#endif /* __SELFTEST_ULDMA_TRACE_H */
