// SPDX-License-Identifier: GPL-2.0
/*
 * Rings of connections: calls on them, what the interface documents of these, and
 * what the model keeps. Whether a section has room for a ring is known once one of
 * the two was seen.
 */
#include "uldma_fuzz_model.h"

/* A connection that an open file had before has ended, with its rings. */
#define ENDED_RING (-1)

bool is_ring(const struct object *object)
{
	return object && object->kind == RING;
}

static struct connection *connection_of(struct world *w, const struct open_file *o)
{
	return o->state == CONNECTED ? &w->connections[o->connection] : NULL;
}

static bool other_is_open(struct world *w, const struct open_file *o)
{
	return connection_of(w, o)->end[!o->side] == OPEN;
}

static __u64 pages(__u64 length)
{
	__u64 page = page_size();

	return (length + page - 1) / page * page;
}

static bool offers_rings(const struct connection *c)
{
	return c->offers[0].ring_length && c->offers[1].ring_length;
}

/* The segment of a ring of the connection that an open file has now, or NULL. */
static struct object *ring_of(struct open_file *o, __u32 flags)
{
	for (int i = 0; i < OBJECTS; i++)
		if (is_ring(&o->objects[i]) && o->objects[i].source == (int)flags)
			return &o->objects[i];
	return NULL;
}

/* An offer of a ring: mostly one for which there is room. */
__u64 ring_length(struct chance *c)
{
	if (one_in(c, 16))
		return edge(c);
	return one_in(c, 3) ? 0 : 1 + below(c, 4 * page_size());
}

void judge_ring(struct world *w, const struct order *order, struct open_file *o,
		const union uldma_args *a, struct verdict *v)
{
	__u64 most = w->devices[o->device].idle.out_window_size;
	struct connection *c = connection_of(w, o);
	struct object *ring;

	if (calls[order->call].number == ULDMA_CMD_DOORBELL) {
		ring = object_of(o, a->handle.handle);
		must(v, ESTALE, is_ring(ring) && ring->source == ENDED_RING);
		may(v, ESTALE, is_ring(ring) && ring->source == ULDMA_RING_PEER &&
		    !other_is_open(w, o));
		return;
	}
	if (calls[order->call].number != ULDMA_CMD_CONN_RING)
		return;
	/* Registering the first notifier of an address space can be interrupted. */
	may(v, EINTR, order->interrupt);
	if (o->state == LISTENING && o->once) {
		must(v, o->nonblock ? EAGAIN : EINTR, true);
		return;
	}
	must(v, ENOTCONN, !c);
	if (!c)
		return;
	must(v, ENOENT, !offers_rings(c) || c->offers[0].ring_length > most ||
	     c->offers[1].ring_length > most);
	may(v, ENOENT, !c->rings);
	ring = ring_of(o, a->conn_ring.flags);
	must(v, EBUSY, ring && (!a->conn_ring.flags || other_is_open(w, o)));
	may(v, EBUSY, ring);
}

const char *apply_ring(struct world *w, struct open_file *o, const union uldma_args *in,
		       const struct uldma_conn_ring *out)
{
	struct connection *c = connection_of(w, o);
	__u32 flags = in->conn_ring.flags;
	int side = flags & ULDMA_RING_PEER ? !o->side : o->side;

	if (out->out_length != pages(c->offers[side].ring_length))
		return "the ring is of another length than was offered";
	c->rings = true;
	return add_object(o, &(struct object){
		.kind = RING,
		.handle = out->out_handle,
		.length = out->out_length,
		.parts = { { out->out_offset, out->out_length } },
		.source = flags,
	});
}

/* Checks what a query says of the rings of a connection. */
const char *rings_told(struct connection *c, int side, __u64 length)
{
	if (c->rings && !length)
		return "the rings of the connection are gone";
	if (length && (!offers_rings(c) || length != pages(c->offers[!side].ring_length)))
		return "the ring of the other side is of another length";
	c->rings |= length;
	return NULL;
}

/* The connection of an open file ends. */
void end_rings(struct open_file *o)
{
	for (int i = 0; i < OBJECTS; i++)
		if (is_ring(&o->objects[i]))
			o->objects[i].source = ENDED_RING;
}
