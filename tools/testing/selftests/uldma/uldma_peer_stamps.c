// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel of one node takes pages of a process away and moves them, while the other
 * node reads and writes them by imports: it never reads a byte of another page or an
 * old one, and no write that was acknowledged is lost, or found elsewhere.
 *
 * What each page may be is in a segment, which both nodes see.
 */
#include "uldma_harness.h"
#include "uldma_peer_client.h"
#include "uldma_rounds.h"
#include "uldma_two_nodes.h"

#define HALF 32
#define STATES 0x73746174ULL

enum stamps_verb {
	STAMPS_MAKE = PEER_OWN,	/* kind of round: memory and segment */
	STAMPS_ROUND,		/* one round; how much it has counted */
	STAMPS_END,		/* nothing goes on any more: checks all, and ends it */
};

struct kind {
	int (*round)(struct owner *o);
	/* Returns why it cannot be done on this node, or NULL. */
	const char *(*begin)(struct owner *o);
	void (*end)(struct owner *o);
};

static const struct kind kinds[] = {
	{ paged_out, outside_begin, outside_end },
	{ migrated, nodes_begin, NULL },
};

/* What both nodes see. */
struct seen {
	struct page_state state[2 * HALF];
	/* What the owner has found. */
	char harm[HARM_LENGTH];
};

static struct {
	struct owner o;
	const struct kind *kind;
	int fd;
	struct segment segment;
} served;

static int export_half(struct owner *o, size_t first, __u64 name)
{
	struct region r;

	return region_register(served.fd, page_at(o, first), o->half * o->page,
			       RW | ULDMA_REGISTER_OPTIMISTIC, &r) ?:
	       region_export(served.fd, r.handle, RW, name);
}

static int make(__u64 kind)
{
	struct owner *o = &served.o;
	int ret;

	*o = (struct owner){ .page = page_size(), .half = HALF, .file = -1 };
	o->at = map_small(o, 2 * HALF * o->page);
	o->copy = buffer(2 * HALF * o->page);
	served.fd = uldma_open(O_NONBLOCK);
	if (!o->at || !o->copy || served.fd < 0)
		return -ENOMEM;
	ret = segment_create(served.fd, STATES, page_size(), &served.segment) ?:
	      segment_map(served.fd, &served.segment) ?:
	      export_half(o, 0, NAME) ?: export_half(o, HALF, NAME + 1);
	if (ret)
		return ret;
	o->state = ((struct seen *)served.segment.map)->state;
	memset(served.segment.map, 0, sizeof(struct seen));
	restamp(o, 0, HALF);
	touch_pages(o, HALF, HALF);
	served.kind = &kinds[kind % ARRAY_SIZE(kinds)];
	return served.kind->begin && served.kind->begin(o) ? -ENODATA : 0;
}

static __s64 make_round(void)
{
	struct owner *o = &served.o;
	unsigned long before = o->events;
	int ret = served.kind->round(o);

	return ret ?: (__s64)(o->events - before);
}

static int end(void)
{
	struct seen *seen = (struct seen *)served.segment.map;
	struct owner *o = &served.o;

	check_writes(o, HALF, HALF);
	memcpy(seen->harm, o->writer.harm, sizeof(seen->harm));
	if (served.kind->end)
		served.kind->end(o);
	munmap(served.segment.map, served.segment.length);
	close(served.fd);
	munmap(o->at, 2 * HALF * o->page);
	munmap(o->copy, 2 * HALF * o->page);
	return 0;
}

static __s64 execute_own(const struct peer_command *command)
{
	switch (command->verb) {
	case STAMPS_MAKE:
		return make(command->args[0]);
	case STAMPS_ROUND:
		return make_round();
	case STAMPS_END:
		return end();
	default:
		return -EINVAL;
	}
}

static int serve(void)
{
	return peer_serve_with(execute_own);
}

FIXTURE(peer_stamps) {
	struct peer peer;
	/* The other node's memory, which is nowhere here. */
	struct owner o;
	int fd;
	struct segment segment;
};

FIXTURE_VARIANT(peer_stamps) {
	int kind;
	const char *lacks;
};

FIXTURE_VARIANT_ADD(peer_stamps, paged_out) { 0, "the other node has no swap" };

FIXTURE_VARIANT_ADD(peer_stamps, migrated) {
	1, "the other machine has one node of memory"
};

static int import_half(struct mover *m, struct owner *o, __u64 name)
{
	int ret = mover_open(m, o);

	return ret ?: region_import(m->fd, name, RW, &m->r) ?: mover_map(m);
}

FIXTURE_SETUP(peer_stamps)
{
	struct owner *o = &self->o;
	int ret;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
	ret = peer_call(&self->peer, STAMPS_MAKE, { variant->kind });
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	if (ret == -ENODATA) {
		peer_call(&self->peer, STAMPS_END);
		SKIP(return, "%s", variant->lacks);
	}
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, segment_attach(self->fd, STATES, &self->segment));
	ASSERT_EQ(0, segment_map(self->fd, &self->segment));
	*o = (struct owner){ .page = page_size(), .half = HALF, .file = -1 };
	o->state = ((struct seen *)self->segment.map)->state;
	ASSERT_EQ(0, import_half(&o->reader, o, NAME));
	ASSERT_EQ(0, import_half(&o->writer, o, NAME + 1));
}

FIXTURE_TEARDOWN(peer_stamps)
{
	owner_end(&self->o);
	close(self->peer.fd);
	close(self->fd);
}

/* Enough has been moved, and has been missing. */
static bool moved_enough(const struct mover *m)
{
	return LOAD_ACQUIRE(m->moved) >= ENOUGH &&
	       LOAD_ACQUIRE(m->exceptions) >= ENOUGH;
}

TEST_F(peer_stamps, are_true)
{
	const struct seen *seen = (struct seen *)self->segment.map;
	__u64 limit = now_ns() + LIMIT;
	struct owner *o = &self->o;
	unsigned long rounds = 0;
	char found[HARM_LENGTH];
	__s64 ret;

	ASSERT_EQ(0, owner_go(o));
	do {
		ret = peer_call(&self->peer, STAMPS_ROUND);
		o->events += ret > 0 ? ret : 0;
		rounds++;
	} while (ret >= 0 && !owner_fails(o) && now_ns() < limit &&
		 !(moved_enough(&o->reader) && moved_enough(&o->writer) &&
		   o->events >= ENOUGH));
	owner_halt(o);
	EXPECT_EQ(0, peer_call(&self->peer, STAMPS_END));
	memcpy(found, seen->harm, sizeof(found));
	TH_LOG("%lu rounds, %lu events, reads %lu of %lu, %lu missing; writes %lu, %lu missing",
	       rounds, o->events, o->reader.moved, o->reader.rounds,
	       o->reader.exceptions, o->writer.moved, o->writer.exceptions);
	EXPECT_LE(0, ret);
	EXPECT_EQ(0, o->reader.ret);
	EXPECT_EQ(0, o->writer.ret);
	EXPECT_STREQ("", o->reader.harm);
	EXPECT_STREQ("", o->writer.harm);
	EXPECT_STREQ("", found);
	EXPECT_LE(ENOUGH, o->events);
	EXPECT_TRUE(moved_enough(&o->reader));
	EXPECT_TRUE(moved_enough(&o->writer));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, serve, peer_quit);
}
