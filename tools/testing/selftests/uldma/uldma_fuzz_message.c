// SPDX-License-Identifier: GPL-2.0
/*
 * The part of the fuzzer's model that knows message slots: which are free, and how
 * far the device can get in the queue of the context. Whether a message has come or has
 * ended is known only where it cannot have.
 */
#include "uldma_fuzz_model.h"

void fill_message(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		  union uldma_args *a)
{
	switch (number) {
	case ULDMA_CMD_MSG_SLOTS:
		a->msg_slots.flags = one_in(c, 3);
		a->msg_slots.endpoint = handle(c, w, o, is_endpoint);
		a->msg_slots.count = one_in(c, 8) ? edge(c) : 1 + below(c, 3);
		a->msg_slots.slot_bytes = one_in(c, 8) ? edge(c) : page_size();
		break;
	case ULDMA_CMD_MSG_SEND:
		a->msg_send.slots = handle(c, w, o, is_sender);
		a->msg_send.addr = address(c);
		a->msg_send.length = one_in(c, 3) ? length(c) : below(c, page_size());
		a->msg_send.ticket = one_in(c, 6) ? edge(c) : o->posted + 1;
		a->msg_send.timeout_ns = timeout(c);
		break;
	case ULDMA_CMD_MSG_RECV:
		a->msg_recv.slots = handle(c, w, o, is_receiver);
		a->msg_recv.addr = address(c);
		a->msg_recv.length = length(c);
		a->msg_recv.timeout_ns = timeout(c);
		break;
	}
}

static void judge_slots(struct open_file *o, int process, const struct device *d,
			const struct uldma_msg_slots *a, struct verdict *v)
{
	__u64 pages = a->slot_bytes / page_size() * a->count;

	must(v, EINVAL, !a->count || a->count > ULDMA_STATUS_RECORDS);
	must(v, EINVAL, !a->slot_bytes || a->slot_bytes % page_size() ||
	     a->slot_bytes > ULDMA_MSG_MAX_SLOT);
	must(v, ENOENT, !is_endpoint(object_of(o, a->endpoint)));
	if (!is_endpoint(object_of(o, a->endpoint)))
		return;
	/* A message may have come. */
	may(v, EBUSY, a->flags & ULDMA_MSG_RECEIVE && object_of(o, a->endpoint)->met);
	must(v, ENOSPC, pages > d->idle.out_max_pages);
	may(v, ENOMEM, process == POOR);
}

static void judge_send(struct world *w, int process, const struct order *order,
		       struct open_file *o, const struct uldma_msg_send *a, struct verdict *v)
{
	const struct object *object = object_of(o, a->slots);
	const struct slots *slots;
	bool busy;

	must(v, EINVAL, is_receiver(object));
	must(v, ENOENT, !is_sender(object) && !is_receiver(object));
	if (!is_sender(object))
		return;
	slots = &object->slots;
	must(v, ENOENT, !endpoint_of(o, object->source));
	must(v, ENXIO, !o->context);
	must(v, EINVAL, o->context && o->method != ULDMA_METHOD_QUEUE);
	must(v, EMSGSIZE, a->length > slots->bytes);
	must(v, EFAULT, a->length && a->length <= slots->bytes &&
	     !is_mapped(w, process, a->addr, a->length, false));
	must(v, EINVAL, !a->ticket);
	must(v, EBUSY, a->ticket > o->posted + ULDMA_STATUS_RECORDS);
	/* Nothing tells which tickets have ended. */
	may(v, EINVAL, a->ticket <= o->posted);
	may(v, EBUSY, a->ticket > ULDMA_STATUS_RECORDS);
	busy = slots->context[slots->next] == o->contexts;
	if (busy && slots->ticket[slots->next] > o->posted)
		judge_vain(order, a->timeout_ns, v);
	may(v, EINTR, busy && order->interrupt);
	may(v, ETIMEDOUT, busy && a->timeout_ns < PATIENCE);
}

static void judge_receive(struct world *w, int process, const struct order *order,
			  struct open_file *o, const struct uldma_msg_recv *a, struct verdict *v)
{
	const struct object *object = object_of(o, a->slots), *endpoint;

	must(v, EINVAL, is_sender(object));
	must(v, ENOENT, !is_sender(object) && !is_receiver(object));
	if (!is_receiver(object))
		return;
	endpoint = endpoint_of(o, object->source);
	must(v, ENOENT, !endpoint);
	must(v, ENOTCONN, endpoint && !endpoint->connected);
	if (endpoint && endpoint->met) {
		may(v, EINTR, order->interrupt);
		may(v, ETIMEDOUT, a->timeout_ns < PATIENCE);
		/* The ring is mapped, and a message may fit in the first bytes. */
		may(v, EIO, true);
		may(v, EFAULT, a->length && !is_mapped(w, process, a->addr, a->length, true));
	} else if (endpoint && endpoint->connected) {
		judge_vain(order, a->timeout_ns, v);
	}
}

void judge_message(struct world *w, int process, const struct order *order, struct open_file *o,
		   const union uldma_args *a, struct verdict *v)
{
	switch (calls[order->call].number) {
	case ULDMA_CMD_MSG_SLOTS:
		judge_slots(o, process, &w->devices[o->device], &a->msg_slots, v);
		break;
	case ULDMA_CMD_MSG_SEND:
		judge_send(w, process, order, o, &a->msg_send, v);
		break;
	case ULDMA_CMD_MSG_RECV:
		judge_receive(w, process, order, o, &a->msg_recv, v);
		break;
	}
}

static void apply_send(struct open_file *o, const struct uldma_msg_send *a)
{
	struct slots *slots = &object_of(o, a->slots)->slots;

	slots->context[slots->next] = o->contexts;
	slots->ticket[slots->next] = a->ticket;
	slots->next = (slots->next + 1) % slots->count;
	o->queue[a->ticket % ULDMA_STATUS_RECORDS] = a->ticket;
	while (o->queue[(o->posted + 1) % ULDMA_STATUS_RECORDS] == o->posted + 1)
		o->posted++;
}

const char *apply_message(struct open_file *o, __u32 number, const union uldma_args *in,
			  const union uldma_args *out)
{
	const struct uldma_msg_slots *a = &out->msg_slots;
	const struct object *endpoint;

	switch (number) {
	case ULDMA_CMD_MSG_SLOTS:
		return add_object(o, &(struct object){
			.kind = REGION,
			.backing = SLOTS,
			.handle = a->out_handle,
			.access = a->flags & ULDMA_MSG_RECEIVE ? ULDMA_ACCESS_WRITE :
								 ULDMA_ACCESS_READ,
			.length = a->count * a->slot_bytes,
			.source = object_of(o, in->msg_slots.endpoint)->serial,
			.slots = { .count = a->count, .bytes = a->slot_bytes },
		});
	case ULDMA_CMD_MSG_SEND:
		apply_send(o, &in->msg_send);
		break;
	case ULDMA_CMD_MSG_RECV:
		endpoint = endpoint_of(o, object_of(o, in->msg_recv.slots)->source);
		if (!endpoint->met)
			return "a message that no peer has sent";
		break;
	}
	return NULL;
}
