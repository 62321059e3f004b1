// SPDX-License-Identifier: GPL-2.0
/*
 * What both sides of a connection say when it is opened: kind, version, user and
 * private data, by both ends on one machine.
 */
#include <stddef.h>

#include "uldma_conn_pair.h"

/* A user that is not the one of the test. */
#define OTHER_USER 4321

FIXTURE(offer) {
	struct pair pair;
};

FIXTURE_SETUP(offer)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
}

FIXTURE_TEARDOWN(offer)
{
	pair_close(&self->pair);
}

/* Private data of some bytes, which begin with a number. */
static struct uldma_conn_offer offer_of(__u16 kind, __u16 version, __u32 length,
					__u8 first)
{
	struct uldma_conn_offer offer = {
		.kind = kind,
		.version = version,
		.private_length = length,
	};

	for (__u32 i = 0; i < length && i < ULDMA_CONN_PRIVATE; i++)
		offer.private_data[i] = first + i;
	return offer;
}

static int listen_for(int fd, __u32 flags, struct uldma_conn_offer offer)
{
	struct uldma_conn_listen arg = {
		.size = sizeof(arg),
		.flags = flags,
		.port = PORT,
		.backlog = flags ? 0 : 1,
		.offer = offer,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONN_LISTEN, &arg);
}

static int connect_for(const struct pair *p, struct uldma_conn_offer offer)
{
	struct uldma_conn_connect arg = {
		.size = sizeof(arg),
		.peer = p->to_a,
		.port = PORT,
		.timeout_ns = PATIENCE,
		.offer = offer,
	};

	return uldma_ioctl(p->b, ULDMA_IOC_CONN_CONNECT, &arg);
}

/* The open file is told what the other side said. */
static void check_told(struct __test_metadata *_metadata, int fd,
		       const struct uldma_conn_offer *said, __u32 user)
{
	struct uldma_conn_query q = conn_query(fd);

	EXPECT_EQ(ULDMA_CONN_CONNECTED, q.out_state);
	EXPECT_EQ(0, memcmp(said, &q.out_offer, sizeof(*said)));
	EXPECT_EQ(user, q.out_uid);
	EXPECT_EQ(0, q.reserved);
}

/* Lengths of private data that end words, and those that do not. */
FIXTURE_VARIANT(offer) {
	__u32 listener;
	__u32 connector;
};

FIXTURE_VARIANT_ADD(offer, none) { 0, 0 };
FIXTURE_VARIANT_ADD(offer, one_side) { 0, ULDMA_CONN_PRIVATE };
FIXTURE_VARIANT_ADD(offer, other_side) { ULDMA_CONN_PRIVATE, 0 };
FIXTURE_VARIANT_ADD(offer, parts_of_words) { 1, 127 };
FIXTURE_VARIANT_ADD(offer, words) { 64, 8 };

/* Many times, so that all slots of the rings between the nodes have had data. */
TEST_F(offer, crosses)
{
	struct uldma_conn_offer theirs, ours;
	struct pair *p = &self->pair;

	for (int round = 0; round < 70; round++) {
		theirs = offer_of(ULDMA_KIND_PRIVATE + round, round,
				  variant->listener, round + 1);
		ours = offer_of(ULDMA_KIND_PRIVATE + round, round,
				variant->connector, round + 101);
		ASSERT_EQ(0, listen_for(p->listener, 0, theirs));
		ASSERT_EQ(0, connect_for(p, ours));
		check_told(_metadata, p->b, &theirs, geteuid());
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		check_told(_metadata, p->a, &ours, geteuid());
		ASSERT_EQ(0, conn_disconnect(p->b));
		ASSERT_EQ(0, conn_disconnect(p->a));
		ASSERT_EQ(0, conn_disconnect(p->listener));
	}
}

FIXTURE(fit) {
	struct pair pair;
};

FIXTURE_SETUP(fit)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
}

FIXTURE_TEARDOWN(fit)
{
	pair_close(&self->pair);
}

/* Nothing is left of what was refused, and no place was taken for it. */
TEST_F(fit, another_kind_or_version)
{
	struct pair *p = &self->pair;
	__u32 before;

	ASSERT_EQ(0, listen_for(p->listener, 0,
				offer_of(ULDMA_KIND_CHANNEL, 2, 8, 1)));
	before = query(p->a).out_connections;
	for (int round = 0; round < 100; round++) {
		ASSERT_EQ(-EPROTOTYPE,
			  connect_for(p, offer_of(ULDMA_KIND_MESSAGE, 2, 8, 1)));
		ASSERT_EQ(-EPROTOTYPE,
			  connect_for(p, offer_of(ULDMA_KIND_BYTES, 3, 0, 0)));
		ASSERT_EQ(-EPROTONOSUPPORT,
			  connect_for(p, offer_of(ULDMA_KIND_CHANNEL, 1, 8, 1)));
	}
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	EXPECT_EQ(before, query(p->a).out_connections);
	EXPECT_EQ(0, conn_query(p->listener).out_waiting);
	EXPECT_EQ(0, conn_query(p->listener).out_refused);

	ASSERT_EQ(0, connect_for(p, offer_of(ULDMA_KIND_CHANNEL, 2, 0, 0)));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
}

/* A full backlog hides nothing: the kind is compared before. */
TEST_F(fit, full_backlog)
{
	struct pair *p = &self->pair;
	int fd = conn_open_at(uldma_other(), 0);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	ASSERT_EQ(0, conn_connect(fd, p->to_a, PORT));
	EXPECT_EQ(-ECONNREFUSED, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(-EPROTOTYPE, connect_for(p, offer_of(ULDMA_KIND_PACKETS, 0, 0, 0)));
	EXPECT_EQ(0, close(fd));
}

TEST_F(fit, once)
{
	struct uldma_conn_offer theirs = offer_of(ULDMA_KIND_MESSAGE, 7, 9, 1);
	struct uldma_conn_offer ours = offer_of(ULDMA_KIND_MESSAGE, 7, 10, 2);
	struct uldma_conn_offer none = {};
	struct uldma_conn_query q;
	struct pair *p = &self->pair;

	ASSERT_EQ(0, listen_for(p->listener, ULDMA_LISTEN_ONCE, theirs));
	EXPECT_EQ(-EPROTOTYPE, connect_for(p, none));
	q = conn_query(p->listener);
	EXPECT_EQ(ULDMA_CONN_LISTENING, q.out_state);
	EXPECT_EQ(0, memcmp(&none, &q.out_offer, sizeof(none)));
	ASSERT_EQ(0, connect_for(p, ours));
	ASSERT_EQ(POLLOUT, conn_poll(p->listener, POLLOUT, SOON));
	check_told(_metadata, p->listener, &ours, geteuid());
	check_told(_metadata, p->b, &theirs, geteuid());
}

/* The kernel says the effective user of the call, not of what uses the file later. */
TEST_F(fit, users)
{
	struct uldma_conn_offer none = {};
	uid_t user = geteuid();
	struct pair *p = &self->pair;

	if (user)
		SKIP(return, "only root may become another user");
	ASSERT_EQ(0, seteuid(OTHER_USER));
	ASSERT_EQ(0, listen_for(p->listener, 0, none));
	ASSERT_EQ(0, seteuid(user));
	ASSERT_EQ(0, connect_for(p, none));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	check_told(_metadata, p->a, &none, user);
	check_told(_metadata, p->b, &none, OTHER_USER);
}

TEST_F(fit, arguments)
{
	struct uldma_conn_offer wrong[] = {
		offer_of(0, 0, ULDMA_CONN_PRIVATE + 1, 0),
		offer_of(0, 0, ~0U, 0),
		/* Those of a length that has the bytes of none. */
		offer_of(0, 0, 256, 0),
		/* Bytes behind the end. */
		offer_of(0, 0, 9, 1),
		offer_of(0, 0, ULDMA_CONN_PRIVATE, 1),
		offer_of(0, 0, 1, 1),
	};
	struct pair *p = &self->pair;

	wrong[3].private_length = 8;
	wrong[4].private_length = ULDMA_CONN_PRIVATE - 1;
	wrong[5].private_length = 0;
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		EXPECT_EQ(-EINVAL, listen_for(p->listener, 0, wrong[i]));
		EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->listener));
		EXPECT_EQ(-EINVAL, connect_for(p, wrong[i]));
		EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	}
}

/* Programs that know no offers open connections of bytes. */
TEST_F(fit, programs_of_before)
{
	struct uldma_conn_listen listen = {
		.size = offsetof(struct uldma_conn_listen, offer),
		.port = PORT,
		.backlog = 1,
		/* Not read. */
		.offer.kind = ULDMA_KIND_MESSAGE,
	};
	struct uldma_conn_query q = {
		.size = offsetof(struct uldma_conn_query, out_offer),
		.out_uid = ~0U,
	};
	struct uldma_conn_offer none = {};
	struct pair *p = &self->pair;

	ASSERT_EQ(0, uldma_ioctl(p->listener, ULDMA_IOC_CONN_LISTEN, &listen));
	ASSERT_EQ(0, connect_for(p, none));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	check_told(_metadata, p->b, &none, geteuid());
	EXPECT_EQ(0, uldma_ioctl(p->a, ULDMA_IOC_CONN_QUERY, &q));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, q.out_state);
	EXPECT_EQ(~0U, q.out_uid);
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
