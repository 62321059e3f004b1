// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of the model by successful calls, and the calls' expected results.
 */
#include "uldma_fuzz_model.h"

static const char *add_import(struct world *w, struct open_file *o, const union uldma_args *in,
			      const struct uldma_region_import *a)
{
	struct device *d = &w->devices[o->device];
	const struct object *there = of_peer(w, d, peer_of(d, in->region_import.peer), REGION,
					     in->region_import.name);

	if (a->out_length != there->length)
		return "the import is of another length than the peer's region";
	return add_object(o, &(struct object){
		.kind = IMPORT,
		.handle = a->out_handle,
		.access = a->flags,
		.length = a->out_length,
		.parts = { shadow(a->out_shadow_offset, a->out_shadow_length, a->flags) },
	});
}

static const char *apply_region(struct world *w, struct open_file *o, __u32 number,
				const union uldma_args *in, const union uldma_args *out)
{
	const struct uldma_region_register *a = &out->region_register;
	const struct uldma_region_window *window = &out->region_window;
	__u64 page = page_size();
	struct object *object;

	switch (number) {
	case ULDMA_CMD_REGION_REGISTER:
		if (a->out_shadow_length !=
		    (a->addr % page + a->length + page - 1) / page * page)
			return "out_shadow_length is not that of the pages";
		return add_object(o, &(struct object){
			.kind = REGION,
			.handle = a->out_handle,
			.access = a->flags & RW,
			.optimistic = a->flags & ULDMA_REGISTER_OPTIMISTIC,
			.addr = a->addr,
			.length = a->length,
			.parts = { shadow(a->out_shadow_offset, a->out_shadow_length,
					  a->flags & RW) },
		});
	case ULDMA_CMD_REGION_WINDOW:
		if (window->out_length != (window->length + page - 1) / page * page)
			return "the region is of another length";
		return add_object(o, &(struct object){
			.kind = REGION,
			.backing = IN_WINDOW,
			.handle = window->out_handle,
			.access = window->flags,
			.length = window->out_length,
			.parts = { { window->out_offset, window->out_length } },
		});
	case ULDMA_CMD_REGION_IMPORT:
		return add_import(w, o, in, &out->region_import);
	case ULDMA_CMD_REGION_UNREGISTER:
		end_object(o, object_of(o, in->handle.handle));
		break;
	case ULDMA_CMD_REGION_EXPORT:
		object = object_of(o, in->region_export.handle);
		object->name = in->region_export.name;
		object->peer = in->region_export.peer;
		object->exported = in->region_export.flags;
		break;
	case ULDMA_CMD_REGION_UNEXPORT:
		object_of(o, in->handle.handle)->name = 0;
		break;
	case ULDMA_CMD_REGION_CLEANUP:
		for (int i = 0; i < OBJECTS; i++)
			if (o->objects[i].kind == REGION || o->objects[i].kind == IMPORT)
				end_object(o, &o->objects[i]);
		break;
	case ULDMA_CMD_REGION_QUERY:
		object = object_of(o, in->region_query.handle);
		if (out->region_query.out_addr != object->addr ||
		    out->region_query.out_length != object->length)
			return "the query tells of another range";
		if ((out->region_query.out_flags & RW) != object->access)
			return "the query tells of other rights";
		if (!(out->region_query.out_flags & ULDMA_REGION_EXPORTED) != !object->name)
			return "the query is wrong about the export";
		break;
	case ULDMA_CMD_REGION_BLOCKS:
		if (out->region_blocks.out_count > in->region_blocks.capacity)
			return "more blocks than there is room for";
		break;
	}
	return NULL;
}

static const char *apply_engine(struct open_file *o, __u32 number, const union uldma_args *out)
{
	const struct uldma_context_create *a = &out->context_create;

	switch (number) {
	case ULDMA_CMD_CONTEXT_CREATE:
		o->context = true;
		o->contexts++;
		o->posted = 0;
		memset(o->queue, 0, sizeof(o->queue));
		o->method = a->method;
		o->page_offset = a->out_page_offset;
		o->status_offset = a->out_status_offset;
		if (a->out_page_length != page_size())
			return "a context's page is not one page";
		break;
	case ULDMA_CMD_CONTEXT_DESTROY:
		o->context = false;
		break;
	case ULDMA_CMD_DMA:
		if (out->dma.out_ticket <= o->ticket)
			return "tickets go back";
		o->ticket = out->dma.out_ticket;
		o->tickets++;
		break;
	case ULDMA_CMD_DMA_WAIT:
		if (out->dma_wait.out_status > ULDMA_DMA_REVOKED)
			return "a status that is none";
		break;
	}
	return NULL;
}

static const char *apply_segment(struct world *w, struct open_file *o, __u32 number,
				 const union uldma_args *in, const union uldma_args *out)
{
	const struct uldma_segment_create *c = &out->segment_create;
	const struct uldma_segment_attach *a = &out->segment_attach;
	struct device *d = &w->devices[o->device];
	__u64 page = page_size();
	const struct object *there;

	switch (number) {
	case ULDMA_CMD_SEGMENT_CREATE:
		if (c->out_length != (c->length + page - 1) / page * page)
			return "the segment is of another length";
		return add_object(o, &(struct object){
			.kind = CREATED,
			.handle = c->out_handle,
			.name = c->name,
			.peer = c->peer,
			.length = c->out_length,
			.parts = { { c->out_offset, c->out_length } },
			.serial = ++w->serial,
		});
	case ULDMA_CMD_SEGMENT_ATTACH:
		there = of_peer(w, d, peer_of(d, in->segment_attach.peer), CREATED,
				in->segment_attach.name);
		if (a->out_length != there->length)
			return "the segment is of another length than the peer's";
		return add_object(o, &(struct object){
			.kind = ATTACHED,
			.handle = a->out_handle,
			.length = a->out_length,
			.parts = { { a->out_offset, a->out_length } },
			.source = there->serial,
		});
	case ULDMA_CMD_SEGMENT_DESTROY:
		end_object(o, object_of(o, in->handle.handle));
		break;
	}
	return NULL;
}

static void connected(struct open_file *o, int connection, int side)
{
	o->state = CONNECTED;
	o->connection = connection;
	o->side = side;
	o->count = 0;
}

static const char *apply_connect(struct world *w, struct open_file *o,
				 const struct uldma_conn_connect *a)
{
	struct device *d = &w->devices[o->device];
	struct open_file *at = d->remote ? NULL :
			    listener_at(w, d->peers[peer_of(d, a->peer)], a->port);

	for (int i = 0; i < CONNECTIONS; i++) {
		struct connection *c = &w->connections[i];

		if (c->used)
			continue;
		*c = (struct connection){
			.used = true,
			.open_file = { o - w->open_files,
				       at && at->once ? at - w->open_files : -1 },
			.remote = !at,
			.offers = { a->offer },
		};
		if (at)
			c->offers[1] = at->offer;
		connected(o, i, 0);
		o->port = a->port;
		o->pull = a->flags & ULDMA_CONNECT_PULL;
		if (at && at->once)
			connected(at, i, 1);
		else if (at)
			at->waiting[at->count++] = i;
		return NULL;
	}
	return "the model has no room";
}

static const char *apply_take(struct world *w, struct open_file *o, struct given *given,
			      const struct uldma_conn_range *a)
{
	__u64 left = a->out_length, part;
	int done = 0;

	if (a->out_length > a->length)
		return "more memory than was asked for";
	if (!left)
		return w->connections[o->connection].end[!o->side] == OPEN ?
			       "the end of a stream that goes on" : NULL;
	if (!given->count || a->out_addr != given->at[0].addr)
		return "memory that is not next";
	while (left && done < given->count) {
		if (done && given->at[done].addr != a->out_addr + a->out_length - left)
			return "memory that is not in one piece";
		part = given->at[done].length < left ? given->at[done].length : left;
		given->at[done].addr += part;
		given->at[done].length -= part;
		left -= part;
		done += !given->at[done].length;
	}
	if (left)
		return "more memory than was given";
	memmove(&given->at[0], &given->at[done], (given->count - done) * sizeof(given->at[0]));
	given->count -= done;
	return NULL;
}

static const char *apply_conn_query(struct world *w, struct open_file *o,
				    const struct uldma_conn_query *a)
{
	struct uldma_conn_offer said;
	struct connection *c;
	const char *wrong;
	enum end other;

	switch (o->state) {
	case ALONE:
		return a->out_state == ULDMA_CONN_NONE ? NULL : "a state without a connection";
	case LISTENING:
		if (a->out_state != ULDMA_CONN_LISTENING || a->out_port != o->port)
			return "the listener is not one";
		return o->once || a->out_waiting == o->count ? NULL : "out_waiting is wrong";
	default:
		c = &w->connections[o->connection];
		other = c->end[!o->side];
		if (a->size >= sizeof(*a)) {
			said = c->offers[!o->side];
			said.ring_length = a->out_offer.ring_length;
			if (memcmp(&a->out_offer, &said, sizeof(said)))
				return "the other side has said something else";
			wrong = rings_told(c, o->side, said.ring_length);
			if (wrong)
				return wrong;
		}
		if (other == OPEN && a->out_state != ULDMA_CONN_CONNECTED)
			return "the connection is not connected";
		if (other == DISCONNECTED && a->out_state != ULDMA_CONN_CLOSING)
			return "the connection does not know its end";
		return NULL;
	}
}

static const char *apply_connection(struct world *w, struct open_file *o, __u32 number,
				    const union uldma_args *in, const union uldma_args *out)
{
	struct given *given = &o->given[number == ULDMA_CMD_CONN_SEND ||
					number == ULDMA_CMD_CONN_RECYCLE];
	struct open_file *at;

	switch (number) {
	case ULDMA_CMD_CONN_LISTEN:
		o->state = LISTENING;
		o->port = in->conn_listen.port;
		o->once = in->conn_listen.flags & ULDMA_LISTEN_ONCE;
		o->backlog = o->once ? 1 : in->conn_listen.backlog;
		o->offer = in->conn_listen.offer;
		break;
	case ULDMA_CMD_CONN_ACCEPT:
		at = listener_at(w, o->device, in->conn_accept.port);
		connected(o, at->waiting[0], 1);
		w->connections[o->connection].open_file[1] = o - w->open_files;
		memmove(at->waiting, at->waiting + 1, --at->count * sizeof(at->waiting[0]));
		break;
	case ULDMA_CMD_CONN_CONNECT:
		return apply_connect(w, o, &in->conn_connect);
	case ULDMA_CMD_CONN_DISCONNECT:
		detach(w, o, DISCONNECTED);
		break;
	case ULDMA_CMD_CONN_PREPOST:
	case ULDMA_CMD_CONN_SEND:
		o->by_calls |= !o->named;
		given->at[given->count].addr = in->conn_buffer.addr;
		given->at[given->count++].length = in->conn_buffer.length;
		break;
	case ULDMA_CMD_CONN_RECV:
	case ULDMA_CMD_CONN_RECYCLE:
		return apply_take(w, o, given, &out->conn_range);
	case ULDMA_CMD_CONN_QUERY:
		return apply_conn_query(w, o, &out->conn_query);
	case ULDMA_CMD_CONN_RING:
		return apply_ring(w, o, in, &out->conn_ring);
	}
	return NULL;
}

static const char *apply_query(struct world *w, struct open_file *o, const struct uldma_query *q)
{
	__u32 regions = 0;

	for (int i = 0; i < OBJECTS; i++)
		regions += o->objects[i].kind == REGION || o->objects[i].kind == IMPORT;
	if (q->out_file_regions != regions)
		return "out_file_regions is wrong";
	if (q->out_node != w->devices[o->device].idle.out_node)
		return "out_node has changed";
	return NULL;
}

static const char *apply_ioctl(struct world *w, const struct order *order, const struct reply *r)
{
	struct open_file *o = &w->open_files[order->open_file];
	__u32 number = calls[order->call].number;
	struct order after = *order;
	union uldma_args in, out;
	const char *wrong;

	if (number == ULDMA_CMD_NOP)
		return NULL;
	in = known_part(order);
	after.args = r->args;
	out = known_part(&after);
	if (memcmp(order->args.bytes + calls[order->call].size,
		   r->args.bytes + calls[order->call].size,
		   sizeof(out) - calls[order->call].size))
		return "bytes behind the structure were written";
	if (number == ULDMA_CMD_QUERY)
		return apply_query(w, o, &out.query);
	/* An older structure lacks some of the results. */
	wrong = apply_region(w, o, number, &in, &out) ?: apply_engine(o, number, &out) ?:
		apply_segment(w, o, number, &in, &out);
	return wrong ?: apply_connection(w, o, number, &in, &out) ?:
		apply_endpoint(w, o, number, &in, &out) ?: apply_message(o, number, &in, &out) ?:
		apply_exchange(o, number, &in, &out);
}

static void apply_memory(struct process *p, const struct order *o)
{
	for (__u64 i = o->a; i < o->a + o->b; i++)
		switch (o->c) {
		case MEMORY_READ_ONLY:
			p->page[i] = MEMORY_READ_ONLY;
			break;
		case MEMORY_GONE:
			p->page[i] = MEMORY_GONE;
			break;
		case MEMORY_DISCARDED:
			break;
		default:
			p->page[i] = MEMORY_FRESH;
		}
}

/* Changes the model by what has succeeded; what was wrong with it, or NULL. */
const char *apply(struct world *w, int process, const struct order *o, const struct reply *r)
{
	struct process *p = &w->processes[process];
	struct open_file *open_file = &w->open_files[o->open_file];

	switch (o->op) {
	case OP_OPEN:
		*open_file = (struct open_file){
			.used = true,
			.device = o->b,
			.owner = process,
			.holders = 1U << process,
			.nonblock = o->a & O_NONBLOCK,
		};
		break;
	case OP_CLOSE:
		open_file->holders &= ~(1U << process);
		release_if_unused(w, open_file);
		break;
	case OP_SHARE:
		open_file->holders |= 1U << process;
		break;
	case OP_IOCTL:
		return apply_ioctl(w, o, r);
	case OP_MMAP:
		p->maps[o->c] = (struct mapping){
			.open_file = o->open_file,
			.offset = o->a,
			.length = o->b,
			.prot = o->args.head.size,
		};
		open_file->maps++;
		break;
	case OP_MUNMAP:
		open_file = &w->open_files[p->maps[o->a].open_file];
		p->maps[o->a].open_file = -1;
		open_file->maps--;
		release_if_unused(w, open_file);
		break;
	case OP_MEMORY:
		apply_memory(p, o);
		break;
	case OP_TOUCH:
		if (r->ret && r->ret != SIGBUS && r->ret != SIGSEGV)
			return "a signal that is none of an access";
		open_file = &w->open_files[p->maps[o->a].open_file];
		return apply_access(open_file, &p->maps[o->a], o->b, o->c, r->ret);
	default:
		break;
	}
	return NULL;
}

static __u32 mix(__u32 hash, __u32 value)
{
	return (hash ^ value) * 0x01000193;
}

/* Finds the handle that a call is about: returns false if it is about none. */
static bool handle_in(const struct call *call, const union uldma_args *a, __u32 *handle)
{
	if (call->size == sizeof(struct uldma_handle)) {
		*handle = a->handle.handle;
		return true;
	}
	switch (call->number) {
	case ULDMA_CMD_ENDPOINT_CONNECT:
		*handle = a->endpoint_connect.handle;
		return true;
	case ULDMA_CMD_ENDPOINT_WAIT:
		*handle = a->endpoint_wait.handle;
		return true;
	case ULDMA_CMD_CONN_STREAM:
		*handle = a->conn_stream.handle;
		return true;
	case ULDMA_CMD_MSG_SLOTS:
		*handle = a->msg_slots.endpoint;
		return true;
	case ULDMA_CMD_MSG_SEND:
	case ULDMA_CMD_MSG_RECV:
		*handle = a->msg_send.slots;
		return true;
	case ULDMA_CMD_EXCHANGE_PROTECT:
	case ULDMA_CMD_EXCHANGE_RELEASE:
		*handle = a->exchange_range.handle;
		return true;
	case ULDMA_CMD_EXCHANGE_SWAP:
		*handle = a->exchange_swap.handle;
		return true;
	default:
		return false;
	}
}

/* The part of the state that concerns an order, as a number. */
__u32 state_of(const struct world *w, int process, const struct order *o)
{
	const struct open_file *open_file = &w->open_files[o->open_file];
	struct object *object;
	__u32 hash = mix(0x811c9dc5, o->op), handle;

	hash = mix(hash, o->op == OP_IOCTL ? o->call : 0);
	hash = mix(hash, o->where);
	if (!open_file->used)
		return hash;
	hash = mix(hash, w->devices[open_file->device].idle.out_backend);
	hash = mix(hash, open_file->state * 2 + open_file->context);
	hash = mix(hash, open_file->owner != process || o->in_child);
	hash = mix(hash, open_file->nonblock * 2 + open_file->once);
	hash = mix(hash, open_file->stream_flags * 4 + open_file->by_calls * 2 +
				 !open_file->named);
	if (open_file->state == CONNECTED)
		hash = mix(hash, 8 + w->connections[open_file->connection].end[!open_file->side]);
	if (o->op == OP_IOCTL && handle_in(&calls[o->call], &o->args, &handle)) {
		object = object_of((struct open_file *)open_file, handle);
		hash = mix(hash, object ? object->kind * 2 + !object->name : 0);
		hash = mix(hash, object ? object->backing * 2 + is_sending(object) : 0);
		hash = mix(hash, object ? object->stream * 2 + object->connected : 0);
	}
	return hash;
}
