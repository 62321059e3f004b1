// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of regions and segments that need two nodes; uldma_two_nodes.h says
 * how to run them.
 */
#include "uldma_harness.h"
#include "uldma_lmm.h"
#include "uldma_peer_client.h"
#include "uldma_two_nodes.h"

#define LENGTH ((1UL << 20) + 123)

FIXTURE(peer) {
	struct peer peer;
	int fd;
	struct region r;
	struct segment s;
};

FIXTURE_SETUP(peer)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
}

FIXTURE_TEARDOWN(peer)
{
	close(self->peer.fd);
	close(self->fd);
}

TEST_F(peer, is_another_node)
{
	EXPECT_NE(query(self->fd).out_node, peer_call(&self->peer, PEER_NODE));
	EXPECT_LT(0, query(self->fd).out_link_generation);
}

/* Number of objects that a hostile child got, and its last error. */
struct loot {
	__u32 count;
	int error;
};

static void import_all(int out, void *arg)
{
	struct loot loot = { };
	struct region r;
	int fd;

	loot.error = become(HOSTILE, 16 * page_size());
	fd = uldma_open(0);
	loot.error = loot.error ?: fd < 0 ? fd : 0;
	while (!loot.error) {
		loot.error = region_import(fd, NAME, RW, &r);
		loot.count += !loot.error;
	}
	if (write(out, &loot, sizeof(loot)) != sizeof(loot))
		_exit(1);
}

/* The peer sets the size of an import, and the importing user pays for it. */
TEST_F_TIMEOUT(peer, imports_of_one_user, 400)
{
	struct loot loot = { };
	struct helper helper;
	char *buf = buffer(page_size());
	mode_t mode;
	int ret;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, 4UL << 20, RW }));
	ASSERT_EQ(0, node_open_to_all(&mode));
	ret = helper_start(&helper, import_all, NULL);
	EXPECT_EQ(sizeof(loot), read(helper.fd, &loot, sizeof(loot)));
	EXPECT_EQ(0, chmod(uldma_node(), mode));
	ASSERT_EQ(0, ret);
	EXPECT_EQ(-EDQUOT, loot.error);
	EXPECT_LT(0, loot.count);
	/* Others notice nothing, whatever they ask for. */
	EXPECT_EQ(0, region_register(self->fd, buf, 1, RW, &self->r));
	EXPECT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	EXPECT_EQ(0, helper_kill(&helper));
}

TEST_F(peer, import_unknown)
{
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME, RW, &self->r));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
}

TEST_F(peer, import)
{
	struct region again;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	EXPECT_NE(0, self->r.handle);
	EXPECT_NE(0, self->r.index);
	EXPECT_EQ(LENGTH, self->r.length);
	EXPECT_LE(LENGTH, self->r.shadow_length);
	EXPECT_EQ(1, query(self->fd).out_file_regions);
	/* Memory of the peer is not pinned here. */
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, pinned_pages(self->fd));

	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &again));
	EXPECT_NE(again.handle, self->r.handle);
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));
	ASSERT_EQ(0, region_unregister(self->fd, again.handle));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
}

/* Queries of regions, for an import. */
TEST_F(peer, import_is_asked)
{
	struct uldma_region_blocks b;
	struct uldma_region_query q;
	struct uldma_block block;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, region_import(self->fd, NAME, ULDMA_ACCESS_READ,
				   &self->r));
	ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(ULDMA_ACCESS_READ | ULDMA_REGION_IMPORT, q.out_flags);
	EXPECT_EQ(0, q.out_addr);
	EXPECT_EQ(LENGTH, q.out_length);
	EXPECT_EQ(self->r.shadow_length / page_size(), q.out_pages);
	EXPECT_EQ(0, q.out_stale);
	EXPECT_EQ(0, q.out_areas);
	EXPECT_EQ(-EINVAL, region_blocks(self->fd, self->r.handle, 0, 0,
					 &block, 1, &b));
	EXPECT_EQ(-EINVAL, region_export(self->fd, self->r.handle,
					 ULDMA_ACCESS_READ, NAME));
	EXPECT_EQ(-EINVAL, map_out(self->fd, self->r.handle, 0, 0, 0, 1));
	EXPECT_EQ(0, lmm(self->fd).out_areas);
}

TEST_F(peer, cleanup)
{
	struct segment own;
	struct region local;
	char byte;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT, { 1, NAME, 1 }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	ASSERT_EQ(0, region_register(self->fd, &byte, 1, RW, &local));
	ASSERT_EQ(0, segment_attach(self->fd, NAME, &self->s));
	ASSERT_EQ(0, segment_create(self->fd, NAME + 1, 1, &own));
	ASSERT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, local.handle));
	EXPECT_EQ(0, doorbell(self->fd, self->s.handle));
	EXPECT_EQ(0, segment_destroy(self->fd, own.handle));
}

TEST_F(peer, import_rights)
{
	struct context c;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, ULDMA_ACCESS_READ }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 1, NAME + 1, LENGTH, ULDMA_ACCESS_WRITE }));
	EXPECT_EQ(-EACCES, region_import(self->fd, NAME, RW, &self->r));
	EXPECT_EQ(-EACCES, region_import(self->fd, NAME, ULDMA_ACCESS_WRITE,
					 &self->r));
	EXPECT_EQ(-EACCES, region_import(self->fd, NAME + 1, RW, &self->r));
	EXPECT_EQ(-EACCES, region_import(self->fd, NAME + 1,
					 ULDMA_ACCESS_READ, &self->r));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(0, region_import(self->fd, NAME + 1, ULDMA_ACCESS_WRITE,
				   &self->r));
	ASSERT_EQ(0, region_import(self->fd, NAME, ULDMA_ACCESS_READ,
				   &self->r));
	ASSERT_EQ(0, context_create(self->fd, &c));
	EXPECT_EQ(-EACCES, region_map(self->fd, &self->r,
				      PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, region_map(self->fd, &self->r, PROT_READ));
}

/* Only as much as was asked for, even if the export gives more. */
TEST_F(peer, import_less)
{
	char *buf = buffer(page_size());
	struct region local;
	__u64 ticket;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, 64, RW, &local));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, region_import(self->fd, NAME, ULDMA_ACCESS_READ,
				   &self->r));
	EXPECT_EQ(-EACCES, kernel_start(self->fd, self->r.handle, 0,
					local.handle, 0, 8, &ticket));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &local, 0, &self->r, 0, 8));
}

TEST_F(peer, names)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	EXPECT_EQ(-EEXIST, peer_call(&self->peer, PEER_EXPORT,
				     { 1, NAME, LENGTH, RW }));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME + 1, RW, &self->r));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNEXPORT, { 0 }));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME, RW, &self->r));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_AGAIN,
			       { 0, NAME + 1, RW }));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME, RW, &self->r));
	EXPECT_EQ(0, region_import(self->fd, NAME + 1, RW, &self->r));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 0 }));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME + 1, RW, &self->r));
}

TEST_F(peer, exporter_is_killed)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_CHILD,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 0 }));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME, RW, &self->r));
}

/*
 * Two processes of the peer share memory, and both have registered it. One
 * transfer brings the data to both, and the end of the one that exported it
 * takes nothing from the other.
 */
TEST_F(peer, one_transfer_for_all_who_share)
{
	char *buf = buffer(LENGTH);
	struct region local;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, LENGTH, RW, &local));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_CHILD,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_REGISTER, { 0 }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	pattern_fill(buf, LENGTH, 1);
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &local, 0,
			      LENGTH));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 1 }));
	EXPECT_EQ(0, peer_call(&self->peer, PEER_CHECK_GUARD, { 0 }));

	/* The serving process writes to the memory that the other one exports. */
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 2 }));
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &local, 0, &self->r, 0,
			      LENGTH));
	EXPECT_EQ(-1, pattern_check(buf, LENGTH, 2));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNREGISTER, { 0 }));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &local, 0, &self->r, 0,
			      LENGTH));
}

TEST_F(peer, segment_unknown)
{
	EXPECT_EQ(-ENOENT, segment_attach(self->fd, NAME, &self->s));
}

/* Stores here are what is there, to the last byte. */
TEST_F(peer, segment)
{
	__u64 length = 5 * page_size();
	struct segment other;
	__u32 objects;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT, { 0, NAME, length }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT,
			       { 1, NAME + 1, page_size() }));
	objects = query(self->fd).out_user_objects;
	ASSERT_EQ(0, segment_attach(self->fd, NAME, &self->s));
	ASSERT_EQ(0, segment_attach(self->fd, NAME + 1, &other));
	EXPECT_EQ(objects + 2, query(self->fd).out_user_objects);
	EXPECT_EQ(length, self->s.length);
	EXPECT_EQ(page_size(), other.length);
	ASSERT_EQ(0, segment_map(self->fd, &self->s));
	ASSERT_EQ(0, segment_map(self->fd, &other));
	for (__u64 seed = 1; seed < 10; seed++) {
		pattern_fill(self->s.map, length, seed);
		pattern_fill(other.map, other.length, seed + 100);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_SEGMENT_CHECK,
					{ 0, seed }));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_SEGMENT_CHECK,
					{ 1, seed + 100 }));
	}
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 1 }));
	EXPECT_EQ(-ENOENT, segment_attach(self->fd, NAME + 1, &other));
	EXPECT_EQ(objects + 2, query(self->fd).out_user_objects);
}

TEST_F(peer, segment_of_this_node)
{
	ASSERT_EQ(0, segment_create(self->fd, NAME, page_size(), &self->s));
	ASSERT_EQ(0, segment_map(self->fd, &self->s));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_ATTACH, { 0, NAME }));
	for (__u64 seed = 1; seed < 10; seed++) {
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_FILL,
				       { 0, seed }));
		EXPECT_EQ(-1, pattern_check(self->s.map, self->s.length,
					    seed));
	}
}

/*
 * Returns the value of the next event of a doorbell. Segments may share a
 * doorbell, so another one's may be heard as well.
 */
static int heard(int fd, __u32 handle)
{
	struct uldma_event event;
	int ret;

	do {
		ret = event_wait(fd, ULDMA_EVENT_DOORBELL, SOON, &event);
	} while (!ret && event.handle != handle);
	return ret ?: event.value;
}

/* Each side of a segment can wake the other. */
TEST_F(peer, doorbells)
{
	struct segment own;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT, { 0, NAME, 1 }));
	ASSERT_EQ(0, segment_attach(self->fd, NAME, &self->s));
	ASSERT_EQ(0, segment_create(self->fd, NAME + 1, 1, &own));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_ATTACH,
			       { 1, NAME + 1 }));
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, doorbell(self->fd, self->s.handle));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_WAIT, { 0 }));
		ASSERT_EQ(0, doorbell(self->fd, own.handle));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_WAIT, { 1 }));

		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_RING, { 0 }));
		ASSERT_EQ(1, heard(self->fd, self->s.handle));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_RING, { 1 }));
		ASSERT_EQ(1, heard(self->fd, own.handle));
	}
}

/*
 * Pages in a row, so many that each bit of a doorbell belongs to one of them, and
 * one of them at least is the only segment here that has it.
 */
#define PAGES 64

/* Wherever a segment begins, each side can wake the other. */
TEST_F(peer, doorbells_of_all_pages)
{
	struct segment own[PAGES];

	for (int i = 0; i < PAGES; i++)
		ASSERT_EQ(0, segment_create(self->fd, NAME + i, 1, &own[i]));
	for (int i = 0; i < PAGES; i++) {
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_ATTACH,
				       { 0, NAME + i }));
		ASSERT_EQ(0, doorbell(self->fd, own[i].handle));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_WAIT, { 0 }))
			TH_LOG("no ring of segment %d arrives", i);
		ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_RING, { 0 }));
		ASSERT_EQ(1, heard(self->fd, own[i].handle))
			TH_LOG("no ring for segment %d arrives", i);
	}
}

/* An event says whether an attached segment has ended; rings of others do not. */
TEST_F(peer, doorbell_of_the_end)
{
	int value;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT, { 0, NAME, 1 }));
	ASSERT_EQ(0, segment_attach(self->fd, NAME, &self->s));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_SEGMENT_RING, { 0 }));
	ASSERT_EQ(1, heard(self->fd, self->s.handle));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 0 }));
	/* Before the end, the doorbell may ring for another segment. */
	do {
		value = heard(self->fd, self->s.handle);
	} while (value == 1);
	EXPECT_EQ(0, value);
	EXPECT_EQ(-ESTALE, doorbell(self->fd, self->s.handle));
}

FIXTURE(remote) {
	struct peer peer;
	int fd;
	struct context c;
	char *buf;
	struct region local;
	struct region r;
};

FIXTURE_VARIANT(remote) {
	enum how how;
};

FIXTURE_SETUP(remote)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
	self->buf = buffer(2 * LENGTH);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf + 11, LENGTH, RW,
				     &self->local));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->local,
				PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(remote)
{
	close(self->peer.fd);
	close(self->fd);
}

FIXTURE_VARIANT_ADD(remote, kernel) { BY_KERNEL };
FIXTURE_VARIANT_ADD(remote, shadow) { BY_SHADOW };

static const size_t sizes[] = {
	1, 7, 8, 64, 4095, 4096, 4097, 65536, 300000, LENGTH - 8000,
};

TEST_F_TIMEOUT(remote, write, 60)
{
	for (int i = 0; i < ARRAY_SIZE(sizes); i++)
		for (size_t to = 0; to < 8000; to += 1237) {
			size_t from = to * 5 % 4099;
			size_t length = sizes[i];
			__u64 seed = to + i + 1;

			pattern_fill(self->buf + 11 + from, length, seed);
			ASSERT_EQ(0, transfer(self->fd, variant->how, &self->r,
					      to, &self->local, from, length));
			ASSERT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
						{ 0, to, length, seed }))
				TH_LOG("%zu bytes to %zu", length, to);
		}
	EXPECT_EQ(0, peer_call(&self->peer, PEER_CHECK_GUARD, { 0 }));
}

TEST_F_TIMEOUT(remote, read, 60)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->local, 0,
			      &self->r, 0, LENGTH));
	EXPECT_EQ(-1, pattern_check(self->buf + 11, LENGTH, 5));
	for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t length = sizes[i];

		memset(self->buf, 0x22, 2 * LENGTH);
		ASSERT_EQ(0, transfer(self->fd, variant->how, &self->local,
				      i * 611, &self->r, 0, length));
		EXPECT_EQ(-1, pattern_check(self->buf + 11 + i * 611, length,
					    5))
			TH_LOG("%zu bytes", length);
		EXPECT_EQ(0x22, self->buf[11 + i * 611 - 1]);
		EXPECT_EQ(0x22, self->buf[11 + i * 611 + length]);
	}
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 5 }));
}

/* Every byte of one side can be aligned to every byte of the other. */
TEST_F(remote, alignments)
{
	size_t edge = page_size() - 8;

	for (size_t to = 0; to < 8; to++)
		for (size_t from = 0; from < 8; from++) {
			__u64 seed = 8 * to + from + 1;

			pattern_fill(self->buf + 11 + from, 100, seed);
			ASSERT_EQ(0, transfer(self->fd, variant->how, &self->r,
					      edge + to, &self->local, from,
					      100));
			ASSERT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
						{ 0, edge + to, 100, seed }))
				TH_LOG("offsets %zu, %zu", to, from);
		}
}

TEST_F(remote, bounds)
{
	int refusal = variant->how == BY_KERNEL ? -EINVAL : ULDMA_DMA_BOUNDS;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	EXPECT_EQ(refusal, transfer(self->fd, variant->how, &self->r, 1,
				    &self->local, 0, LENGTH));
	EXPECT_EQ(refusal, transfer(self->fd, variant->how, &self->r,
				    LENGTH - 7, &self->local, 0, 8));
	EXPECT_EQ(refusal, transfer(self->fd, variant->how, &self->r, LENGTH,
				    &self->local, 0, 1));
	EXPECT_EQ(refusal, transfer(self->fd, variant->how, &self->local, 0,
				    &self->r, LENGTH, 1));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 5 }));
	EXPECT_EQ(0, peer_call(&self->peer, PEER_CHECK_GUARD, { 0 }));
	EXPECT_EQ(0, transfer(self->fd, variant->how, &self->r, LENGTH - 8,
			      &self->local, 0, 8));
}

TEST_F(remote, many_in_flight)
{
	__u64 ticket = 0;
	int n = 40;

	pattern_fill(self->buf + 11, n * 8192, 3);
	for (int i = 0; i < n; i++) {
		ASSERT_EQ(0, transfer_start(self->fd, variant->how, &self->r,
					    i * 8192, &self->local, i * 8192,
					    8192, &ticket));
	}
	ASSERT_EQ(0, transfer_wait(self->fd, variant->how, ticket, 8192));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ 0, 0, n * 8192, 3 }));
}

/* At once, or when the device gets there. */
static bool is_refused(int ret, int status)
{
	return ret == status || ret == -EACCES;
}

/* The import leads nowhere, in both directions, whatever comes there anew. */
static void check_dead(struct __test_metadata *_metadata,
		       struct _test_data_remote *self, enum how how)
{
	int ret;

	pattern_fill(self->buf + 11, LENGTH, 9);
	ret = transfer(self->fd, how, &self->r, 0, &self->local, 0, 4096);
	EXPECT_TRUE(is_refused(ret, ULDMA_DMA_REVOKED))
		TH_LOG("write: %d", ret);
	ret = transfer(self->fd, how, &self->local, 0, &self->r, 0, 4096);
	EXPECT_TRUE(is_refused(ret, ULDMA_DMA_REVOKED))
		TH_LOG("read: %d", ret);
	EXPECT_EQ(-1, pattern_check(self->buf + 11, LENGTH, 9));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 5 }));
}

TEST_F(remote, after_unexport)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNEXPORT, { 0 }));
	check_dead(_metadata, self, variant->how);
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
}

TEST_F(remote, after_unregister)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNREGISTER, { 0 }));
	check_dead(_metadata, self, variant->how);
}

TEST_F(remote, after_close)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 0 }));
	check_dead(_metadata, self, variant->how);
}

/* A new region, likely in the same table entry, is not what was imported. */
TEST_F(remote, after_something_new)
{
	struct region anew;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT,
			       { 0, NAME, LENGTH, RW }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	check_dead(_metadata, self, variant->how);
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &anew));
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &anew, 0, &self->local, 0,
			      LENGTH));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 9 }));
}

/* The name is given again, but with less. */
TEST_F(remote, after_export_with_less)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 5 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNEXPORT, { 0 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_AGAIN,
			       { 0, NAME, ULDMA_ACCESS_READ }));
	pattern_fill(self->buf + 11, LENGTH, 9);
	EXPECT_TRUE(is_refused(transfer(self->fd, variant->how, &self->r, 0,
					&self->local, 0, 4096),
			       ULDMA_DMA_REMOTE));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, LENGTH, 5 }));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, peer_serve, peer_quit);
}
