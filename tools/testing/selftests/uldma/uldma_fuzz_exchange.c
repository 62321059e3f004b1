// SPDX-License-Identifier: GPL-2.0
/*
 * The part of the fuzzer's model that knows exchangeable memory: its pages, which
 * of them are being sent, and which of these the program has written to meanwhile.
 */
#include "uldma_fuzz_model.h"

/* A byte of a memory's pages, or one behind them. */
static __u64 first_byte(struct chance *c, const struct object *object)
{
	__u64 pages = is_exchangeable(object) ? object->length / page_size() : 1;
	__u64 page = one_in(c, 8) ? pages : below(c, pages);

	return page * page_size() + (one_in(c, 8) ? below(c, page_size()) : 0);
}

/* The same, of a page that is being sent, if there is one. */
static __u64 sent_byte(struct chance *c, const struct object *object)
{
	__u64 first = below(c, EXCHANGE_PAGES), page;

	for (int i = 0; is_sending(object) && i < EXCHANGE_PAGES; i++) {
		page = (first + i) % EXCHANGE_PAGES;
		if (object->pages[page].sends)
			return page * page_size();
	}
	return first_byte(c, object);
}

static __u64 bytes(struct chance *c)
{
	return one_in(c, 3) ? length(c) : page_size();
}

static void fill_swap(struct chance *c, struct world *w, struct open_file *o,
		      struct uldma_exchange_swap *a)
{
	a->handle = handle(c, w, o, is_exchangeable);
	a->other = one_in(c, 2) ? a->handle : handle(c, w, o, is_exchangeable);
	a->offset = first_byte(c, object_of(o, a->handle));
	a->other_offset = first_byte(c, object_of(o, a->other));
	a->length = bytes(c);
}

void fill_exchange(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		   union uldma_args *a)
{
	struct uldma_exchange_range *range = &a->exchange_range;

	switch (number) {
	case ULDMA_CMD_EXCHANGE_CREATE:
		a->exchange_create.length = one_in(c, 6) ? length(c) :
							   (1 + below(c, EXCHANGE_PAGES)) *
								   page_size();
		break;
	case ULDMA_CMD_EXCHANGE_PROTECT:
		range->handle = handle(c, w, o, is_exchangeable);
		range->offset = first_byte(c, object_of(o, range->handle));
		range->length = bytes(c);
		break;
	case ULDMA_CMD_EXCHANGE_RELEASE:
		range->handle = handle(c, w, o, is_sending);
		range->offset = sent_byte(c, object_of(o, range->handle));
		range->length = bytes(c);
		break;
	case ULDMA_CMD_EXCHANGE_SWAP:
		fill_swap(c, w, o, &a->exchange_swap);
		break;
	}
}

/* What the device can hold may be more memory than the node has. */
void limit_exchange(struct world *w, const struct open_file *o, __u32 number, union uldma_args *a)
{
	__u64 page = page_size(), most = w->devices[o->device].idle.out_max_pages * page;
	__u64 *length = &a->exchange_create.length;

	if (number == ULDMA_CMD_EXCHANGE_CREATE && *length > EXCHANGE_PAGES * page &&
	    *length <= most)
		*length = most + page;
}

/* Finds the pages of a range: returns false if they are not all of the memory. */
static bool pages_in(const struct object *object, __u64 offset, __u64 length, __u64 *first,
		     __u64 *end)
{
	if (!length || offset + length < offset || offset + length > object->length)
		return false;
	*first = offset / page_size();
	*end = (offset + length + page_size() - 1) / page_size();
	return true;
}

static void judge_range(struct open_file *o, int process, bool releases,
			const struct uldma_exchange_range *a, struct verdict *v)
{
	const struct object *object = object_of(o, a->handle);
	__u64 first, end;

	must(v, ENOENT, !is_exchangeable(object));
	if (!is_exchangeable(object))
		return;
	if (!pages_in(object, a->offset, a->length, &first, &end)) {
		must(v, EINVAL, true);
		return;
	}
	/* The copies that there may be are charged. */
	may(v, ENOMEM, process == POOR && !releases);
	for (__u64 i = first; i < end; i++) {
		must(v, EINVAL, releases && !object->pages[i].sends);
		must(v, EBUSY, !releases && object->pages[i].copied);
	}
}

static void judge_swap(struct open_file *o, const struct uldma_exchange_swap *a, struct verdict *v)
{
	const struct object *one = object_of(o, a->handle), *other = object_of(o, a->other);
	bool aligned = !((a->offset | a->other_offset | a->length) % page_size());
	__u64 first, end, place, place_end;

	must(v, EINVAL, !aligned);
	must(v, ENOENT, !is_exchangeable(one) || !is_exchangeable(other));
	if (!aligned || !is_exchangeable(one) || !is_exchangeable(other))
		return;
	if (!pages_in(one, a->offset, a->length, &first, &end) ||
	    !pages_in(other, a->other_offset, a->length, &place, &place_end)) {
		must(v, EINVAL, true);
		return;
	}
	must(v, EINVAL, one == other && first < place_end && place < end);
	for (__u64 i = 0; i < end - first; i++)
		must(v, EBUSY, one->pages[first + i].sends || other->pages[place + i].sends);
}

void judge_exchange(struct world *w, int process, struct open_file *o, __u32 number,
		    const union uldma_args *a, struct verdict *v)
{
	__u64 length = a->exchange_create.length;

	switch (number) {
	case ULDMA_CMD_EXCHANGE_CREATE:
		must(v, EINVAL, !length || length % page_size());
		must(v, ENOSPC, length / page_size() > w->devices[o->device].idle.out_max_pages);
		may(v, ENOMEM, process == POOR);
		break;
	case ULDMA_CMD_EXCHANGE_PROTECT:
	case ULDMA_CMD_EXCHANGE_RELEASE:
		judge_range(o, process, number == ULDMA_CMD_EXCHANGE_RELEASE, &a->exchange_range,
			    v);
		break;
	case ULDMA_CMD_EXCHANGE_SWAP:
		judge_swap(o, &a->exchange_swap, v);
		break;
	}
}

static const char *apply_range(struct object *object, const struct uldma_exchange_range *a,
			       bool releases)
{
	__u32 pages = 0, copied = 0;
	__u64 first, end;

	pages_in(object, a->offset, a->length, &first, &end);
	for (struct exchange_page *p = &object->pages[first]; p < &object->pages[end]; p++) {
		p->sends += releases ? -1 : 1;
		if (!releases || p->sends)
			continue;
		pages++;
		copied += p->copied;
		p->copied = false;
	}
	if (releases && a->out_pages != pages)
		return "the pages that are not being sent any more are others";
	return releases && a->out_copied != copied ? "the pages that were copied are others" : NULL;
}

const char *apply_exchange(struct open_file *o, __u32 number, const union uldma_args *in,
			   const union uldma_args *out)
{
	const struct uldma_exchange_create *a = &out->exchange_create;

	switch (number) {
	case ULDMA_CMD_EXCHANGE_CREATE:
		if (a->out_shadow_length != a->length)
			return "out_shadow_length is not that of the pages";
		return add_object(o, &(struct object){
			.kind = REGION,
			.backing = EXCHANGEABLE,
			.handle = a->out_handle,
			.access = RW,
			.length = a->length,
			.parts = { { a->out_offset, a->length },
				   shadow(a->out_shadow_offset, a->out_shadow_length, RW) },
		});
	case ULDMA_CMD_EXCHANGE_PROTECT:
	case ULDMA_CMD_EXCHANGE_RELEASE:
		return apply_range(object_of(o, in->exchange_range.handle), &out->exchange_range,
				   number == ULDMA_CMD_EXCHANGE_RELEASE);
	}
	return NULL;
}

/* An access to a mapping: a write to a page that is being sent goes to a copy. */
const char *apply_access(struct open_file *o, const struct mapping *m, __u64 offset, bool store,
			 long signal)
{
	__u64 at = m->offset + (offset % m->length & ~7UL);
	int rights = store ? PROT_WRITE : PROT_READ | PROT_WRITE;
	struct exchange_page *page;

	for (int i = 0; i < OBJECTS; i++) {
		struct object *object = &o->objects[i];

		if (!is_exchangeable(object) || at < object->parts[0].offset ||
		    at >= object->parts[0].offset + object->parts[0].length)
			continue;
		if (!signal != !!(m->prot & rights))
			return signal ? "a right to exchangeable memory is not given" :
					"a right to exchangeable memory is given in excess";
		page = &object->pages[(at - object->parts[0].offset) / page_size()];
		page->copied |= store && !signal && page->sends;
	}
	return NULL;
}
