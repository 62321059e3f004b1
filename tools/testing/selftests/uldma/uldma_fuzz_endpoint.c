// SPDX-License-Identifier: GPL-2.0
/*
 * The part of the fuzzer's model that knows endpoints, and the connections of which
 * they move the data. The other node names an endpoint at one of its ports.
 */
#include "uldma_fuzz_model.h"

static __u32 node(struct chance *c, const struct device *d)
{
	return one_in(c, 6) ? below(c, 4) : !d->idle.out_node;
}

/* Names the endpoint that knows this one, if there is one. */
static void name_other(struct open_file *o, struct uldma_endpoint_connect *a)
{
	const struct object *endpoint = object_of(o, a->handle);

	if (!is_endpoint(endpoint) || !endpoint->other.generation)
		return;
	a->node = endpoint->other.node;
	a->peer_index = endpoint->other.index;
	a->peer_generation = endpoint->other.generation;
}

void fill_endpoint(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		   union uldma_args *a)
{
	static const __u32 answers[] = { 0, ULDMA_STREAM_MATCHED, ULDMA_STREAM_REFUSED };

	switch (number) {
	case ULDMA_CMD_ENDPOINT_CREATE:
		a->endpoint_create.flags = below(c, 2);
		a->endpoint_create.timeout_ms = one_in(c, 3) ? edge(c) : below(c, 50);
		a->endpoint_create.max_message = 1 + length(c);
		break;
	case ULDMA_CMD_ENDPOINT_CONNECT:
		a->endpoint_connect.handle = handle(c, w, o, is_endpoint);
		a->endpoint_connect.node = node(c, &w->devices[o->device]);
		a->endpoint_connect.peer_generation = draw(c);
		a->endpoint_connect.peer_index = one_in(c, 2) ? edge(c) : below(c, 64);
		if (!one_in(c, 4))
			name_other(o, &a->endpoint_connect);
		break;
	case ULDMA_CMD_ENDPOINT_DESTROY:
		a->handle.handle = handle(c, w, o, is_endpoint);
		break;
	case ULDMA_CMD_ENDPOINT_WAIT:
		a->endpoint_wait.handle = handle(c, w, o, is_endpoint);
		a->endpoint_wait.count = one_in(c, 2) ? edge(c) : below(c, 3);
		a->endpoint_wait.timeout_ns = timeout(c);
		break;
	case ULDMA_CMD_CONN_STREAM:
		a->conn_stream.flags = one_in(c, 4) ? answers[below(c, ARRAY_SIZE(answers))] :
						      o->stream_flags;
		a->conn_stream.handle = handle(c, w, o, is_stream);
		a->conn_stream.received = one_in(c, 6) ? edge(c) : 0;
		a->conn_stream.ticket = one_in(c, 6) ? edge(c) : 0;
		a->conn_stream.timeout_ns = timeout(c);
		break;
	}
}

static void judge_connect(const struct device *d, struct object *endpoint,
			  const struct uldma_endpoint_connect *a, struct verdict *v)
{
	bool peer = a->node < d->idle.out_nodes && a->node != d->idle.out_node;

	must(v, ENOENT, !is_endpoint(endpoint));
	must(v, EINVAL, !peer);
	must(v, EISCONN, is_endpoint(endpoint) && endpoint->connected);
	must(v, ENOTCONN, peer && !(d->idle.out_peers & 1U << a->node));
}

/* Only the endpoint that has met another one may receive something. */
static void judge_wait(const struct order *order, struct object *endpoint,
		       const struct uldma_endpoint_wait *a, struct verdict *v)
{
	must(v, ENOENT, !is_endpoint(endpoint));
	if (!is_endpoint(endpoint) || !a->count)
		return;
	must(v, ENOTCONN, !endpoint->connected);
	if (endpoint->met) {
		may(v, EINTR, order->interrupt);
		may(v, ETIMEDOUT, a->timeout_ns < PATIENCE);
	} else if (endpoint->connected) {
		judge_vain(order, a->timeout_ns, v);
	}
}

static void judge_stream(const struct order *order, struct open_file *o,
			 const struct uldma_conn_stream *a, struct verdict *v)
{
	struct object *endpoint = object_of(o, a->handle);
	bool other;

	must(v, ENOENT, !is_endpoint(endpoint));
	must(v, EINVAL, is_endpoint(endpoint) && !endpoint->stream);
	if (o->state != CONNECTED) {
		must(v, o->state == LISTENING && o->once ? EAGAIN : ENOTCONN, true);
		return;
	}
	if (!is_endpoint(endpoint) || !endpoint->stream)
		return;
	other = o->named && o->named != endpoint->serial;
	must(v, EOPNOTSUPP, o->pull);
	must(v, EBUSY, o->by_calls);
	must(v, EISCONN, other);
	if (o->pull || o->by_calls || other)
		return;
	/* The answer may have come since it was asked for last. */
	if (o->stream_flags && a->flags == o->stream_flags && !a->ticket)
		judge_vain(order, a->timeout_ns, v);
	may(v, EINTR, order->interrupt);
	may(v, ETIMEDOUT, a->timeout_ns < PATIENCE);
}

void judge_endpoint(struct world *w, const struct order *order, struct open_file *o,
		    const union uldma_args *a, struct verdict *v)
{
	struct device *d = &w->devices[o->device];

	switch (calls[order->call].number) {
	case ULDMA_CMD_ENDPOINT_CREATE:
		must(v, EOPNOTSUPP, !d->engine);
		must(v, EINVAL, !a->endpoint_create.max_message ||
		     a->endpoint_create.max_message > d->idle.out_max_transfer);
		break;
	case ULDMA_CMD_ENDPOINT_CONNECT:
		judge_connect(d, object_of(o, a->endpoint_connect.handle), &a->endpoint_connect,
			      v);
		break;
	case ULDMA_CMD_ENDPOINT_DESTROY:
		must(v, ENOENT, !is_endpoint(object_of(o, a->handle.handle)));
		break;
	case ULDMA_CMD_ENDPOINT_WAIT:
		judge_wait(order, object_of(o, a->endpoint_wait.handle), &a->endpoint_wait, v);
		break;
	case ULDMA_CMD_CONN_STREAM:
		judge_stream(order, o, &a->conn_stream, v);
		break;
	}
}

/* The connection names an endpoint, even if no answer comes in time. */
void note_named(struct open_file *o, const union uldma_args *a)
{
	o->named = object_of(o, a->conn_stream.handle)->serial;
}

static const char *apply_stream(struct open_file *o, const union uldma_args *in, __u32 flags)
{
	__u32 answer = o->port == STREAM_PORT ? ULDMA_STREAM_MATCHED : ULDMA_STREAM_REFUSED;

	note_named(o, in);
	if (flags && flags != answer)
		return "the peer answers otherwise, or has ended the connection";
	if (o->stream_flags && flags != o->stream_flags)
		return "the peer has answered before";
	o->stream_flags = flags;
	if (flags & ULDMA_STREAM_MATCHED)
		object_of(o, in->conn_stream.handle)->connected = true;
	return NULL;
}

static const char *apply_create(struct world *w, struct open_file *o,
				const struct uldma_endpoint_create *a)
{
	const struct device *d = &w->devices[o->device];
	__u64 page = page_size();
	struct object new = {
		.kind = ENDPOINT,
		.handle = a->out_handle,
		.stream = a->flags,
		.parts = { { a->out_ring_offset, page },
			   { a->out_status_offset, page, .read_only = true } },
		.serial = ++w->serial,
	};
	struct endpoint_name name = {
		.node = d->idle.out_node,
		.index = a->out_index,
		.generation = a->out_generation,
	};

	if (!a->flags && meet(d, &name))
		new.other = name;
	return add_object(o, &new);
}

static void apply_connect(struct open_file *o, const struct uldma_endpoint_connect *a)
{
	struct object *endpoint = object_of(o, a->handle);

	endpoint->connected = true;
	endpoint->met = endpoint->other.generation &&
			a->node == endpoint->other.node &&
			a->peer_index == endpoint->other.index &&
			a->peer_generation == endpoint->other.generation;
}

const char *apply_endpoint(struct world *w, struct open_file *o, __u32 number,
			   const union uldma_args *in, const union uldma_args *out)
{
	const struct object *endpoint;

	switch (number) {
	case ULDMA_CMD_ENDPOINT_CREATE:
		return apply_create(w, o, &out->endpoint_create);
	case ULDMA_CMD_ENDPOINT_CONNECT:
		apply_connect(o, &in->endpoint_connect);
		break;
	case ULDMA_CMD_ENDPOINT_DESTROY:
		end_object(o, object_of(o, in->handle.handle));
		break;
	case ULDMA_CMD_ENDPOINT_WAIT:
		endpoint = object_of(o, in->endpoint_wait.handle);
		if (out->endpoint_wait.out_completed && !endpoint->met)
			return "messages that no peer has sent";
		w->found += in->endpoint_wait.count && out->endpoint_wait.out_completed;
		break;
	case ULDMA_CMD_CONN_STREAM:
		return apply_stream(o, in, out->conn_stream.out_flags);
	}
	return NULL;
}
