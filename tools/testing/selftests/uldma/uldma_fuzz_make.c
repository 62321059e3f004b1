// SPDX-License-Identifier: GPL-2.0
/*
 * Makes up what the fuzzer does next.
 */
#include "uldma_fuzz_model.h"

/* How much more often calls about connections are made, if most calls are. */
#define MANY_TIMES 8

static int weight(const struct world *w, const struct call *call)
{
	bool is_favoured = !strncmp(call->name, "CONN_", 5);

	return call->weight * (w->of_connections && is_favoured ? MANY_TIMES : 1);
}

static int pick_call(struct chance *c, const struct world *w)
{
	int total = 0, at;

	for (int i = 0; i < call_count; i++)
		total += weight(w, &calls[i]);
	at = below(c, total);
	for (int i = 0; i < call_count; i++) {
		at -= weight(w, &calls[i]);
		if (at < 0)
			return i;
	}
	return 0;
}

/* Returns true if the model could not follow a successful call. */
static bool is_full(struct world *w, struct open_file *o, __u32 number)
{
	switch (number) {
	case ULDMA_CMD_REGION_REGISTER:
	case ULDMA_CMD_REGION_IMPORT:
	case ULDMA_CMD_REGION_WINDOW:
	case ULDMA_CMD_ENDPOINT_CREATE:
	case ULDMA_CMD_MSG_SLOTS:
	case ULDMA_CMD_EXCHANGE_CREATE:
	case ULDMA_CMD_SEGMENT_CREATE:
	case ULDMA_CMD_SEGMENT_ATTACH:
	case ULDMA_CMD_CONN_RING:
		for (int i = 0; i < OBJECTS; i++)
			if (o->objects[i].kind == NONE)
				return false;
		return true;
	case ULDMA_CMD_CONN_CONNECT:
		for (int i = 0; i < CONNECTIONS; i++)
			if (!w->connections[i].used)
				return false;
		return true;
	default:
		return false;
	}
}

static bool can_wait(const struct order *o)
{
	switch (calls[o->call].number) {
	case ULDMA_CMD_CONN_ACCEPT:
	case ULDMA_CMD_CONN_PREPOST:
	case ULDMA_CMD_CONN_SEND:
	case ULDMA_CMD_CONN_RECV:
	case ULDMA_CMD_CONN_RECYCLE:
	case ULDMA_CMD_CONN_RING:
		return true;
	case ULDMA_CMD_DMA_WAIT:
		return o->args.dma_wait.flags;
	case ULDMA_CMD_CONN_STREAM:
	case ULDMA_CMD_ENDPOINT_WAIT:
	case ULDMA_CMD_MSG_SEND:
	case ULDMA_CMD_MSG_RECV:
		return true;
	default:
		return false;
	}
}

/* Returns true if a call waits also where the file is O_NONBLOCK. */
static bool has_timeout(__u32 number)
{
	return number == ULDMA_CMD_DMA_WAIT || number == ULDMA_CMD_CONN_STREAM ||
	       number == ULDMA_CMD_ENDPOINT_WAIT || number == ULDMA_CMD_MSG_SEND ||
	       number == ULDMA_CMD_MSG_RECV;
}

static bool has_object(const struct open_file *o, is_it *fits)
{
	for (int i = 0; i < OBJECTS; i++)
		if (fits(&o->objects[i]))
			return true;
	return false;
}

/* Returns true if an open file has the object of a call. */
static bool suits(struct world *w, const struct open_file *o, __u32 number)
{
	switch (number) {
	case ULDMA_CMD_REGION_UNREGISTER:
	case ULDMA_CMD_REGION_EXPORT:
	case ULDMA_CMD_REGION_UNEXPORT:
	case ULDMA_CMD_REGION_QUERY:
	case ULDMA_CMD_REGION_BLOCKS:
	case ULDMA_CMD_CONTEXT_MAP_OUT:
		return has_object(o, is_region);
	case ULDMA_CMD_DMA:
		return has_object(o, is_region) && w->devices[o->device].engine;
	case ULDMA_CMD_DMA_WAIT:
		return o->tickets || o->context;
	case ULDMA_CMD_SEGMENT_DESTROY:
	case ULDMA_CMD_DOORBELL:
		return has_object(o, is_segment);
	case ULDMA_CMD_EXCHANGE_PROTECT:
	case ULDMA_CMD_EXCHANGE_SWAP:
		return has_object(o, is_exchangeable);
	case ULDMA_CMD_EXCHANGE_RELEASE:
		return has_object(o, is_sending);
	case ULDMA_CMD_ENDPOINT_CONNECT:
	case ULDMA_CMD_ENDPOINT_DESTROY:
	case ULDMA_CMD_ENDPOINT_WAIT:
	case ULDMA_CMD_MSG_SLOTS:
		return has_object(o, is_endpoint);
	case ULDMA_CMD_MSG_SEND:
		return has_object(o, is_sender);
	case ULDMA_CMD_MSG_RECV:
		return has_object(o, is_receiver);
	case ULDMA_CMD_CONN_STREAM:
		return o->state == CONNECTED && has_object(o, is_stream);
	case ULDMA_CMD_ENDPOINT_CREATE:
	case ULDMA_CMD_REGION_WINDOW:
	case ULDMA_CMD_CONTEXT_CREATE:
		return w->devices[o->device].engine;
	case ULDMA_CMD_CONTEXT_DESTROY:
	case ULDMA_CMD_CONTEXT_STATS:
		return o->context;
	case ULDMA_CMD_REGION_IMPORT:
		return name_at_peer(w, o, REGION, 0);
	case ULDMA_CMD_SEGMENT_ATTACH:
		return name_at_peer(w, o, CREATED, 0);
	case ULDMA_CMD_CONN_LISTEN:
		return o->state == ALONE && !w->devices[o->device].engine;
	case ULDMA_CMD_CONN_ACCEPT:
		return o->state == ALONE && port_to_use(w, o, false, 0);
	case ULDMA_CMD_CONN_CONNECT:
		return o->state == ALONE && port_to_use(w, o, true, 0);
	case ULDMA_CMD_CONN_DISCONNECT:
		return o->state != ALONE;
	case ULDMA_CMD_CONN_PREPOST:
	case ULDMA_CMD_CONN_SEND:
	case ULDMA_CMD_CONN_RECV:
	case ULDMA_CMD_CONN_RECYCLE:
	case ULDMA_CMD_CONN_RING:
		return o->state == CONNECTED;
	default:
		return true;
	}
}

/* Finds an open file that suits the call, if the process has one. */
static bool suit(struct chance *c, struct world *w, int process, struct order *o)
{
	__u64 first = below(c, OPEN_FILES);

	for (int i = 0; i < OPEN_FILES; i++) {
		int at = (first + i) % OPEN_FILES;

		if (w->open_files[at].holders & 1U << process &&
		    suits(w, &w->open_files[at], calls[o->call].number)) {
			o->open_file = at;
			return true;
		}
	}
	return false;
}

static bool has_met(const struct object *o)
{
	return is_endpoint(o) && o->other.generation;
}

/* Returns the call that brings messages of an open file forward. */
static __u32 next_of_messages(struct chance *c, const struct open_file *o)
{
	static const __u32 last[] = {
		ULDMA_CMD_MSG_SEND, ULDMA_CMD_MSG_RECV, ULDMA_CMD_ENDPOINT_WAIT,
	};

	if (!has_object(o, has_met))
		return ULDMA_CMD_ENDPOINT_CREATE;
	if (!has_object(o, is_connected))
		return ULDMA_CMD_ENDPOINT_CONNECT;
	if (!has_object(o, is_receiver) || !has_object(o, is_sender))
		return ULDMA_CMD_MSG_SLOTS;
	return o->context ? last[below(c, ARRAY_SIZE(last))] : ULDMA_CMD_CONTEXT_CREATE;
}

/* One that the process has opened to the other node, or -1. */
static int file_of_messages(const struct world *w, int process)
{
	for (int i = 0; i < OPEN_FILES; i++)
		if (w->open_files[i].holders & 1U << process &&
		    w->open_files[i].owner == process &&
		    w->devices[w->open_files[i].device].remote)
			return i;
	return -1;
}

/* Finds what is missing for a message. */
static bool bring_forward(struct chance *c, struct world *w, int process, struct order *o)
{
	int at = file_of_messages(w, process);
	__u32 number;

	if (at < 0)
		return false;
	number = next_of_messages(c, &w->open_files[at]);
	for (o->call = 0; calls[o->call].number != number; o->call++)
		;
	o->open_file = at;
	return true;
}

/* Most often a call for which there is an open file that suits. */
static void pick(struct chance *c, struct world *w, int process, struct order *o,
		 bool of_messages)
{
	int tries = one_in(c, 6) ? 0 : 10;

	if (of_messages && bring_forward(c, w, process, o))
		return;
	o->call = pick_call(c, w);
	while (tries-- && !suit(c, w, process, o))
		o->call = pick_call(c, w);
}

/* Returns true if a number is an ioctl of the interface. */
static bool is_call(unsigned long cmd)
{
	for (int i = 0; i < call_count; i++)
		if (cmd == _IO(ULDMA_TYPE, calls[i].number))
			return true;
	return false;
}

static void make_ioctl(struct chance *c, struct world *w, int process, struct order *o,
		       bool of_messages)
{
	struct open_file *open_file;
	const struct call *call;

	o->op = OP_IOCTL;
	pick(c, w, process, o, of_messages);
	open_file = &w->open_files[o->open_file];
	if (is_full(w, open_file, calls[o->call].number))
		o->call = 1;
	call = &calls[o->call];
	o->cmd = _IO(ULDMA_TYPE, call->number);
	o->args.size = call->size;
	fill(c, w, open_file, call->number, &o->args);
	if (call->size && one_in(c, of_messages ? 16 : 4))
		mutate(c, o);
	/* Another call takes another structure, so the model would not know its answer. */
	if (o->cmd != _IO(ULDMA_TYPE, call->number) && is_call(o->cmd))
		o->cmd = _IO(ULDMA_TYPE, call->number);
	limit_exchange(w, open_file, call->number, &o->args);
	o->interrupt = can_wait(o) && (!open_file->nonblock || has_timeout(call->number));
}

static void make_open(struct chance *c, struct world *w, int place, struct order *o,
		      bool of_messages)
{
	o->op = OP_OPEN;
	o->open_file = place;
	o->a = one_in(c, 4) ? 0 : O_NONBLOCK;
	o->b = below(c, w->device_count);
	if (!w->devices[o->b].engine && one_in(c, 3))
		o->b = 0;
	for (int i = 0; i < w->device_count && of_messages; i++)
		if (w->devices[i].remote)
			o->b = i;
	memcpy(o->args.bytes, w->devices[o->b].path, sizeof(w->devices[o->b].path));
}

/* Selects the mapping: an object, a context's page, or neither. */
static bool make_mmap(struct chance *c, struct world *w, int process, struct order *o)
{
	struct open_file *open_file = &w->open_files[o->open_file];
	struct object *object = &open_file->objects[below(c, OBJECTS)];
	struct process *p = &w->processes[process];
	const struct part *part;

	for (o->c = 0; o->c < MAPPINGS; o->c++)
		if (p->maps[o->c].open_file < 0)
			break;
	if (o->c == MAPPINGS)
		return false;
	o->op = OP_MMAP;
	o->a = open_file->page_offset;
	o->b = page_size();
	if (object->kind != NONE && object->parts[0].length) {
		part = &object->parts[object->parts[1].length ? below(c, 2) : 0];
		o->a = part->offset;
		o->b = part->length;
	} else if (one_in(c, 2)) {
		o->a = open_file->status_offset;
	}
	if (one_in(c, 8))
		o->a = edge(c) & ~(page_size() - 1);
	if (one_in(c, 8))
		o->b = 1 + below(c, 4 * page_size());
	if (!o->a)
		return false;
	o->args.head.size = one_in(c, 10) ? below(c, 8) : PROT_READ | PROT_WRITE * below(c, 2);
	o->args.head.flags = one_in(c, 10) ? MAP_PRIVATE : MAP_SHARED;
	return true;
}

static bool make_of_mapping(struct chance *c, struct world *w, int process, enum op op,
			    struct order *o)
{
	__u64 first = below(c, MAPPINGS);

	for (int i = 0; i < MAPPINGS; i++) {
		o->a = (first + i) % MAPPINGS;
		if (w->processes[process].maps[o->a].open_file < 0)
			continue;
		o->op = op;
		o->b = draw(c);
		o->c = below(c, 2);
		return true;
	}
	return false;
}

static void make_memory(struct chance *c, struct world *w, int process, struct order *o)
{
	o->op = OP_MEMORY;
	o->a = below(c, ARENA_PAGES - 4);
	o->b = 1 + below(c, 4);
	o->c = one_in(c, 3) ? MEMORY_FRESH : below(c, MEMORY_DISCARDED + 1);
	/* An unmapped range has no rights to be changed. */
	for (__u64 i = o->a; i < o->a + o->b; i++)
		if (w->processes[process].page[i] == MEMORY_GONE)
			o->c = MEMORY_FRESH;
}

static bool make_share(struct chance *c, struct world *w, int process, struct order *o)
{
	struct open_file *open_file;
	__u64 first = below(c, OPEN_FILES);

	for (int i = 0; i < OPEN_FILES; i++) {
		o->open_file = (first + i) % OPEN_FILES;
		open_file = &w->open_files[o->open_file];
		if (!open_file->used || open_file->holders & 1U << process)
			continue;
		for (int from = 0; from < PROCESSES; from++)
			if (open_file->holders & 1U << from) {
				o->op = OP_SHARE;
				o->from = w->workers[from].pid;
				return true;
			}
	}
	return false;
}

/* One that the process has open, or -1. */
static int pick_file(struct chance *c, struct world *w, int process)
{
	__u64 first = below(c, OPEN_FILES);

	for (int i = 0; i < OPEN_FILES; i++)
		if (w->open_files[(first + i) % OPEN_FILES].holders & 1U << process)
			return (first + i) % OPEN_FILES;
	return -1;
}

static int free_place(const struct world *w)
{
	for (int i = 0; i < OPEN_FILES; i++)
		if (!w->open_files[i].used)
			return i;
	return -1;
}

/* The first kinds of orders that open a file, and that make a call. */
#define KIND_OPEN 4
#define KIND_CALL 63

/* Makes an order from a number; the process that is to do it. */
int make_order(struct world *w, __u32 step, struct order *o)
{
	struct chance c = { .state = step };
	bool of_messages = step & OF_MESSAGES && !one_in(&c, 8);
	int process = one_in(&c, 2) ? 0 : below(&c, PROCESSES), place = free_place(w);
	__u64 kind = below(&c, 200);

	if (of_messages) {
		process = 0;
		kind = file_of_messages(w, process) < 0 ? KIND_OPEN : KIND_CALL;
	}

	*o = (struct order){ };
	if (kind < KIND_OPEN && make_share(&c, w, process, o))
		return process;
	*o = (struct order){ .open_file = pick_file(&c, w, process) };
	if (o->open_file < 0 && place < 0) {
		o->open_file = 0;
		make_memory(&c, w, process, o);
		return process;
	}
	if (o->open_file < 0 || (kind < 10 && place >= 0)) {
		*o = (struct order){ };
		make_open(&c, w, place, o, of_messages);
		return process;
	}
	if (kind < 13) {
		o->op = OP_CLOSE;
		return process;
	}
	if (kind < 32 && make_mmap(&c, w, process, o))
		return process;
	if (kind < 42 && make_of_mapping(&c, w, process, kind < 36 ? OP_MUNMAP : OP_TOUCH, o))
		return process;
	o->b = 0;
	o->c = 0;
	if (kind < 56) {
		make_memory(&c, w, process, o);
	} else if (kind < 60) {
		o->op = OP_READ;
		o->a = one_in(&c, 4) ? below(&c, 40) : sizeof(struct uldma_event);
		o->where = one_in(&c, 8) ? AT_NULL : AT_MEMORY;
		o->interrupt = !w->open_files[o->open_file].nonblock;
	} else if (kind < 62) {
		o->op = OP_POLL;
	} else if (kind < KIND_CALL) {
		o->op = OP_DIE;
	} else {
		o->args = (union uldma_args){ };
		make_ioctl(&c, w, process, o, of_messages);
	}
	return process;
}

/* One line for people. */
void describe(FILE *to, int process, const struct order *o)
{
	static const char *const ops[] = {
		"open", "close", "share", "ioctl", "mmap", "munmap", "touch", "memory", "read",
		"poll", "reset", "race", "die",
	};

	fprintf(to, "process %d%s: %s open file %d", process, o->in_child ? " (child)" : "",
		ops[o->op], o->open_file);
	if (o->op != OP_IOCTL) {
		fprintf(to, " (%#llx, %#llx, %#llx)", o->a, o->b, o->c);
		return;
	}
	fprintf(to, " %s cmd %#lx at %d:", calls[o->call].name, o->cmd, o->where);
	for (__u32 i = 0; i < calls[o->call].size; i += sizeof(__u32)) {
		__u32 word;

		memcpy(&word, o->args.bytes + i, sizeof(word));
		fprintf(to, " %x", word);
	}
}
