// SPDX-License-Identifier: GPL-2.0
/*
 * Queues that many use at a time, or that are misused: sums are exact, what is
 * written into descriptors harms no other process, and a context ends also while its
 * queue is full.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_queue.h"

#define ADDERS 4
#define ADDS 500
#define ROUNDS 150

static __u64 dice(__u64 *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return pattern_at(3, *state >> 20);
}

/**
 * struct adder - a thread that adds to a shared word
 * @thread: itself, if it is no process
 * @word: the page that the word is the first of
 * @failed: what went wrong
 * @sum: of what the word was, by its records
 */
struct adder {
	pthread_t thread;
	__u64 *word;
	int failed;
	__u64 sum;
};

static void *add(void *arg)
{
	struct adder *a = arg;
	struct uldma_descriptor d;
	struct context c;
	struct region r;
	int fd = uldma_open(0);

	a->failed = fd < 0 ? fd : region_register(fd, a->word, 8, RW, &r) ?:
		    context_create_as(fd, ULDMA_METHOD_QUEUE, 0, &c) ?:
		    context_map(fd, &c);
	if (a->failed)
		return NULL;
	d = fetch_add_of(&r, 0, 1);
	for (int i = 1; i <= ADDS && !a->failed; i++) {
		/* Its record is overwritten next. */
		if (i > ULDMA_STATUS_RECORDS) {
			__u64 old = i - ULDMA_STATUS_RECORDS;

			a->failed = status_of(&c, old);
			a->sum += status_record(&c, old).bytes;
		}
		if (queue_post(&c, &d) != i)
			a->failed = -ETIMEDOUT;
		queue_ring(&c);
	}
	for (int i = ADDS - ULDMA_STATUS_RECORDS + 1; i <= ADDS; i++) {
		a->failed = a->failed ?: status_of(&c, i);
		a->sum += status_record(&c, i).bytes;
	}
	close(fd);
	return NULL;
}

static int add_in_child(void *arg)
{
	struct adder *a = arg;

	add(a);
	return a->failed;
}

/* Of the numbers below n, each was seen once if no addition was lost. */
static __u64 sum_below(__u64 n)
{
	return n * (n - 1) / 2;
}

TEST(threads_add_to_one_word)
{
	struct adder adders[ADDERS] = { };
	__u64 *word = buffer(page_size());
	__u64 sum = 0;

	ASSERT_NE(NULL, word);
	for (int i = 0; i < ADDERS; i++) {
		adders[i].word = word;
		ASSERT_EQ(0, pthread_create(&adders[i].thread, NULL, add,
					    &adders[i]));
	}
	for (int i = 0; i < ADDERS; i++) {
		ASSERT_EQ(0, pthread_join(adders[i].thread, NULL));
		EXPECT_EQ(0, adders[i].failed);
		sum += adders[i].sum;
	}
	EXPECT_EQ(ADDERS * ADDS, *word);
	EXPECT_EQ(sum_below(ADDERS * ADDS), sum);
}

TEST(processes_add_to_one_word)
{
	struct adder adder = { };
	pid_t pids[ADDERS];
	int status;

	adder.word = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, adder.word);
	for (int i = 0; i < ADDERS; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (!pids[i])
			_exit(-add_in_child(&adder));
	}
	for (int i = 0; i < ADDERS; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	EXPECT_EQ(ADDERS * ADDS, *adder.word);
}

FIXTURE(abuse) {
	struct party p;
	/* Memory that no descriptor may change: read only, or not registered. */
	char *readonly;
	char *elsewhere;
	struct region r;
	/* And what belongs to another process. */
	char *foreign;
	struct helper owner;
	__u32 foreign_index;
};

static void register_and_tell(int fd, void *arg)
{
	char *buf = arg;
	struct region r = { };
	int own = uldma_open(0);

	if (own < 0 || region_register(own, buf, page_size(), RW, &r))
		r.index = 0;
	if (write(fd, &r.index, sizeof(r.index)) != sizeof(r.index))
		_exit(1);
}

FIXTURE_SETUP(abuse)
{
	size_t page = page_size();

	self->readonly = buffer(page);
	self->elsewhere = buffer(page);
	self->foreign = mmap(NULL, page, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(NULL, self->readonly);
	ASSERT_NE(NULL, self->elsewhere);
	ASSERT_NE(MAP_FAILED, self->foreign);
	pattern_fill(self->readonly, page, 11);
	pattern_fill(self->elsewhere, page, 12);
	pattern_fill(self->foreign, page, 13);
	ASSERT_EQ(0, helper_start(&self->owner, register_and_tell,
				  self->foreign));
	ASSERT_EQ(4, read(self->owner.fd, &self->foreign_index, 4));
	ASSERT_NE(0, self->foreign_index);
	ASSERT_EQ(0, party_open(&self->p));
	ASSERT_EQ(0, region_register(self->p.fd, self->readonly, page,
				     ULDMA_ACCESS_READ, &self->r));
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_QUEUE, 0));
}

FIXTURE_TEARDOWN(abuse)
{
	size_t page = page_size();

	EXPECT_EQ(-1, pattern_check(self->readonly, page, 11));
	EXPECT_EQ(-1, pattern_check(self->elsewhere, page, 12));
	EXPECT_EQ(-1, pattern_check(self->foreign, page, 13));
	close(self->p.fd);
	EXPECT_EQ(0, helper_kill(&self->owner));
}

TEST_F(abuse, foreign_region)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, 64);
	struct region foreign = { .index = self->foreign_index };

	d.src = self->foreign_index;
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER, queue_do(&p->c, d, NULL));
	d = copy_of(p, 0, 0, 64);
	d.dst = self->foreign_index;
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER, queue_do(&p->c, d, NULL));
	d = copy_of(p, 0, 0, 64);
	d.dst = self->r.index;
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT, queue_do(&p->c, d, NULL));
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER,
		  queue_do(&p->c, fetch_add_of(&foreign, 0, 1), NULL));
	EXPECT_EQ(ULDMA_DMA_NOT_OWNER,
		  queue_do(&p->c, compare_swap_of(&foreign, 0, 0, 1), NULL));
	EXPECT_EQ(-1, pattern_check(p->dst, p->length, 2));
}

/* A descriptor of which every field is likely to be almost right. */
static void plausible(struct _test_data_abuse *self, __u64 *state,
		      struct uldma_descriptor *d)
{
	struct party *p = &self->p;
	const __u32 regions[] = {
		p->s.index, p->d.index, self->r.index, self->foreign_index, 0,
		dice(state),
	};
	const __u64 offsets[] = {
		0, 8, p->length - 8, p->length, dice(state) % p->length,
		-8, dice(state),
	};

	*d = (struct uldma_descriptor){
		.op = dice(state) % 5,
		.flags = dice(state) % 8,
		.src = regions[dice(state) % ARRAY_SIZE(regions)],
		.dst = regions[dice(state) % ARRAY_SIZE(regions)],
		.src_offset = offsets[dice(state) % ARRAY_SIZE(offsets)],
		.dst_offset = offsets[dice(state) % ARRAY_SIZE(offsets)],
		.length = offsets[dice(state) % ARRAY_SIZE(offsets)],
		.operand = dice(state),
		.compare = dice(state),
	};
}

TEST_F(abuse, plausible_garbage)
{
	struct party *p = &self->p;
	struct uldma_descriptor d;
	__u64 state = 1;

	for (int i = 1; i <= ROUNDS * ULDMA_STATUS_RECORDS; i++) {
		plausible(self, &state, &d);
		ASSERT_EQ(i, queue_post(&p->c, &d));
		queue_ring(&p->c);
	}
	ASSERT_EQ(0, status_wait(&p->c, p->c.ticket));
	/* Some were right and others were not. */
	EXPECT_LT(0, READ_ONCE(p->c.status->failed));
	EXPECT_GT(p->c.ticket, READ_ONCE(p->c.status->failed));
	EXPECT_EQ(0, party_works(p));
}

/* Not even the number is right, but by chance; and all changes all the time. */
TEST_F(abuse, garbage)
{
	struct party *p = &self->p;
	size_t words = page_size() / sizeof(__u64);
	volatile __u64 *queue = (__u64 *)p->c.queue;
	__u64 state = 2, next;

	for (int i = 0; i < ROUNDS; i++) {
		for (size_t n = 0; n < words; n++)
			queue[n] = dice(&state);
		/* Let it take the next one for what it is, as it is. */
		next = READ_ONCE(p->c.status->completed) + 1;
		WRITE_ONCE(p->c.queue[next % ULDMA_STATUS_RECORDS].ticket,
			   next);
		device_store((uintptr_t)p->c.page, dice(&state));
	}
	ASSERT_EQ(0, queue_sleeps(p));
	EXPECT_LT(0, READ_ONCE(p->c.status->completed));
	ASSERT_EQ(0, party_no_context(p));
	ASSERT_EQ(0, party_context(p, ULDMA_METHOD_QUEUE, 0));
	EXPECT_EQ(0, party_works(p));
}

/* Posts as much as there is room for, and rings. */
static void fill_queue(struct party *p)
{
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length);

	for (int i = 0; i < ULDMA_STATUS_RECORDS; i++)
		queue_post(&p->c, &d);
	queue_ring(&p->c);
}

/* When the call returns, nothing is under way any more. */
TEST_F(abuse, destroy_while_busy)
{
	struct party *p = &self->p;

	for (int i = 0; i < 20; i++) {
		fill_queue(p);
		ASSERT_EQ(0, party_no_context(p));
		memset(p->dst, 0x33, p->length);
		ASSERT_EQ(0, party_context(p, ULDMA_METHOD_QUEUE, 0));
		ASSERT_EQ(0, queue_do(&p->c, copy_of(p, 0, 0, 8), NULL));
		for (size_t n = 8; n < p->length; n++)
			ASSERT_EQ(0x33, p->dst[n]);
	}
}

/* Nor when a region goes of which there are descriptors. */
TEST_F(abuse, unregister_while_busy)
{
	struct party *p = &self->p;
	int status;

	for (int i = 0; i < 20; i++) {
		__u64 first = p->c.ticket + 1;

		fill_queue(p);
		ASSERT_EQ(0, region_unmap(&p->d));
		ASSERT_EQ(0, region_unregister(p->fd, p->d.handle));
		memset(p->dst, 0x33, p->length);
		for (__u64 n = first; n <= p->c.ticket; n++) {
			status = status_of(&p->c, n);
			ASSERT_TRUE(status == ULDMA_DMA_OK ||
				    status == ULDMA_DMA_ABORTED ||
				    status == ULDMA_DMA_NOT_VALID)
				TH_LOG("ticket %llu: %d", n, status);
		}
		for (size_t n = 0; n < p->length; n++)
			ASSERT_EQ(0x33, p->dst[n]);
		ASSERT_EQ(0, region_register(p->fd, p->dst, p->length, RW,
					     &p->d));
		ASSERT_EQ(0, region_map(p->fd, &p->d, PROT_READ | PROT_WRITE));
	}
}

enum ending {
	BY_EXIT,
	BY_CLOSE,
	BY_SIGNAL,
};

static int fill_and_end(void *arg)
{
	enum ending ending = *(enum ending *)arg;
	struct party p;
	int ret = party_open(&p) ?: party_context(&p, ULDMA_METHOD_QUEUE, 0);

	if (ret)
		return ret;
	fill_queue(&p);
	if (ending == BY_CLOSE)
		return party_no_context(&p) ?: close(p.fd);
	if (ending == BY_SIGNAL)
		raise(SIGKILL);
	return 0;
}

TEST_F(abuse, end_with_a_full_queue)
{
	__u32 used = query(self->p.fd).out_contexts_used;
	long long pins = machine_pins();

	for (int i = 0; i < 15; i++) {
		enum ending ending = i % 3;

		EXPECT_EQ(ending == BY_SIGNAL ? SIGKILL : 0,
			  in_child(fill_and_end, &ending));
		EXPECT_EQ(used, query(self->p.fd).out_contexts_used);
	}
	EXPECT_EQ(pins, machine_pins());
	EXPECT_EQ(0, party_works(&self->p));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
