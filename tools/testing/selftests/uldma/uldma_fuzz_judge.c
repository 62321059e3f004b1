// SPDX-License-Identifier: GPL-2.0
/*
 * The expected result of each call in the model's state, as the interface
 * documents it. Where several errors hold, any of them is right.
 */
#include "uldma_fuzz_model.h"

static bool is_import(const struct object *object)
{
	return object && object->kind == IMPORT;
}

static bool is_in_window(const struct object *object)
{
	return object && object->backing == IN_WINDOW;
}

/* Returns true if a call may name the node, or zero for all. */
static bool may_be_named(const struct device *d, __u32 peer)
{
	return !peer || peer_of(d, peer) >= 0;
}

static bool segment_is_alive(struct world *w, int serial)
{
	/* Another node's stay. */
	if (serial < 0)
		return true;
	for (int i = 0; i < OPEN_FILES; i++)
		for (int j = 0; j < OBJECTS; j++)
			if (w->open_files[i].used && w->open_files[i].objects[j].kind == CREATED &&
			    w->open_files[i].objects[j].serial == serial)
				return true;
	return false;
}

static void judge_range(struct verdict *v, __u64 addr, __u64 length)
{
	__u64 last = addr + length - 1;

	must(v, EINVAL, !length);
	must(v, EOVERFLOW, length && (last < addr || last + page_size() < last));
}

/* Memory that is to be pinned. */
static void judge_memory(struct world *w, int process, const struct device *d, __u64 addr,
			 __u64 length, bool write, struct verdict *v)
{
	__u64 first = addr / page_size(), last = (addr + length - 1) / page_size();

	judge_range(v, addr, length);
	if (v->must[EINVAL] || v->must[EOVERFLOW])
		return;
	must(v, ENOSPC, last - first + 1 > d->idle.out_max_pages);
	must(v, EFAULT, !is_mapped(w, process, addr, length, write));
	may(v, ENOMEM, process == POOR);
}

/* What has transfers wait, has a limit, and is optimistic. */
static void judge_waits(const struct uldma_region_register *a, struct verdict *v)
{
	__u32 ways = a->flags & ULDMA_WAITS;

	must(v, EINVAL, ways == ULDMA_WAITS);
	must(v, EINVAL, ways && !(a->flags & ULDMA_REGISTER_OPTIMISTIC));
	must(v, EINVAL, !ways != !a->limit_us);
	must(v, EINVAL, a->limit_us > ULDMA_REGISTER_MAX_LIMIT_US);
}

/* Addresses, whatever is mapped there. */
static void judge_optimistic(int process, const struct device *d, __u64 addr, __u64 length,
			     struct verdict *v)
{
	__u64 first = addr / page_size(), last = (addr + length - 1) / page_size();

	must(v, EOPNOTSUPP, !d->engine);
	judge_range(v, addr, length);
	if (v->must[EINVAL] || v->must[EOVERFLOW])
		return;
	must(v, ENOSPC, last - first + 1 > d->idle.out_max_pages);
	/* All that the fuzzer has is small. */
	may(v, ENOSPC, last - first + 1 > d->idle.out_max_pages / 8);
	may(v, EDQUOT, last - first + 1 > d->idle.out_max_pages / 8);
	may(v, ENOMEM, process == POOR || last - first + 1 > d->idle.out_max_pages / 8);
}

static void judge_handle(struct verdict *v, const struct object *object, bool right_kind)
{
	must(v, ENOENT, !object || !right_kind);
}

/* A question to a peer that has to answer in time. */
static void judge_question(const struct device *d, int peer, __u64 timeout, struct verdict *v)
{
	must(v, EINVAL, peer < 0);
	must(v, ENOTCONN, peer >= 0 && !(d->idle.out_peers & 1U << peer));
	may(v, ETIMEDOUT, timeout < PATIENCE);
	may(v, EINTR, true);
}

static void judge_transfer(const struct object *object, __u64 offset, __u64 length, __u32 access,
			   struct verdict *v)
{
	judge_handle(v, object, is_region(object));
	if (!is_region(object))
		return;
	must(v, EINVAL, offset + length < offset || offset + length > object->length);
	must(v, EACCES, !(object->access & access));
}

static __u64 pages_of(const struct object *object)
{
	__u64 page = page_size();

	return (object->addr % page + object->length + page - 1) / page;
}

static bool whole_pages(const struct object *object, __u64 first, __u64 pages)
{
	__u64 page = page_size(), offset = object->addr % page;

	return pages && first * page >= offset &&
	       (first + pages) * page <= offset + object->length;
}

static void judge_map_out(struct open_file *o, const struct uldma_map_out *a, struct verdict *v)
{
	struct object *src = object_of(o, a->src), *dst = object_of(o, a->dst);

	judge_handle(v, src, is_region(src));
	must(v, ENOENT, a->dst && !is_region(dst));
	if (v->must[ENOENT])
		return;
	must(v, EOPNOTSUPP, src->optimistic);
	must(v, EINVAL, src->kind == IMPORT || !whole_pages(src, a->src_page, a->pages));
	must(v, EINVAL, a->dst && !whole_pages(dst, a->dst_page, a->pages));
	must(v, EINVAL, is_in_window(src) || is_in_window(dst));
	must(v, EACCES, !(src->access & ULDMA_ACCESS_READ));
	must(v, EACCES, a->dst && !(dst->access & ULDMA_ACCESS_WRITE));
}

static void judge_blocks(struct open_file *o, int process, const struct uldma_region_blocks *a,
			 struct verdict *v)
{
	struct object *object = object_of(o, a->handle);
	bool good = a->blocks >= ARENA && a->blocks < ARENA + ARENA_PAGES * page_size();

	must(v, EPERM, process == POOR);
	judge_handle(v, object, is_region(object));
	if (!is_region(object))
		return;
	must(v, EOPNOTSUPP, object->optimistic);
	must(v, EINVAL, object->kind == IMPORT || is_in_window(object) ||
	     a->first_page > pages_of(object));
	/* Where they go is any memory of the program's. */
	may(v, EFAULT, true);
	must(v, EFAULT, !good && a->capacity && a->first_page < pages_of(object));
}

static void judge_window(int process, const struct device *d, const struct uldma_region_window *a,
			 struct verdict *v)
{
	__u64 size = d->idle.out_window_size;

	must(v, EOPNOTSUPP, !d->engine);
	must(v, EINVAL, !a->flags || !a->length || peer_of(d, a->peer) < 0);
	must(v, ENOSPC, a->length > size);
	/* All that the fuzzer has is small. */
	may(v, ENOSPC, a->length > size / 4);
	may(v, EDQUOT, process == POOR && a->length > size / 8);
}

static void judge_region(struct world *w, int process, const struct order *order,
			 struct open_file *o, const union uldma_args *a, struct verdict *v)
{
	struct device *d = &w->devices[o->device];
	struct object *object = object_of(o, a->handle.handle);
	const struct object *there;
	int peer;

	switch (calls[order->call].number) {
	case ULDMA_CMD_REGION_REGISTER:
		must(v, EINVAL, !(a->region_register.flags & RW));
		judge_waits(&a->region_register, v);
		if (a->region_register.flags & ULDMA_REGISTER_OPTIMISTIC) {
			judge_optimistic(process, d, a->region_register.addr,
					 a->region_register.length, v);
			break;
		}
		judge_memory(w, process, d, a->region_register.addr, a->region_register.length,
			     a->region_register.flags & ULDMA_ACCESS_WRITE, v);
		break;
	case ULDMA_CMD_REGION_UNREGISTER:
		judge_handle(v, object, is_region(object));
		break;
	case ULDMA_CMD_REGION_EXPORT:
		object = object_of(o, a->region_export.handle);
		must(v, EINVAL, !a->region_export.flags || !a->region_export.name);
		must(v, EINVAL, !may_be_named(d, a->region_export.peer));
		judge_handle(v, object, is_region(object));
		if (!is_region(object))
			break;
		must(v, EINVAL, object->kind == IMPORT || is_in_window(object));
		must(v, EACCES, a->region_export.flags & ~object->access);
		must(v, EEXIST, object->name ||
		     named(w, o->device, REGION, a->region_export.name));
		break;
	case ULDMA_CMD_REGION_UNEXPORT:
		judge_handle(v, object, is_region(object) && object->name);
		break;
	case ULDMA_CMD_REGION_IMPORT:
		must(v, EINVAL, !a->region_import.flags || !a->region_import.name);
		peer = peer_of(d, a->region_import.peer);
		judge_question(d, peer, a->region_import.timeout_ns, v);
		there = of_peer(w, d, peer, REGION, a->region_import.name);
		must(v, ENOENT, !there);
		must(v, EACCES, there && a->region_import.flags & ~there->exported);
		break;
	case ULDMA_CMD_REGION_QUERY:
		object = object_of(o, a->region_query.handle);
		judge_handle(v, object, is_region(object));
		break;
	case ULDMA_CMD_REGION_WINDOW:
		judge_window(process, d, &a->region_window, v);
		break;
	case ULDMA_CMD_REGION_CHARGE:
		must(v, EINVAL, !(a->region_charge.flags & RW));
		judge_range(v, a->region_charge.addr, a->region_charge.length);
		break;
	case ULDMA_CMD_REGION_BLOCKS:
		judge_blocks(o, process, &a->region_blocks, v);
		break;
	}
}

static int announced(struct world *w, const struct open_file *but)
{
	int count = 0;

	for (int i = 0; i < OPEN_FILES; i++) {
		struct open_file *o = &w->open_files[i];

		count += o->used && o != but && o->device == but->device &&
			 o->owner == but->owner && o->context &&
			 1U << o->method & ULDMA_METHODS_SCHED_NOTIFY;
	}
	return count;
}

static void judge_create(struct world *w, struct open_file *o,
			 const struct uldma_context_create *a, struct verdict *v)
{
	const struct uldma_query *idle = &w->devices[o->device].idle;
	bool known = a->method < 32 && idle->out_methods & 1U << a->method;
	bool insecure = a->method < 32 && 1U << a->method & ULDMA_METHODS_INSECURE;
	bool others = false;

	must(v, EBUSY, o->context);
	/* Only callers that may use a method learn whether the device has it. */
	must(v, insecure ? EPERM : EOPNOTSUPP, !known);
	may(v, EOPNOTSUPP, insecure);
	if (known && 1U << a->method & ULDMA_METHODS_SCHED_NOTIFY) {
		must(v, EBUSY, announced(w, o));
		may(v, EBUSY, true);
		may(v, EOPNOTSUPP, true);
	}
	for (int i = 0, used = 1; i < OPEN_FILES; i++) {
		bool taken = w->open_files[i].used && w->open_files[i].context;

		used += taken;
		others |= taken;
		may(v, EBUSY, used > idle->out_contexts - idle->out_contexts_used);
	}
	/* All are of one user; one without capabilities has a part of what that user can have. */
	may(v, EBUSY, o->owner == POOR && others);
}

static void judge_engine(struct world *w, const struct order *order, struct open_file *o,
			 const union uldma_args *a, struct verdict *v)
{
	struct device *d = &w->devices[o->device];
	bool context = a->dma_wait.flags & ULDMA_WAIT_CONTEXT;
	__u64 ticket = a->dma_wait.ticket;

	switch (calls[order->call].number) {
	case ULDMA_CMD_CONTEXT_CREATE:
		judge_create(w, o, &a->context_create, v);
		break;
	case ULDMA_CMD_CONTEXT_DESTROY:
	case ULDMA_CMD_CONTEXT_STATS:
		must(v, ENXIO, !o->context);
		break;
	case ULDMA_CMD_CONTEXT_MAP_OUT:
		judge_map_out(o, &a->map_out, v);
		break;
	case ULDMA_CMD_DMA:
		must(v, EOPNOTSUPP, !d->engine);
		must(v, EINVAL, !a->dma.length || a->dma.length > d->idle.out_max_transfer);
		judge_transfer(object_of(o, a->dma.src), a->dma.src_offset, a->dma.length,
			       ULDMA_ACCESS_READ, v);
		judge_transfer(object_of(o, a->dma.dst), a->dma.dst_offset, a->dma.length,
			       ULDMA_ACCESS_WRITE, v);
		/* Documentation/uldma/device.rst: one side is memory of this node. */
		must(v, EACCES, is_import(object_of(o, a->dma.src)) &&
		     is_import(object_of(o, a->dma.dst)));
		may(v, EBUSY, true);
		may(v, EDQUOT, o->owner == POOR);
		break;
	case ULDMA_CMD_DMA_WAIT:
		may(v, ETIMEDOUT, a->dma_wait.timeout_ns < PATIENCE || context);
		may(v, EINTR, true);
		must(v, ENXIO, context && !o->context);
		/* User level may have started some. */
		may(v, ENOENT, context);
		must(v, ENOENT, !ticket || (!context && !o->tickets));
		must(v, ENOENT, !context && ticket > o->ticket);
		may(v, ENOENT, !context && ticket != o->ticket);
		break;
	}
}

static void judge_segment(struct world *w, int process, const struct order *order,
			  struct open_file *o, const union uldma_args *a, struct verdict *v)
{
	struct device *d = &w->devices[o->device];
	struct object *object = object_of(o, a->handle.handle);
	int peer;

	switch (calls[order->call].number) {
	case ULDMA_CMD_SEGMENT_CREATE:
		must(v, EINVAL, !a->segment_create.name || !a->segment_create.length);
		must(v, EINVAL, peer_of(d, a->segment_create.peer) < 0);
		must(v, EEXIST, named(w, o->device, CREATED, a->segment_create.name));
		must(v, ENOSPC, a->segment_create.length > d->idle.out_window_size);
		/* Less than that can be more than one user's part. */
		may(v, EDQUOT, process == POOR);
		/* Parts that peers have not given back are not free yet. */
		may(v, ENOSPC, true);
		break;
	case ULDMA_CMD_SEGMENT_ATTACH:
		peer = peer_of(d, a->segment_attach.peer);
		must(v, EINVAL, !a->segment_attach.name);
		judge_question(d, peer, a->segment_attach.timeout_ns, v);
		must(v, ENOENT, !of_peer(w, d, peer, CREATED, a->segment_attach.name));
		break;
	case ULDMA_CMD_SEGMENT_DESTROY:
		judge_handle(v, object, is_segment(object));
		break;
	case ULDMA_CMD_DOORBELL:
		judge_handle(v, object, is_segment(object));
		must(v, ENOTCONN, !d->idle.out_peers);
		may(v, ESTALE, is_segment(object) && object->kind == ATTACHED &&
		    !segment_is_alive(w, object->source));
		break;
	}
}

static void judge_offer(const struct uldma_conn_offer *a, struct verdict *v)
{
	must(v, EINVAL, a->private_length > ULDMA_CONN_PRIVATE);
	for (__u32 i = a->private_length; i < ULDMA_CONN_PRIVATE; i++)
		must(v, EINVAL, a->private_data[i]);
}

static void judge_listen(struct world *w, struct open_file *o, const struct uldma_conn_listen *a,
			 struct verdict *v)
{
	bool once = a->flags & ULDMA_LISTEN_ONCE;

	judge_offer(&a->offer, v);
	must(v, EINVAL, !a->port);
	must(v, EINVAL, once ? a->backlog : !a->backlog || a->backlog > ULDMA_CONN_MAX_BACKLOG);
	must(v, EISCONN, o->state != ALONE);
	must(v, EADDRINUSE, listener_at(w, o->device, a->port));
}

static void judge_accept(struct world *w, int process, const struct order *order,
			 struct open_file *o, __u32 port, struct verdict *v)
{
	struct open_file *at = listener_at(w, o->device, port);

	must(v, EISCONN, o->state != ALONE);
	must(v, ENOENT, !at);
	if (!at)
		return;
	must(v, EPERM, at->owner != process || order->in_child);
	must(v, o->nonblock ? EAGAIN : EINTR, !at->count);
}

static void judge_connect(struct world *w, struct open_file *o, const struct uldma_conn_connect *a,
			  struct verdict *v)
{
	struct device *d = &w->devices[o->device];
	int peer = peer_of(d, a->peer);
	const struct uldma_conn_offer *theirs;
	struct open_file *at;

	judge_offer(&a->offer, v);
	must(v, EINVAL, !a->port);
	must(v, EISCONN, o->state != ALONE);
	judge_question(d, peer, a->timeout_ns, v);
	must(v, EOPNOTSUPP, a->flags & ULDMA_CONNECT_PULL &&
	     d->idle.out_backend == ULDMA_BACKEND_IVSHMEM);
	at = peer < 0 || d->peers[peer] < 0 ? NULL : listener_at(w, d->peers[peer], a->port);
	must(v, ECONNREFUSED, at ? at->count >= at->backlog :
				   !d->remote || !a->port || a->port > PORTS);
	may(v, ECONNREFUSED, d->remote);
	/* Another node listens for bytes, of no version. */
	theirs = at ? &at->offer : &(const struct uldma_conn_offer){};
	if (!at && !d->remote)
		return;
	must(v, EPROTOTYPE, a->offer.kind != theirs->kind);
	must(v, EPROTONOSUPPORT, a->offer.kind == theirs->kind &&
	     a->offer.version != theirs->version);
}

/* The other side's end of an open file's connection. */
static enum end other_end(struct world *w, const struct open_file *o)
{
	return w->connections[o->connection].end[!o->side];
}

static void judge_data(struct world *w, int process, const struct order *order,
		       struct open_file *o, const union uldma_args *a, struct verdict *v)
{
	__u32 number = calls[order->call].number;
	bool receives = number == ULDMA_CMD_CONN_PREPOST || number == ULDMA_CMD_CONN_RECV;
	bool gives = number == ULDMA_CMD_CONN_PREPOST || number == ULDMA_CMD_CONN_SEND;
	struct given *given = &o->given[!receives];

	/* Registering the first notifier of an address space can be interrupted. */
	may(v, EINTR, gives && order->interrupt);
	if (gives)
		judge_memory(w, process, &w->devices[o->device], a->conn_buffer.addr,
			     a->conn_buffer.length, receives, v);
	else
		must(v, EINVAL, !a->conn_range.length);
	if (o->state == LISTENING && o->once) {
		must(v, o->nonblock ? EAGAIN : EINTR, true);
		return;
	}
	must(v, ENOTCONN, o->state != CONNECTED);
	if (o->state != CONNECTED)
		return;
	if (gives) {
		must(v, ENOSPC, given->count >= GIVEN);
		must(v, EBUSY, o->named && o->stream_flags & ULDMA_STREAM_MATCHED);
		may(v, EBUSY, o->named && !(o->stream_flags & ULDMA_STREAM_REFUSED));
		must(v, EPIPE, other_end(w, o) == DISCONNECTED);
		may(v, EPIPE, other_end(w, o) != OPEN);
		may(v, ECONNRESET, other_end(w, o) != OPEN);
		return;
	}
	may(v, ECONNRESET, other_end(w, o) != OPEN);
	may(v, o->nonblock ? EAGAIN : EINTR, other_end(w, o) != DISCONNECTED || given->count);
	must(v, o->nonblock ? EAGAIN : EINTR, other_end(w, o) == OPEN && !given->count);
}

static void judge_connection(struct world *w, int process, const struct order *order,
			     struct open_file *o, const union uldma_args *a, struct verdict *v)
{
	switch (calls[order->call].number) {
	case ULDMA_CMD_CONN_LISTEN:
		judge_listen(w, o, &a->conn_listen, v);
		break;
	case ULDMA_CMD_CONN_ACCEPT:
		judge_accept(w, process, order, o, a->conn_accept.port, v);
		break;
	case ULDMA_CMD_CONN_CONNECT:
		judge_connect(w, o, &a->conn_connect, v);
		break;
	case ULDMA_CMD_CONN_DISCONNECT:
		must(v, ENOTCONN, o->state == ALONE);
		break;
	case ULDMA_CMD_CONN_PREPOST:
	case ULDMA_CMD_CONN_SEND:
	case ULDMA_CMD_CONN_RECV:
	case ULDMA_CMD_CONN_RECYCLE:
		judge_data(w, process, order, o, a, v);
		break;
	}
}

/* What holds for all calls: DOC: general contract. Whether the rest matters. */
static bool judge_form(const struct order *order, struct verdict *v)
{
	const struct call *call = &calls[order->call];
	const union uldma_args *a = &order->args;
	bool readable = order->where == AT_MEMORY || order->where == AT_READ_ONLY;

	must(v, EFAULT, !readable && call->size);
	if (!readable || !call->size)
		return false;
	must(v, EFAULT, order->where == AT_READ_ONLY && call->writes);
	must(v, EINVAL, a->size < call->first);
	if (a->size < call->first)
		return false;
	for (__u32 i = call->size; i < a->size && i < sizeof(*a); i++)
		must(v, E2BIG, a->bytes[i]);
	may(v, E2BIG, a->size > page_size());
	if (a->size > sizeof(*a) && a->size > page_size())
		must(v, E2BIG, a->size > 2 * page_size());
	return true;
}

static void judge_fields(const struct order *order, const union uldma_args *a, struct verdict *v)
{
	const struct call *call = &calls[order->call];
	__u32 word;

	must(v, EOPNOTSUPP, call->flags != ANY_FLAGS && a->head.flags & ~call->flags);
	for (int i = 0; i < ARRAY_SIZE(call->reserved); i++) {
		memcpy(&word, a->bytes + call->reserved[i], sizeof(word));
		must(v, EINVAL, call->reserved[i] && word);
	}
}

static void judge_rest(struct open_file *o, struct world *w, const struct order *order,
		       const union uldma_args *a, struct verdict *v)
{
	struct device *d = &w->devices[o->device];
	__u32 node = a->peer_query.node;

	switch (calls[order->call].number) {
	case ULDMA_CMD_PEER_QUERY:
		must(v, EINVAL, node >= d->idle.out_nodes || node == d->idle.out_node);
		break;
	case ULDMA_CMD_LMM:
		must(v, EINVAL, a->lmm.flags == (ULDMA_LMM_CACHE_ON | ULDMA_LMM_CACHE_OFF));
		break;
	case ULDMA_CMD_EVENTFD:
		must(v, EINVAL, a->eventfd.fd != EVENT_FD && a->eventfd.fd != -1);
		break;
	}
}

static void judge_ioctl(struct world *w, int process, const struct order *order,
			struct verdict *v)
{
	const struct call *call = &calls[order->call];
	struct open_file *o = &w->open_files[order->open_file];
	union uldma_args a;
	bool foreign = o->owner != process || order->in_child;

	must(v, ENOTTY, order->cmd != _IO(ULDMA_TYPE, call->number));
	if (v->fails || !judge_form(order, v))
		return;
	a = known_part(order);
	judge_fields(order, &a, v);
	must(v, EPERM, foreign && call->owner);
	must(v, EPERM, foreign && call->number == ULDMA_CMD_LMM && a.lmm.flags);
	judge_rest(o, w, order, &a, v);
	judge_region(w, process, order, o, &a, v);
	judge_engine(w, order, o, &a, v);
	judge_segment(w, process, order, o, &a, v);
	judge_ring(w, order, o, &a, v);
	judge_connection(w, process, order, o, &a, v);
	judge_endpoint(w, order, o, &a, v);
	judge_message(w, process, order, o, &a, v);
	judge_exchange(w, process, o, call->number, &a, v);
}

static void judge_mmap(struct world *w, int process, const struct order *order,
		       struct verdict *v)
{
	struct open_file *o = &w->open_files[order->open_file];
	__u64 page = page_size(), pages = (order->b + page - 1) / page;
	bool found = false, writable = true, of_context = false;

	for (int i = 0; i < OBJECTS * 2; i++) {
		struct object *object = &o->objects[i / 2];
		const struct part *part = &object->parts[i % 2];

		if (object->kind != NONE && order->a >= part->offset &&
		    order->a + pages * page <= part->offset + part->length) {
			found = true;
			of_context = part->of_context;
			writable = !part->read_only;
		}
	}
	if (o->context && pages == 1) {
		found |= order->a == o->page_offset || order->a == o->status_offset;
		writable &= order->a != o->status_offset;
	}
	must(v, EPERM, o->owner != process);
	must(v, EINVAL, !found || !(order->args.head.flags & MAP_SHARED));
	must(v, ENXIO, of_context && !o->context);
	must(v, EACCES, found && !writable && order->args.head.size & PROT_WRITE);
	must(v, EACCES, order->args.head.size & PROT_EXEC);
	/* Errors of the memory manager before it calls the driver. */
	may(v, EPERM, order->args.head.size & PROT_EXEC);
	may(v, EOVERFLOW, order->a >> 60);
}

void judge(struct world *w, int process, const struct order *o, struct verdict *v)
{
	*v = (struct verdict){ };
	switch (o->op) {
	case OP_IOCTL:
		judge_ioctl(w, process, o, v);
		break;
	case OP_MMAP:
		judge_mmap(w, process, o, v);
		break;
	case OP_READ:
		must(v, EINVAL, o->a < sizeof(struct uldma_event));
		must(v, EPERM, w->open_files[o->open_file].owner != process || o->in_child);
		may(v, EFAULT, o->where != AT_MEMORY);
		may(v, w->open_files[o->open_file].nonblock ? EAGAIN : EINTR, true);
		break;
	case OP_SHARE:
		/* A process without capabilities cannot take files of one that has some. */
		must(v, EPERM, process == POOR);
		break;
	default:
		break;
	}
}
