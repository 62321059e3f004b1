// SPDX-License-Identifier: GPL-2.0
/*
 * The model: the objects, their owners, and their end.
 */
#include "uldma_fuzz_model.h"

/* The structure as the kernel understands it: what an older one lacks is zero. */
union uldma_args known_part(const struct order *o)
{
	const struct call *call = &calls[o->call];
	union uldma_args known = { };

	memcpy(&known, &o->args, o->args.size < call->size ? o->args.size : call->size);
	return known;
}

/* Returns the object of an open file under a handle, or NULL. */
struct object *object_of(struct open_file *o, __u32 handle)
{
	for (int i = 0; i < OBJECTS; i++)
		if (o->objects[i].kind != NONE && o->objects[i].handle == handle)
			return &o->objects[i];
	return NULL;
}

bool is_region(const struct object *object)
{
	return object && (object->kind == REGION || object->kind == IMPORT);
}

bool is_segment(const struct object *object)
{
	return object && (object->kind == CREATED || object->kind == ATTACHED ||
			  is_ring(object));
}

bool is_exchangeable(const struct object *object)
{
	return is_region(object) && object->backing == EXCHANGEABLE;
}

bool is_endpoint(const struct object *object)
{
	return object && object->kind == ENDPOINT;
}

bool is_connected(const struct object *object)
{
	return is_endpoint(object) && object->connected;
}

bool is_stream(const struct object *object)
{
	return is_endpoint(object) && object->stream;
}

static bool is_of_slots(const struct object *object)
{
	return is_region(object) && object->backing == SLOTS;
}

bool is_sender(const struct object *object)
{
	return is_of_slots(object) && object->access == ULDMA_ACCESS_READ;
}

bool is_receiver(const struct object *object)
{
	return is_of_slots(object) && object->access == ULDMA_ACCESS_WRITE;
}

/* Returns true for exchangeable memory of which a page is being sent. */
bool is_sending(const struct object *object)
{
	for (int i = 0; is_exchangeable(object) && i < EXCHANGE_PAGES; i++)
		if (object->pages[i].sends)
			return true;
	return false;
}

/* Returns an endpoint, or NULL if it has ended. */
struct object *endpoint_of(struct open_file *o, int serial)
{
	for (int i = 0; i < OBJECTS; i++)
		if (is_endpoint(&o->objects[i]) && o->objects[i].serial == serial)
			return &o->objects[i];
	return NULL;
}

/* Returns true if a process can access all of a range of the arena. */
bool is_mapped(const struct world *w, int process, __u64 addr, __u64 length, bool write)
{
	__u64 page = page_size(), end = ARENA + ARENA_PAGES * page;

	if (addr < ARENA || addr > end || length > end - addr)
		return false;
	for (__u64 at = addr / page; at <= (addr + length - 1) / page; at++) {
		enum memory is = w->processes[process].page[at - ARENA / page];

		if (is == MEMORY_GONE || (write && is == MEMORY_READ_ONLY))
			return false;
	}
	return true;
}

static bool overlap(const struct part *a, const struct part *b)
{
	return a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

/* Adds an object to an open file: returns what is wrong with it, or NULL. */
const char *add_object(struct open_file *o, const struct object *new)
{
	if (!new->handle)
		return "the handle is zero";
	if (object_of(o, new->handle))
		return "the handle is in use";
	for (int i = 0; i < ENDED; i++)
		if (o->ended[i] == new->handle)
			return "the handle is one that was ended";
	for (int i = 0; i < ARRAY_SIZE(new->parts); i++)
		if (new->parts[i].offset % page_size() || new->parts[i].length % page_size() ||
		    !new->parts[i].offset != !new->parts[i].length)
			return "what can be mapped is not whole pages";
	if (overlap(&new->parts[0], &new->parts[1]))
		return "what can be mapped overlaps itself";
	for (int i = 0; i < OBJECTS * 4; i++)
		if (o->objects[i / 4].kind != NONE &&
		    overlap(&o->objects[i / 4].parts[i % 2], &new->parts[i / 2 % 2]))
			return "what can be mapped overlaps another object";
	for (int i = 0; i < OBJECTS; i++)
		if (o->objects[i].kind == NONE) {
			o->objects[i] = *new;
			return NULL;
		}
	return "the model has no room";
}

/* Ends an object, and remembers its handle. */
void end_object(struct open_file *o, struct object *object)
{
	o->ended[o->ended_count++ % ENDED] = object->handle;
	object->kind = NONE;
}

/* Shadow pages of a region with some rights. */
struct part shadow(__u64 offset, __u64 length, __u32 access)
{
	return (struct part){ offset, length, true, !(access & ULDMA_ACCESS_WRITE) };
}

/* The peer that a structure names, or -1. */
int peer_of(const struct device *d, __u32 peer)
{
	if (!peer)
		return d->idle.out_nodes == 2 ? !d->idle.out_node : -1;
	if (peer - 1 >= d->idle.out_nodes || peer - 1 == d->idle.out_node)
		return -1;
	return peer - 1;
}

/* Who has a name on a device, among regions or segments. */
struct object *named(struct world *w, int device, enum kind kind, __u64 name)
{
	for (int i = 0; i < OPEN_FILES; i++)
		for (int j = 0; j < OBJECTS; j++) {
			struct object *object = &w->open_files[i].objects[j];

			if (w->open_files[i].used && w->open_files[i].device == device &&
			    object->kind == kind && object->name == name)
				return object;
		}
	return NULL;
}

/* Returns the object of another node under a name, or NULL. */
const struct object *remote_object(enum kind kind, __u64 name)
{
	static const struct object regions[NAMES] = {
		{ REGION, .length = 1, .exported = ULDMA_ACCESS_READ },
		{ REGION, .length = REMOTE_LENGTH, .exported = ULDMA_ACCESS_WRITE },
		{ REGION, .length = REMOTE_LENGTH, .exported = RW },
	};
	static const struct object segments[NAMES] = {
		{ CREATED, .length = 4096, .serial = -1 },
		{ CREATED, .length = 8192, .serial = -2 },
		{ CREATED, .length = 4096, .serial = -3 },
	};

	if (!name || name > NAMES)
		return NULL;
	return kind == REGION ? &regions[name - 1] : &segments[name - 1];
}

/* Returns the objects that a peer offers to a device's node, known to the model. */
const struct object *of_peer(struct world *w, const struct device *d, int peer, enum kind kind,
			     __u64 name)
{
	struct object *object;

	if (peer < 0)
		return NULL;
	if (d->remote)
		return remote_object(kind, name);
	object = d->peers[peer] < 0 ? NULL : named(w, d->peers[peer], kind, name);
	return object && (!object->peer || object->peer == d->idle.out_node + 1) ? object : NULL;
}

/* Who listens at a port of a device, or NULL. */
struct open_file *listener_at(struct world *w, int device, __u32 port)
{
	for (int i = 0; i < OPEN_FILES; i++) {
		struct open_file *o = &w->open_files[i];

		if (o->used && o->device == device && o->state == LISTENING && o->port == port)
			return o;
	}
	return NULL;
}

static void forget_connection(struct world *w, int number, int side, enum end end)
{
	struct connection *c = &w->connections[number];

	if (c->end[side] == OPEN)
		c->end[side] = end;
	c->open_file[side] = -1;
	c->used = !c->remote && (c->end[0] == OPEN || c->end[1] == OPEN);
}

/* Ends what an open file is attached to. */
void detach(struct world *w, struct open_file *o, enum end end)
{
	if (o->state == CONNECTED)
		forget_connection(w, o->connection, o->side, end);
	for (int i = 0; o->state == LISTENING && i < o->count; i++)
		forget_connection(w, o->waiting[i], 1, CLOSED);
	end_rings(o);
	o->state = ALONE;
	o->count = 0;
	o->given[0].count = 0;
	o->given[1].count = 0;
	o->by_calls = false;
	o->named = 0;
	o->stream_flags = 0;
}

/* The file is closed once no process has it open or mapped. */
void release_if_unused(struct world *w, struct open_file *o)
{
	if (!o->used || o->holders || o->maps)
		return;
	detach(w, o, CLOSED);
	memset(o, 0, sizeof(*o));
}

/* A process has nothing open and nothing mapped any more. */
static void forget_files(struct world *w, int process)
{
	struct process *p = &w->processes[process];

	for (int i = 0; i < MAPPINGS; i++) {
		if (p->maps[i].open_file >= 0)
			w->open_files[p->maps[i].open_file].maps--;
		p->maps[i].open_file = -1;
	}
	for (int i = 0; i < ARENA_PAGES; i++)
		p->page[i] = MEMORY_FRESH;
	for (int i = 0; i < OPEN_FILES; i++) {
		w->open_files[i].holders &= ~(1U << process);
		release_if_unused(w, &w->open_files[i]);
	}
}

/* A process has ended, and with it its address space. */
void forget_process(struct world *w, int process)
{
	for (int i = 0; i < OPEN_FILES; i++)
		if (w->open_files[i].used && w->open_files[i].owner == process)
			w->open_files[i].owner = -1;
	forget_files(w, process);
}

void forget_all(struct world *w)
{
	memset(w->open_files, 0, sizeof(w->open_files));
	memset(w->connections, 0, sizeof(w->connections));
	for (int i = 0; i < PROCESSES; i++) {
		for (int j = 0; j < MAPPINGS; j++)
			w->processes[i].maps[j].open_file = -1;
		for (int j = 0; j < ARENA_PAGES; j++)
			w->processes[i].page[j] = MEMORY_FRESH;
	}
}
