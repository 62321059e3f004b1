// SPDX-License-Identifier: GPL-2.0
/*
 * The properties of all initiation methods: which open files get a context,
 * data moves, forbidden transfers are refused, and no open file can use the
 * objects of another.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_method.h"
#include "uldma_trace.h"

/* Contexts made one after the other. More than context switches can report. */
#define AGAIN 100
#define NO_REGION 0x3ffe

FIXTURE(methods) {
	int fd;
};

FIXTURE_SETUP(methods)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(methods)
{
	close(self->fd);
}

TEST_F(methods, all_that_are_secure)
{
	EXPECT_EQ(0x3ff, query(self->fd).out_methods &
				 ~ULDMA_METHODS_INSECURE);
}

TEST_F(methods, unknown)
{
	static const __u32 numbers[] = {
		10, 11, 12, 13, 14, 15, 21, 22, 30, 31, 32, 33, 64, 256,
		1U << 31, ~0U
	};
	__u32 used = query(self->fd).out_contexts_used;
	struct context c;

	for (int i = 0; i < ARRAY_SIZE(numbers); i++) {
		EXPECT_EQ(-EOPNOTSUPP,
			  context_create_as(self->fd, numbers[i], 0, &c))
			TH_LOG("method %u", numbers[i]);
	}
	EXPECT_EQ(used, query(self->fd).out_contexts_used);
	EXPECT_EQ(0, context_create(self->fd, &c));
}

TEST_F(methods, insecure_need_permission)
{
	struct uldma_query before = query(self->fd);
	struct context c;

	if (before.out_methods & ULDMA_METHODS_INSECURE)
		SKIP(return, "the module was loaded with insecure_methods=1");
	for (int m = ULDMA_METHOD_PAL; m <= ULDMA_METHOD_REPEATED_4; m++) {
		EXPECT_EQ(-EPERM, context_create_as(self->fd, m, 0, &c))
			TH_LOG("method %d", m);
	}
	EXPECT_EQ(before.out_contexts_used, query(self->fd).out_contexts_used);
}

TEST_F(methods, one_context_per_file)
{
	struct context c, d;

	for (int m = 0; m < 32; m++) {
		if (!method_offered(self->fd, m))
			continue;
		ASSERT_EQ(0, context_create_as(self->fd, m, 0, &c))
			TH_LOG("method %d", m);
		for (int n = 0; n < 32; n++)
			if (method_offered(self->fd, n))
				EXPECT_EQ(-EBUSY, context_create_as(self->fd, n,
								    0, &d));
		ASSERT_EQ(0, context_destroy(self->fd));
	}
}

/* A context has the pages and keys of its own method only. */
TEST_F(methods, what_is_told)
{
	struct context c;

	for (int m = 0; m < 32; m++) {
		if (!method_offered(self->fd, m))
			continue;
		ASSERT_EQ(0, context_create_as(self->fd, m, 0, &c));
		EXPECT_EQ(m == ULDMA_METHOD_KEY, !!c.key)
			TH_LOG("method %d: key %llx", m, c.key);
		EXPECT_EQ(m == ULDMA_METHOD_QUEUE, !!c.queue_offset)
			TH_LOG("method %d: queue %llx", m, c.queue_offset);
		EXPECT_NE(c.page_offset, c.status_offset);
		ASSERT_EQ(0, context_destroy(self->fd));
	}
}

static int create_in_child(void *method)
{
	struct context c;
	int fd = uldma_open(0);

	return fd < 0 ? fd : context_create_as(fd, *(__u32 *)method, 0, &c);
}

/* The kernel reports which space runs, so a space can have one such context. */
TEST_F(methods, one_sched_notify_context_per_space)
{
	__u32 methods[] = { ULDMA_METHOD_SHRIMP_2_ABORT, ULDMA_METHOD_FLASH };
	__u32 used = query(self->fd).out_contexts_used;
	int other = uldma_open(0);
	struct context c;

	ASSERT_LE(0, other);
	for (int i = 0; i < 4; i++) {
		__u32 mine = methods[i % 2], theirs = methods[i / 2];

		ASSERT_EQ(0, context_create_as(self->fd, mine, 0, &c));
		EXPECT_EQ(-EBUSY, context_create_as(other, theirs, 0, &c));
		EXPECT_EQ(used + 1, query(self->fd).out_contexts_used);
		EXPECT_EQ(0, in_child(create_in_child, &theirs));
		EXPECT_EQ(0, context_create(other, &c));
		ASSERT_EQ(0, context_destroy(other));
		ASSERT_EQ(0, context_destroy(self->fd));
		ASSERT_EQ(0, context_create_as(other, theirs, 0, &c));
		close(other);
		other = uldma_open(0);
		ASSERT_LE(0, other);
	}
	ASSERT_EQ(0, context_create_as(self->fd, methods[0], 0, &c));
	close(other);
}

/*
 * A probe of the scheduler changes its text, for which all CPUs are interrupted,
 * and its end waits for a grace period: no process may repeat that at will.
 */
TEST_F(methods, contexts_made_again_change_no_kernel_text)
{
	struct tracer t;
	struct context c;

	if (access(KPROBES, W_OK))
		SKIP(return, "the kernel has no tracer of functions");
	ASSERT_EQ(0, probe("begun", "tracepoint_probe_register"));
	ASSERT_EQ(0, probe("ended", "tracepoint_probe_unregister"));
	ASSERT_EQ(0, tracer_make(&t));
	ASSERT_EQ(0, trace_function(&t, "begun"));
	ASSERT_EQ(0, trace_function(&t, "ended"));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_FLASH, 0, &c));
	ASSERT_EQ(0, tracer_begin(&t));
	for (int i = 0; i < 4; i++) {
		EXPECT_EQ(0, context_destroy(self->fd));
		EXPECT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_FLASH, 0,
					       &c));
	}
	EXPECT_EQ(0, tracer_stop(&t));
	EXPECT_EQ(0, traced(&t, ": begun: ", ": ended: "));
	tracer_end(&t);
	no_probe("begun");
	no_probe("ended");
}

static void create_and_pass(int sock)
{
	int fd = uldma_open(0);
	struct context c;
	char byte;

	if (fd < 0 || context_create_as(fd, ULDMA_METHOD_KEY, 0, &c) ||
	    send_file(sock, fd, c.page_offset / page_size()) ||
	    read(sock, &byte, 1) != 1)
		_exit(1);
	_exit(0);
}

/* A file that came from another process is that process's. */
TEST_F(methods, passed_file)
{
	struct context c;
	int fds[2], fd;
	__u32 page;
	void *at;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		create_and_pass(fds[1]);
	close(fds[1]);
	fd = receive_file(fds[0], &page);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EPERM, context_create(fd, &c));
	EXPECT_EQ(-EPERM, context_destroy(fd));
	EXPECT_EQ(-EPERM, map_out(fd, 1, 0, 1, 0, 1));
	EXPECT_EQ(-EPERM, map(fd, page * page_size(), page_size(),
			      PROT_READ | PROT_WRITE, MAP_SHARED, &at));
	EXPECT_EQ(-EPERM, map(fd, page * page_size(), page_size(), PROT_READ,
			      MAP_SHARED, &at));
	ASSERT_EQ(1, write(fds[0], "", 1));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(-EPERM, context_create(fd, &c));
	close(fd);
	close(fds[0]);
}

FIXTURE(method) {
	struct party p;
	/* Expected bytes of the destination. */
	char *model;
};

FIXTURE_VARIANT(method) {
	enum uldma_method method;
};

FIXTURE_SETUP(method)
{
	ASSERT_EQ(0, party_open(&self->p));
	if (method_insecure(variant->method) &&
	    !method_offered(self->p.fd, variant->method))
		SKIP(return, "needs a module with insecure_methods=1");
	/* The method has one register for all CPUs, so this test runs on one. */
	if (variant->method == ULDMA_METHOD_FLASH_SINGLE)
		ASSERT_EQ(0, pin_to(0));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	ASSERT_EQ(0, party_context(&self->p, variant->method, 0));
}

FIXTURE_TEARDOWN(method)
{
	close(self->p.fd);
}

FIXTURE_VARIANT_ADD(method, extended_shadow) { ULDMA_METHOD_EXTENDED_SHADOW };
FIXTURE_VARIANT_ADD(method, extended_shadow_shared) {
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED };
FIXTURE_VARIANT_ADD(method, key) { ULDMA_METHOD_KEY };
FIXTURE_VARIANT_ADD(method, single_store) { ULDMA_METHOD_SINGLE_STORE };
FIXTURE_VARIANT_ADD(method, queue) { ULDMA_METHOD_QUEUE };
FIXTURE_VARIANT_ADD(method, repeated_5) { ULDMA_METHOD_REPEATED_5 };
FIXTURE_VARIANT_ADD(method, shrimp_1) { ULDMA_METHOD_SHRIMP_1 };
FIXTURE_VARIANT_ADD(method, shrimp_2_abort) { ULDMA_METHOD_SHRIMP_2_ABORT };
FIXTURE_VARIANT_ADD(method, flash) { ULDMA_METHOD_FLASH };
FIXTURE_VARIANT_ADD(method, pal) { ULDMA_METHOD_PAL };
FIXTURE_VARIANT_ADD(method, shrimp_2) { ULDMA_METHOD_SHRIMP_2 };
FIXTURE_VARIANT_ADD(method, flash_single) { ULDMA_METHOD_FLASH_SINGLE };
FIXTURE_VARIANT_ADD(method, repeated_3) { ULDMA_METHOD_REPEATED_3 };
FIXTURE_VARIANT_ADD(method, repeated_4) { ULDMA_METHOD_REPEATED_4 };

/* Returns true if the method can express these arguments. */
static bool carries(__u32 method, size_t dst, size_t src, __u64 bytes)
{
	if (method == ULDMA_METHOD_SINGLE_STORE)
		return !((dst | src | bytes) % 8);
	if (method == ULDMA_METHOD_SHRIMP_1)
		return dst == src && !(src % page_size()) && !(bytes % 8) &&
		       bytes <= page_size();
	return true;
}

/* Data really moves, all of it, and nothing else does. */
TEST_F(method, moves)
{
	static const struct {
		size_t dst;
		size_t src;
		__u64 bytes;
	} jobs[] = {
		{ 0, 0, 8 }, { 0, 0, 512 }, { 4096, 4096, 64 },
		{ 8192, 8192, 4096 }, { 8, 16, 64 }, { 4000, 96, 512 },
		{ 4096, 0, 4096 }, { 64, 8184, 8192 }, { 3, 5, 1 },
		{ 1001, 4093, 777 }, { 12, 8190, 4099 }, { 0, 0, 16384 },
	};
	struct uldma_completion record;
	struct party *p = &self->p;
	int moved = 0;

	for (int i = 0; i < ARRAY_SIZE(jobs); i++) {
		if (!carries(variant->method, jobs[i].dst, jobs[i].src,
			     jobs[i].bytes))
			continue;
		ASSERT_EQ(0, party_transfer(p, jobs[i].dst, jobs[i].src,
					    jobs[i].bytes))
			TH_LOG("job %d", i);
		memcpy(self->model + jobs[i].dst, p->src + jobs[i].src,
		       jobs[i].bytes);
		ASSERT_EQ(0, memcmp(self->model, p->dst, p->length))
			TH_LOG("job %d", i);
		moved++;
		EXPECT_EQ(moved, READ_ONCE(p->c.status->completed));
		record = status_record(&p->c, moved);
		EXPECT_EQ(moved, record.ticket);
		EXPECT_EQ(jobs[i].bytes, record.bytes);
		EXPECT_EQ(ULDMA_DMA_OK, record.status);
	}
	EXPECT_LE(4, moved);
	EXPECT_EQ(0, READ_ONCE(p->c.status->failed));
	EXPECT_EQ(moved, context_stats(p->fd).out_initiations);
	EXPECT_EQ(-1, pattern_check(p->src, p->length, 1));
}

TEST_F(method, no_data)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, variant->method, ULDMA_CONTEXT_NO_DATA));
	for (int i = 1; i <= 2 * ULDMA_STATUS_RECORDS; i++) {
		ASSERT_EQ(0, party_transfer(p, 0, 0, 4096));
		EXPECT_EQ(i, READ_ONCE(p->c.status->completed));
	}
	EXPECT_EQ(0, READ_ONCE(p->c.status->failed));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	/* A context that moves no data refuses the same transfers. */
	if (variant->method != ULDMA_METHOD_SHRIMP_1)
		EXPECT_EQ(ULDMA_DMA_BOUNDS,
			  party_transfer(p, 0, 0, p->length + 8));
}

TEST_F(method, again_and_again)
{
	struct party *p = &self->p;

	for (int i = 0; i < AGAIN; i++) {
		ASSERT_EQ(0, party_works(p))
			TH_LOG("context %d", i);
		ASSERT_EQ(0, party_no_context(p));
		ASSERT_EQ(0, party_context(p, variant->method, 0));
		ASSERT_EQ(0, READ_ONCE(p->c.status->completed));
	}
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
}

/* Each refusal has its reason, moves nothing, and does no harm. */
TEST_F(method, refused)
{
	struct party *p = &self->p;
	struct region none = p->d, readonly = p->d, unreadable = p->s;
	size_t page = page_size();
	struct region r;
	struct job j;

	if (variant->method == ULDMA_METHOD_SHRIMP_1)
		SKIP(return, "no region is named, and no length that is wrong");
	EXPECT_EQ(ULDMA_DMA_BAD_SIZE, party_transfer(p, 0, 0, 0));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, party_transfer(p, 0, 0, p->length + 8));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, party_transfer(p, 8, 0, p->length));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, party_transfer(p, 0, 8, p->length));

	none.index = NO_REGION;
	j = party_job(p, 0, 0, 8);
	j.dst = &none;
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, method_transfer(&p->c, &j));
	none = p->s;
	none.index = NO_REGION;
	j = party_job(p, 0, 0, 8);
	j.src = &none;
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, method_transfer(&p->c, &j));

	ASSERT_EQ(0, region_register(p->fd, p->dst, page, ULDMA_ACCESS_READ,
				     &r));
	readonly.index = r.index;
	j = party_job(p, 0, 0, 8);
	j.dst = &readonly;
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT, method_transfer(&p->c, &j));
	ASSERT_EQ(0, region_register(p->fd, p->src, page, ULDMA_ACCESS_WRITE,
				     &r));
	unreadable.index = r.index;
	j = party_job(p, 0, 0, 8);
	j.src = &unreadable;
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT, method_transfer(&p->c, &j));

	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_bytes);
	EXPECT_EQ(0, party_works(p));
}

static void register_and_tell(int fd, void *arg)
{
	struct party *p = arg;
	struct region r = { };
	int own = uldma_open(0);

	if (own < 0 || region_register(own, p->dst, p->length, RW, &r))
		r.index = 0;
	if (write(fd, &r.index, sizeof(r.index)) != sizeof(r.index))
		_exit(1);
}

TEST_F(method, region_of_another_process)
{
	struct party *p = &self->p;
	struct region foreign = p->d;
	struct helper helper = { };
	__u32 index = 0;
	struct job j;

	if (variant->method == ULDMA_METHOD_SHRIMP_1)
		SKIP(return, "no region is named");
	ASSERT_EQ(0, helper_start(&helper, register_and_tell, p));
	ASSERT_EQ(sizeof(index), read(helper.fd, &index, sizeof(index)));
	ASSERT_NE(0, index);
	foreign.index = index;
	j = party_job(p, 0, 0, 8);
	j.dst = &foreign;
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER, method_transfer(&p->c, &j));
	foreign = p->s;
	foreign.index = index;
	j = party_job(p, 0, 0, 8);
	j.src = &foreign;
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER, method_transfer(&p->c, &j));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, helper_kill(&helper));
}

#define THREADS 4
#define EACH 25

struct worker {
	pthread_t thread;
	struct party *p;
	pthread_mutex_t *lock;
	int number;
	int failed;
};

/* Page by page, or at places of its own, as the method can. */
static size_t place(__u32 method, int worker, int i)
{
	if (method == ULDMA_METHOD_SHRIMP_1)
		return worker * page_size();
	return (worker * EACH + i) * 64;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	size_t at;

	for (int i = 0; i < EACH && !w->failed; i++) {
		at = place(w->p->c.method, w->number, i);
		pthread_mutex_lock(w->lock);
		w->failed = party_transfer(w->p, at, at, 64);
		pthread_mutex_unlock(w->lock);
	}
	return NULL;
}

/* Threads share the context of their process, by turns. */
TEST_F(method, threads)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct worker workers[THREADS];
	struct party *p = &self->p;

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ 0, p, &lock, i };
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, work,
					    &workers[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(workers[i].thread, NULL));
		EXPECT_EQ(0, workers[i].failed);
		for (int n = 0; n < EACH; n++) {
			size_t at = place(variant->method, i, n);

			memcpy(self->model + at, p->src + at, 64);
		}
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(THREADS * EACH, READ_ONCE(p->c.status->completed));
}

/* 0 if the child has nothing of it. */
static int child_has_nothing(void *arg)
{
	struct party *p = arg;
	struct context c;

	if (touch(p->s.shadow, LOAD) != SIGSEGV ||
	    touch(p->d.shadow, STORE) != SIGSEGV ||
	    touch(p->c.page, STORE) != SIGSEGV ||
	    touch(p->c.page, LOAD) != SIGSEGV ||
	    touch(p->c.status, LOAD) != SIGSEGV)
		return -EEXIST;
	if (p->c.queue && touch(p->c.queue, STORE) != SIGSEGV)
		return -EEXIST;
	if (context_create(p->fd, &c) != -EPERM ||
	    context_destroy(p->fd) != -EPERM ||
	    context_map(p->fd, &p->c) != -EPERM)
		return -EBADF;
	return 0;
}

TEST_F(method, fork)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, in_child(child_has_nothing, p));
	EXPECT_EQ(0, context_stats(p->fd).out_initiations);
	EXPECT_EQ(0, party_works(p));
}

/* With the context goes all by which it could be reached. */
TEST_F(method, mappings_end_with_the_context)
{
	struct party *p = &self->p;

	ASSERT_EQ(0, context_destroy(p->fd));
	EXPECT_EQ(SIGBUS, touch(p->s.shadow, LOAD));
	EXPECT_EQ(SIGBUS, touch(p->d.shadow, STORE));
	EXPECT_EQ(SIGBUS, touch(p->c.page, STORE));
	EXPECT_EQ(SIGBUS, touch(p->c.status, LOAD));
	if (p->c.queue)
		EXPECT_EQ(SIGBUS, touch(p->c.queue, STORE));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
