// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of the fuzzer's calls: mostly such that could succeed in the state that
 * the model is in, and changes of one of them.
 */
#include "uldma_fuzz_model.h"

static __u64 name(struct chance *c)
{
	return one_in(c, 20) ? 0 : 1 + below(c, NAMES);
}

static __u32 port(struct chance *c)
{
	return one_in(c, 30) ? 0 : 1 + below(c, PORTS);
}

static __u64 known_name(struct chance *c, struct world *w, struct open_file *o, enum kind kind)
{
	__u64 known = name_at_peer(w, o, kind, below(c, OPEN_FILES * OBJECTS));

	return known && !one_in(c, 6) ? known : name(c);
}

static __u32 known_port(struct chance *c, struct world *w, struct open_file *o, bool at_peer)
{
	__u32 known = port_to_use(w, o, at_peer, below(c, OPEN_FILES));

	return known && !one_in(c, 6) ? known : port(c);
}

static __u32 peer(struct chance *c)
{
	return one_in(c, 3) ? below(c, 4) : 0;
}

static bool has_endpoint(const struct open_file *o)
{
	for (int i = 0; i < OBJECTS; i++)
		if (is_endpoint(&o->objects[i]))
			return true;
	return false;
}

static __u32 method(struct chance *c)
{
	static const __u32 usual[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	return one_in(c, 8) ? below(c, 40) : usual[below(c, ARRAY_SIZE(usual))];
}

/* Seldom, what is wrong: a wait of what is pinned, for no time, or for too long. */
static void fill_waits(struct chance *c, struct uldma_region_register *a)
{
	if (a->flags & ULDMA_REGISTER_OPTIMISTIC ? one_in(c, 2) : one_in(c, 32)) {
		a->flags |= one_in(c, 2) ? ULDMA_REGISTER_LOOK_UP : ULDMA_REGISTER_PAGE_IN;
		a->limit_us = one_in(c, 16) ? draw(c) : 1 + below(c, 100000);
	}
	if (one_in(c, 64))
		a->limit_us = one_in(c, 2);
}

static void fill_region(struct chance *c, struct world *w, struct open_file *o, __u32 number,
			union uldma_args *a)
{
	switch (number) {
	case ULDMA_CMD_REGION_REGISTER:
	case ULDMA_CMD_REGION_CHARGE:
		a->region_register.flags = rights(c);
		a->region_register.addr = address(c);
		a->region_register.length = length(c);
		if (one_in(c, 4))
			a->region_register.flags |= ULDMA_REGISTER_OPTIMISTIC;
		if (number == ULDMA_CMD_REGION_REGISTER)
			fill_waits(c, &a->region_register);
		break;
	case ULDMA_CMD_REGION_WINDOW:
		a->region_window.flags = rights(c);
		a->region_window.length = length(c);
		a->region_window.peer = peer(c);
		break;
	case ULDMA_CMD_REGION_EXPORT:
		a->region_export.flags = rights(c);
		a->region_export.handle = handle(c, w, o, is_region);
		a->region_export.peer = peer(c);
		a->region_export.name = name(c);
		break;
	case ULDMA_CMD_REGION_IMPORT:
		a->region_import.flags = rights(c);
		a->region_import.name = known_name(c, w, o, REGION);
		a->region_import.timeout_ns = timeout(c);
		a->region_import.peer = peer(c);
		break;
	case ULDMA_CMD_REGION_QUERY:
		a->region_query.handle = handle(c, w, o, is_region);
		break;
	case ULDMA_CMD_REGION_BLOCKS:
		a->region_blocks.flags = below(c, 2);
		a->region_blocks.handle = handle(c, w, o, is_region);
		a->region_blocks.capacity = one_in(c, 8) ? edge(c) : below(c, 70);
		a->region_blocks.first_page = one_in(c, 4) ? below(c, 5) : 0;
		a->region_blocks.blocks = address(c);
		break;
	case ULDMA_CMD_LMM:
		a->lmm.flags = below(c, 4);
		break;
	}
}

static void fill_engine(struct chance *c, struct world *w, struct open_file *o, __u32 number,
			union uldma_args *a)
{
	switch (number) {
	case ULDMA_CMD_CONTEXT_CREATE:
		a->context_create.flags = one_in(c, 4);
		a->context_create.method = method(c);
		/* Messages need it. */
		if (has_endpoint(o) && !one_in(c, 4))
			a->context_create.method = ULDMA_METHOD_QUEUE;
		break;
	case ULDMA_CMD_CONTEXT_MAP_OUT:
		/* Also pages whose send another thread ends. */
		a->map_out.src = handle(c, w, o, one_in(c, 4) ? is_sending : is_region);
		a->map_out.dst = one_in(c, 4) ? 0 : handle(c, w, o, is_region);
		a->map_out.src_page = below(c, 3);
		a->map_out.dst_page = below(c, 3);
		a->map_out.pages = below(c, 3);
		break;
	case ULDMA_CMD_EVENTFD:
		a->eventfd.fd = EVENT_FD + (__s32)below(c, 3) - (one_in(c, 4) ? EVENT_FD + 2 : 0);
		break;
	case ULDMA_CMD_DMA:
		a->dma.src = handle(c, w, o, is_region);
		a->dma.dst = handle(c, w, o, is_region);
		a->dma.src_offset = one_in(c, 4) ? length(c) : 0;
		a->dma.dst_offset = one_in(c, 4) ? length(c) : 0;
		a->dma.length = length(c);
		break;
	case ULDMA_CMD_DMA_WAIT:
		a->dma_wait.flags = one_in(c, 4);
		a->dma_wait.ticket = one_in(c, 4) ? edge(c) : o->ticket;
		a->dma_wait.timeout_ns = timeout(c);
		break;
	}
}

static void fill_rest(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		      union uldma_args *a)
{
	switch (number) {
	case ULDMA_CMD_PEER_QUERY:
		a->peer_query.node = below(c, 3);
		break;
	case ULDMA_CMD_REGION_UNREGISTER:
	case ULDMA_CMD_REGION_UNEXPORT:
		a->handle.handle = handle(c, w, o, is_region);
		break;
	case ULDMA_CMD_SEGMENT_DESTROY:
	case ULDMA_CMD_DOORBELL:
		a->handle.handle = handle(c, w, o, is_segment);
		break;
	case ULDMA_CMD_SEGMENT_CREATE:
		a->segment_create.name = name(c);
		a->segment_create.length = length(c);
		a->segment_create.peer = peer(c);
		break;
	case ULDMA_CMD_SEGMENT_ATTACH:
		a->segment_attach.name = known_name(c, w, o, CREATED);
		a->segment_attach.timeout_ns = timeout(c);
		a->segment_attach.peer = peer(c);
		break;
	}
}

/* Most of one kind, so that most fit each other. */
static struct uldma_conn_offer offer(struct chance *c)
{
	struct uldma_conn_offer offer = {
		.kind = one_in(c, 8) ? ULDMA_KIND_PRIVATE : ULDMA_KIND_BYTES,
		.version = one_in(c, 8),
		.private_length = below(c, ULDMA_CONN_PRIVATE + 1),
		.ring_length = ring_length(c),
	};

	for (__u32 i = 0; i < offer.private_length; i++)
		offer.private_data[i] = draw(c);
	if (one_in(c, 16))
		offer.private_length = edge(c);
	return offer;
}

static void fill_connection(struct chance *c, struct world *w, struct open_file *o, __u32 number,
			    union uldma_args *a)
{
	switch (number) {
	case ULDMA_CMD_CONN_LISTEN:
		a->conn_listen.flags = one_in(c, 3);
		a->conn_listen.port = port(c);
		a->conn_listen.backlog = a->conn_listen.flags ? 0 : 1 + below(c, 4);
		a->conn_listen.offer = offer(c);
		break;
	case ULDMA_CMD_CONN_ACCEPT:
		a->conn_accept.port = known_port(c, w, o, false);
		break;
	case ULDMA_CMD_CONN_CONNECT:
		a->conn_connect.flags = one_in(c, 3);
		a->conn_connect.peer = peer(c);
		a->conn_connect.port = known_port(c, w, o, true);
		a->conn_connect.timeout_ns = one_in(c, 8) ? ~0ULL : PATIENCE;
		a->conn_connect.offer = offer(c);
		break;
	case ULDMA_CMD_CONN_PREPOST:
	case ULDMA_CMD_CONN_SEND:
		a->conn_buffer.addr = address(c);
		a->conn_buffer.length = length(c);
		break;
	case ULDMA_CMD_CONN_RECV:
	case ULDMA_CMD_CONN_RECYCLE:
		a->conn_range.flags = one_in(c, 3);
		a->conn_range.length = length(c);
		break;
	case ULDMA_CMD_CONN_RING:
		a->conn_ring.flags = one_in(c, 2);
		break;
	}
}

/* Changes one thing. */
void mutate(struct chance *c, struct order *o)
{
	const struct call *call = &calls[o->call];
	__u32 words = call->size / sizeof(__u32), word, at;
	__u64 wide;

	switch (below(c, 12)) {
	case 0:
		o->args.size = call->first;
		break;
	case 1:
		o->args.size = one_in(c, 2) ? call->first - 1 : below(c, call->first + 1);
		break;
	case 2:
		o->args.size = one_in(c, 4) ? 5000 : call->size + below(c, 64);
		break;
	case 3:
		o->args.size = sizeof(o->args);
		o->args.bytes[call->size + below(c, sizeof(o->args) - call->size)] = 1;
		break;
	case 4:
		o->args.head.flags |= 1U << below(c, 32);
		break;
	case 5:
		at = call->reserved[below(c, ARRAY_SIZE(call->reserved))];
		word = one_in(c, 2) ? 1U << below(c, 32) : edge(c);
		if (at)
			memcpy(o->args.bytes + at, &word, sizeof(word));
		break;
	case 6:
		o->where = 1 + below(c, 4);
		break;
	case 7:
		word = one_in(c, 2) ? draw(c) : edge(c);
		memcpy(o->args.bytes + below(c, words) * sizeof(word), &word, sizeof(word));
		break;
	case 8:
	case 9:
		o->in_child = true;
		break;
	case 10:
		o->cmd = one_in(c, 2) ? _IO(ULDMA_TYPE, below(c, 256)) :
					o->cmd ^ 1UL << below(c, 32);
		break;
	default:
		wide = edge(c);
		at = below(c, (words + 1) / 2) * sizeof(wide);
		if (at + sizeof(wide) <= call->size && at)
			memcpy(o->args.bytes + at, &wide, sizeof(wide));
	}
}

/* Arguments that fit the open file. */
void fill(struct chance *c, struct world *w, struct open_file *o, __u32 number, union uldma_args *a)
{
	fill_region(c, w, o, number, a);
	fill_engine(c, w, o, number, a);
	fill_rest(c, w, o, number, a);
	fill_connection(c, w, o, number, a);
	fill_endpoint(c, w, o, number, a);
	fill_message(c, w, o, number, a);
	fill_exchange(c, w, o, number, a);
}
