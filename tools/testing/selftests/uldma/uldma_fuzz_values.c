// SPDX-License-Identifier: GPL-2.0
/*
 * Values for arguments of the fuzzer's calls: numbers at which something changes, and
 * handles, names and ports that the model has.
 */
#include "uldma_fuzz_model.h"

static const __u64 edges[] = {
	0, 1, 2, 7, 8, 63, 64, 65, 4095, 4096, 4097, 0x7fffffff, 0x80000000, 0xffffffff,
	1ULL << 32, 1ULL << 40, 1ULL << 47, 1ULL << 63, ~0ULL, ~0ULL - 4095, ~0ULL - 7,
};

static const __u64 lengths[] = { 1, 8, 100, 4095, 4096, 4097, 8192, 12288 };

/* A number at which something changes. */
__u64 edge(struct chance *c)
{
	return edges[below(c, ARRAY_SIZE(edges))];
}

/* Bytes of something. */
__u64 length(struct chance *c)
{
	return one_in(c, 20) ? edge(c) : lengths[below(c, ARRAY_SIZE(lengths))];
}

/* An address of the arena, most often of its first half. */
__u64 address(struct chance *c)
{
	__u64 page = below(c, one_in(c, 3) ? ARENA_PAGES : ARENA_PAGES / 2);

	if (one_in(c, 40))
		return edge(c);
	return ARENA + page * page_size() + (one_in(c, 2) ? 0 : below(c, page_size()));
}

__u32 rights(struct chance *c)
{
	return one_in(c, 3) ? 1 + below(c, 3) : RW;
}

__u64 timeout(struct chance *c)
{
	return one_in(c, 8) ? edge(c) : PATIENCE;
}

/* A handle of what fits a call, or of anything, or one that is none. */
__u32 handle(struct chance *c, struct world *w, struct open_file *o, is_it *fits)
{
	bool right = !one_in(c, 5);
	struct object *object;
	__u64 first;

	if (one_in(c, 12))
		return o->ended[below(c, ENDED)];
	if (one_in(c, 20))
		return edge(c);
	if (one_in(c, 15))
		o = &w->open_files[below(c, OPEN_FILES)];
	first = below(c, OBJECTS);
	for (int i = 0; i < OBJECTS; i++) {
		object = &o->objects[(first + i) % OBJECTS];
		if (object->kind == NONE)
			continue;
		if (!right || fits(object))
			return object->handle;
	}
	return 0;
}

static bool is_peer(const struct world *w, const struct open_file *o, const struct open_file *other)
{
	const struct device *d = &w->devices[o->device];

	for (int i = 0; i < ULDMA_MAX_NODES; i++)
		if (other->used && d->peers[i] == other->device)
			return true;
	return false;
}

/* A name that something of a kind has at a peer, or zero. */
__u64 name_at_peer(struct world *w, const struct open_file *o, enum kind what, __u64 first)
{
	if (w->devices[o->device].remote)
		return 1 + first % NAMES;
	for (int i = 0; i < OPEN_FILES * OBJECTS; i++) {
		__u64 at = (first + i) % (OPEN_FILES * OBJECTS);
		struct open_file *other = &w->open_files[at / OBJECTS];

		if (is_peer(w, o, other) && other->objects[at % OBJECTS].kind == what &&
		    other->objects[at % OBJECTS].name)
			return other->objects[at % OBJECTS].name;
	}
	return 0;
}

/* A port at which a peer listens, or an open file with connections, or zero. */
__u32 port_to_use(struct world *w, const struct open_file *o, bool at_peer, __u64 first)
{
	if (at_peer && w->devices[o->device].remote)
		return 1 + first % PORTS;
	for (int i = 0; i < OPEN_FILES; i++) {
		struct open_file *other = &w->open_files[(first + i) % OPEN_FILES];

		if (!other->used || other->state != LISTENING)
			continue;
		if (at_peer ? is_peer(w, o, other) :
			      other->device == o->device && other->owner == o->owner &&
			      other->count)
			return other->port;
	}
	return 0;
}
