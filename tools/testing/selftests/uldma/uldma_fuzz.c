// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes the user interface for some time, by sequences of calls of several
 * processes:
 *
 *	uldma_fuzz [-s SECONDS] [-S SEED] [-r STEP,STEP,...] [-p] [-c] [-v]
 *	uldma_fuzz serve
 *
 * With -c most calls are about connections. With -p the second form runs on the
 * node that the adapter joins with this one.
 *
 * The first part of a sequence is done one step after the other and compared
 * with the model. Then steps are done at the same time, of which only the
 * errors have to make sense. At last all is closed, and nothing may be left.
 *
 * Sequences that reached something new are kept, and others are made of them:
 * new is a pair of a state and an answer, and where the kernel has KCOV also
 * a place in its code. A sequence that fails is made as short as possible.
 */
#include <getopt.h>
#include <time.h>

#include "uldma_fuzz_model.h"
#include "uldma_process.h"

#define CORPUS 4096
#define SEEN_BITS 18
#define MAX_REPEAT 12
/* How many times longer it takes at most until messages have crossed. */
#define MORE 8
/* Sequences of which some should have had messages cross. */
#define ENOUGH 200
/* No longer than that a failed sequence is made shorter. */
#define SHORTEN_SECONDS 60

struct sequence {
	int count;
	__u32 steps[STEPS];
	/* Zero for a sequence without a race. */
	__u32 race;
};

static struct world world;
static struct sequence corpus[CORPUS];
static int corpus_count;
static __u32 seen[1 << SEEN_BITS];
static unsigned int seen_count, fresh;
static unsigned long sequences, executions, races, places;
static unsigned long results[64][134];
static char failure[512];
static bool telling;
/* The last sequence has left something, and so will those after it. */
static bool lasting;

static const char *error_name(int err)
{
	return err ? strerrorname_np(err) ?: "an error without a name" : "success";
}

/* Returns true if a state and its result are seen for the first time. */
static void note(__u32 state, long ret)
{
	__u32 key = (state ^ (ret < 0 ? -ret : 0)) * 0x9e3779b1 ?: 1;
	__u32 at = key >> (32 - SEEN_BITS);

	while (seen[at] && seen[at] != key)
		at = (at + 1) % ARRAY_SIZE(seen);
	if (seen[at] || seen_count > ARRAY_SIZE(seen) / 2)
		return;
	seen[at] = key;
	seen_count++;
	fresh++;
}

static bool is_right(const struct verdict *v, long ret)
{
	int err = ret < 0 ? -ret : 0;

	if (err >= ARRAY_SIZE(v->must))
		return false;
	return err ? v->must[err] || v->may[err] : !v->fails;
}

static void fail_with(int step, int process, const struct order *o, const char *why)
{
	FILE *f = fmemopen(failure, sizeof(failure), "w");

	fprintf(f, "step %d: ", step);
	describe(f, process, o);
	fprintf(f, ": %s", why);
	fclose(f);
}

static void fail_answer(int step, int process, const struct order *o, const struct verdict *v,
			long ret)
{
	char why[200];
	int at = snprintf(why, sizeof(why), "%s, not", error_name(ret < 0 ? -ret : 0));

	if (!v->fails)
		at += snprintf(why + at, sizeof(why) - at, " success");
	for (int i = 0; i < ARRAY_SIZE(v->must); i++)
		if ((v->must[i] || v->may[i]) && at < sizeof(why))
			at += snprintf(why + at, sizeof(why) - at, " %s%s", error_name(i),
				       v->must[i] ? "" : "?");
	fail_with(step, process, o, why);
}

static bool start_worker(int process)
{
	return !worker_start(&world.workers[process], process == POOR);
}

/* Returns true if the peer may have acted without the caller's knowledge. */
static bool is_open(const struct order *o, long ret)
{
	return o->op == OP_IOCTL && calls[o->call].number == ULDMA_CMD_CONN_CONNECT &&
	       ret == -ETIMEDOUT;
}

/* Returns true if a call has named an endpoint, and then waited in vain. */
static bool is_naming(const struct order *o, long ret)
{
	return o->op == OP_IOCTL && calls[o->call].number == ULDMA_CMD_CONN_STREAM &&
	       (ret == -ETIMEDOUT || ret == -EINTR);
}

/*
 * Others close what they have of a process that is going to die. What an open file
 * has ends with the address space that opened it, but exit does not wait
 * unless the file is closed, so the model would not know when.
 */
static bool close_shared(int owner)
{
	for (int i = 0; i < PROCESSES * OPEN_FILES; i++) {
		struct order o = { .op = OP_CLOSE, .open_file = i % OPEN_FILES };
		const struct open_file *open_file = &world.open_files[o.open_file];
		int process = i / OPEN_FILES;
		struct worker *w = &world.workers[process];
		struct reply r;

		if (!open_file->used || open_file->owner != owner || process == owner ||
		    !(open_file->holders & 1U << process))
			continue;
		if (worker_tell(w, &o, 1) || worker_answer(w, &r, 1) || r.ret)
			return false;
		apply(&world, process, &o, &r);
	}
	return true;
}

/*
 * Whether a call that failed has left its structure alone. One that a signal
 * ended has stored what is left of its time there.
 */
static bool is_untouched(const struct order *o, const struct reply *r)
{
	__u32 timeout = calls[o->call].timeout;
	union uldma_args args = r->args;
	__u64 before, left;

	if (timeout && r->ret == -EINTR) {
		memcpy(&before, (const char *)&o->args + timeout, sizeof(before));
		memcpy(&left, (const char *)&args + timeout, sizeof(left));
		if (left <= before)
			memcpy((char *)&args + timeout, &before, sizeof(before));
	}
	return !memcmp(&o->args, &args, sizeof(args));
}

/* One step, compared with the model: whether all is well. */
static bool do_step(int number, int process, const struct order *o, bool *known)
{
	struct worker *w = &world.workers[process];
	struct verdict v;
	struct reply r;
	const char *wrong;
	int ret;

	if (o->op == OP_DIE) {
		if (!close_shared(process)) {
			fail_with(number, process, o, "what it has shared cannot be closed");
			return false;
		}
		worker_end(w);
		forget_process(&world, process);
		return start_worker(process);
	}
	judge(&world, process, o, &v);
	ret = worker_tell(w, o, 1) ?: worker_answer(w, &r, 1);
	if (ret) {
		fail_with(number, process, o, ret == -ETIMEDOUT ? "it does not return" :
								  "the worker has died");
		return false;
	}
	executions++;
	if (telling) {
		describe(stderr, process, o);
		fprintf(stderr, " = %ld\n", r.ret);
	}
	if (o->op == OP_IOCTL)
		results[o->call][r.ret < 0 && r.ret > -134 ? -r.ret : 0]++;
	note(state_of(&world, process, o), r.ret);
	if (!is_right(&v, r.ret)) {
		fail_answer(number, process, o, &v, r.ret);
		return false;
	}
	if (o->op == OP_IOCTL && r.ret < 0 && o->where == AT_MEMORY && !is_untouched(o, &r)) {
		fail_with(number, process, o, "it failed, and wrote to its structure");
		return false;
	}
	*known = !is_open(o, r.ret);
	if (is_naming(o, r.ret))
		note_named(&world.open_files[o->open_file], &o->args);
	wrong = r.ret < 0 ? NULL : apply(&world, process, o, &r);
	if (wrong)
		fail_with(number, process, o, wrong);
	return !wrong;
}

/* Operations that can run beside others. */
static bool can_race(struct order *o)
{
	if (o->op == OP_OPEN || o->op == OP_TOUCH || o->op == OP_DIE)
		return false;
	o->in_child = false;
	return true;
}

static bool do_race(__u32 seed)
{
	struct order orders[PROCESSES][RACERS];
	struct reply replies[RACERS];
	struct chance c = { .state = seed };
	int counts[PROCESSES] = { }, process;
	struct order o;

	for (int i = 0; i < PROCESSES * RACERS; i++) {
		process = make_order(&world, draw(&c), &o);
		if (counts[process] == RACERS || !can_race(&o))
			continue;
		o.repeat = 1 + below(&c, MAX_REPEAT);
		if (o.op == OP_MMAP)
			o.c = MAPPINGS - 1 - counts[process];
		orders[process][counts[process]++] = o;
	}
	for (int i = 0; i < PROCESSES; i++)
		if (counts[i] && worker_tell(&world.workers[i], orders[i], counts[i]))
			goto died;
	for (int i = 0; i < PROCESSES; i++) {
		process = i;
		if (counts[i] && worker_answer(&world.workers[i], replies, counts[i]))
			goto died;
		races += counts[i];
		for (int j = 0; j < counts[i]; j++)
			if (replies[j].ret < 0 && !strerrorname_np(-replies[j].ret)) {
				fail_with(-1, i, &orders[i][j], "an error that is none");
				return false;
			}
	}
	return true;
died:
	fail_with(-1, process, &orders[process][0], "a race does not end, or a worker has died");
	return false;
}

/* What an earlier program left may end meanwhile, too. */
static bool is_idle(const struct device *d, const struct uldma_query *q)
{
	const struct uldma_query *idle = &d->idle;

	return q->out_regions <= idle->out_regions && q->out_pages <= idle->out_pages &&
	       q->out_contexts_used <= idle->out_contexts_used &&
	       q->out_window_used <= idle->out_window_used &&
	       q->out_connections <= idle->out_connections &&
	       q->out_user_endpoints <= idle->out_user_endpoints;
}

/* The peer hears of some ends only a little later. */
static bool nothing_is_left(const struct device *d)
{
	int fd = open(d->path, O_RDWR | O_CLOEXEC);
	time_t limit = time(NULL) + SOON / 1000;
	struct uldma_query q;

	do {
		q = query(fd);
	} while (!is_idle(d, &q) && time(NULL) < limit && !sched_yield());
	close(fd);
	if (is_idle(d, &q))
		return true;
	lasting = true;
	snprintf(failure, sizeof(failure),
		 "%s is not idle at the end: %u regions, %u pages, %u contexts, %llu bytes of the window, %u connections, %u endpoints",
		 d->path, q.out_regions, q.out_pages, q.out_contexts_used, q.out_window_used,
		 q.out_connections, q.out_user_endpoints);
	return false;
}

static bool finish(void)
{
	const struct order reset = { .op = OP_RESET };
	struct reply r;

	part();
	for (int i = 0; i < PROCESSES; i++) {
		if (worker_tell(&world.workers[i], &reset, 1) ||
		    worker_answer(&world.workers[i], &r, 1)) {
			fail_with(-1, i, &reset, "the worker is stuck, or has died");
			return false;
		}
	}
	/* Files of a process may be open in a later process. */
	for (int i = 0; i < PROCESSES; i++) {
		if (worker_tell(&world.workers[i], &reset, 1) ||
		    worker_answer(&world.workers[i], &r, 1) || r.ret) {
			fail_with(-1, i, &reset, "pages stay pinned when all is closed");
			return false;
		}
	}
	forget_all(&world);
	for (int i = 0; i < world.device_count; i++)
		if (!nothing_is_left(&world.devices[i]))
			return false;
	return true;
}

/* Workers that are stuck or dead are of no more use. */
static void begin_anew(void)
{
	part();
	for (int i = 0; i < PROCESSES; i++) {
		worker_end(&world.workers[i]);
		start_worker(i);
	}
	forget_all(&world);
}

static bool run(const struct sequence *s)
{
	bool known = true;
	struct order o;
	int process;

	sequences++;
	failure[0] = 0;
	for (int i = 0; i < s->count && known; i++) {
		process = make_order(&world, s->steps[i], &o);
		if (!do_step(i, process, &o, &known))
			goto failed;
	}
	if (s->race && !do_race(s->race))
		goto failed;
	if (finish())
		return true;
failed:
	begin_anew();
	return false;
}

static void print_sequence(const struct sequence *s)
{
	for (int i = 0; i < s->count; i++)
		printf("%x,", s->steps[i]);
	printf("r%x\n", s->race);
}

static bool read_sequence(char *text, struct sequence *s)
{
	*s = (struct sequence){ };
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (word[0] == 'r')
			s->race = strtoul(word + 1, NULL, 16);
		else if (s->count < STEPS)
			s->steps[s->count++] = strtoul(word, NULL, 16);
		else
			return false;
	}
	return true;
}

/* Takes out what is not needed to fail. */
static void shorten(struct sequence *s)
{
	time_t limit = time(NULL) + SHORTEN_SECONDS;
	struct sequence less = *s;

	less.race = 0;
	if (s->race && !run(&less))
		*s = less;
	for (int at = s->count - 1; at >= 0 && time(NULL) < limit; at--) {
		less = *s;
		memmove(less.steps + at, less.steps + at + 1,
			(less.count - at - 1) * sizeof(less.steps[0]));
		less.count--;
		if (!run(&less))
			*s = less;
	}
}

static __u32 step(struct chance *c, __u32 of_messages)
{
	return (draw(c) & ~OF_MESSAGES) | of_messages;
}

/* A new sequence, or one made of those that were kept. */
static void make_sequence(struct chance *c, struct sequence *s)
{
	__u32 of_messages = one_in(c, 4) ? OF_MESSAGES : 0;
	const struct sequence *other;
	int at;

	*s = (struct sequence){ .race = one_in(c, 3) ? draw(c) | 1 : 0 };
	if (!corpus_count || one_in(c, 4)) {
		s->count = STEPS / 4 + below(c, STEPS * 3 / 4);
		for (int i = 0; i < s->count; i++)
			s->steps[i] = step(c, of_messages);
		return;
	}
	other = &corpus[below(c, corpus_count)];
	memcpy(s->steps, other->steps, sizeof(s->steps));
	s->count = other->count;
	if (one_in(c, 3)) {
		/* The end of another one. */
		other = &corpus[below(c, corpus_count)];
		at = below(c, s->count);
		memcpy(s->steps + at, other->steps + at, sizeof(s->steps) - at * sizeof(__u32));
		s->count = other->count > at ? other->count : at;
	}
	for (__u64 i = 1 + below(c, 6); i; i--) {
		at = below(c, s->count + (s->count < STEPS));
		s->steps[at] = step(c, of_messages);
		s->count = at < s->count ? s->count : at + 1;
	}
}

static void keep(struct chance *c, const struct sequence *s)
{
	unsigned int new = coverage_new();

	places += new;
	if (fresh || new)
		corpus[corpus_count < CORPUS ? corpus_count++ : below(c, CORPUS)] = *s;
	fresh = 0;
}

static void report(void)
{
	printf("# %lu sequences, %lu steps, %lu orders in races\n", sequences, executions, races);
	printf("# %u pairs of state and answer, %d sequences kept", seen_count, corpus_count);
	if (coverage_is_there())
		printf(", %lu places in the kernel", places);
	printf("\n");
	for (int i = 0; i < call_count; i++) {
		printf("# %-18s", calls[i].name);
		for (int err = 0; err < ARRAY_SIZE(results[i]); err++)
			if (results[i][err])
				printf(" %s %lu", error_name(err), results[i][err]);
		printf("\n");
	}
}

static bool find_devices(bool remote)
{
	struct device *d;
	int fd;

	for (int i = 0; i < DEVICES; i++) {
		d = &world.devices[world.device_count];
		snprintf(d->path, sizeof(d->path), "/dev/uldma%d", i);
		fd = open(d->path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		d->idle = query(fd);
		d->engine = d->idle.out_backend == ULDMA_BACKEND_ADAPTER;
		d->remote = d->engine && remote;
		world.device_count++;
		close(fd);
	}
	/* The nodes of a loopback are all here. */
	for (int i = 0; i < world.device_count; i++) {
		d = &world.devices[i];
		memset(d->peers, -1, sizeof(d->peers));
		for (int j = 0; j < world.device_count; j++)
			if (d->idle.out_backend == ULDMA_BACKEND_LOOPBACK && i != j &&
			    world.devices[j].idle.out_backend == ULDMA_BACKEND_LOOPBACK)
				d->peers[world.devices[j].idle.out_node] = j;
	}
	return world.device_count;
}

static bool has_succeeded(__u32 number)
{
	for (int i = 0; i < call_count; i++)
		if (calls[i].number == number)
			return results[i][0];
	return false;
}

/* Returns true unless another node would send messages, and none has crossed. */
static bool messages_crossed(void)
{
	for (int i = 0; i < world.device_count; i++)
		if (world.devices[i].remote)
			return world.found && has_succeeded(ULDMA_CMD_MSG_SEND) &&
			       has_succeeded(ULDMA_CMD_MSG_RECV);
	return true;
}

static bool fuzz(__u64 seed, int seconds)
{
	struct chance c = { .state = seed };
	time_t limit = time(NULL) + seconds, last = limit + MORE * seconds;
	struct sequence s;

	while (time(NULL) < limit || (time(NULL) < last && !messages_crossed())) {
		make_sequence(&c, &s);
		if (!run(&s)) {
			printf("# FAILED: %s\n# ", failure);
			print_sequence(&s);
			if (lasting)
				return false;
			shorten(&s);
			telling = true;
			run(&s);
			printf("# shortest: %s\n# again: uldma_fuzz -r ", failure);
			print_sequence(&s);
			return false;
		}
		keep(&c, &s);
	}
	if (!messages_crossed() && sequences < ENOUGH) {
		printf("# too few sequences to tell whether messages cross\n");
	} else if (!messages_crossed()) {
		snprintf(failure, sizeof(failure), "no message has crossed, or one way only");
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	__u64 seed = time(NULL) ^ (__u64)getpid() << 32;
	struct sequence replay = { };
	int seconds = 20, option;
	bool remote = false, ok;

	if (argc == 2 && !strcmp(argv[1], "serve"))
		return serve_peer();
	while ((option = getopt(argc, argv, "s:S:r:pcv")) != -1) {
		if (option == 's')
			seconds = atoi(optarg);
		else if (option == 'S')
			seed = strtoull(optarg, NULL, 0);
		else if (option == 'p')
			remote = true;
		else if (option == 'c')
			world.of_connections = true;
		else if (option == 'v')
			telling = true;
		else if (option != 'r' || !read_sequence(optarg, &replay))
			return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!find_devices(remote)) {
		printf("1..0 # SKIP no device\n");
		return 4;
	}
	printf("TAP version 13\n1..1\n# SEED=%llu\n", seed);
	coverage_start();
	forget_all(&world);
	for (int i = 0; i < PROCESSES; i++)
		if (!start_worker(i))
			return 1;
	ok = replay.count || replay.race ? run(&replay) : fuzz(seed, seconds);
	if (!ok)
		printf("# %s\n", failure);
	report();
	for (int i = 0; i < PROCESSES; i++)
		worker_end(&world.workers[i]);
	printf("%s 1 uldma_fuzz\n", ok ? "ok" : "not ok");
	return !ok;
}
