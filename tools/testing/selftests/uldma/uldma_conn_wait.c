// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for a connection: in a call, in poll() and epoll, by an eventfd, and
 * what ends the waiting.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/time.h>

#include "uldma_conn_pair.h"

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

FIXTURE(wait) {
	struct pair pair;
	char *buf;
	struct range range;
};

FIXTURE_SETUP(wait)
{
	ASSERT_EQ(0, pair_open(&self->pair, O_NONBLOCK));
	ASSERT_EQ(0, conn_listen(self->pair.listener, PORT, 4));
	self->buf = buffer(4 * page_size());
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(wait)
{
	pair_close(&self->pair);
}

static int meet(struct pair *p)
{
	return conn_connect(p->b, p->to_a, PORT) ?: conn_accept(p->a, PORT);
}

TEST_F(wait, accept_again)
{
	struct pair *p = &self->pair;

	EXPECT_EQ(-EAGAIN, conn_accept(p->a, PORT));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
	EXPECT_EQ(0, conn_poll(p->listener, ALL, 0));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(POLLIN, conn_poll(p->listener, ALL, SOON));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	EXPECT_EQ(0, conn_poll(p->listener, ALL, 0));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
}

TEST_F(wait, data_again)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, meet(p));
	EXPECT_EQ(-EAGAIN, conn_recv(p->a, 8, &self->range));
	EXPECT_EQ(-EAGAIN, conn_recycle(p->a, 8, &self->range));
	ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
	ASSERT_EQ(0, conn_send(p->a, self->buf + 100, 8));
	EXPECT_EQ(-EAGAIN, conn_recv(p->a, 8, &self->range));
	EXPECT_EQ(-EAGAIN, conn_recycle(p->a, 8, &self->range));
}

/* To look for a while is not to wait. */
TEST_F(wait, spin)
{
	const unsigned long cmds[] = { ULDMA_IOC_CONN_RECV,
				       ULDMA_IOC_CONN_RECYCLE };
	struct pair *p = &self->pair;
	struct range *range = &self->range;

	ASSERT_EQ(0, meet(p));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(-EAGAIN, conn_take_flags(p->a, cmds[i],
						   ULDMA_RANGE_SPIN, 8, range));
		EXPECT_EQ(-EOPNOTSUPP, conn_take_flags(p->a, cmds[i],
						       2, 8, range));
	}
	ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
	memset(self->buf + 100, 7, 8);
	ASSERT_EQ(0, conn_send(p->b, self->buf + 100, 8));
	ASSERT_EQ(POLLIN, conn_poll(p->a, POLLIN, SOON));
	ASSERT_EQ(0, conn_take_flags(p->a, cmds[0], ULDMA_RANGE_SPIN, 8,
				     range));
	EXPECT_EQ(8, range->length);
	EXPECT_EQ(7, self->buf[7]);
	ASSERT_EQ(POLLOUT, conn_poll(p->b, POLLOUT, SOON));
	ASSERT_EQ(0, conn_take_flags(p->b, cmds[1], ULDMA_RANGE_SPIN, 8,
				     range));
	EXPECT_EQ(8, range->length);
	EXPECT_EQ(self->buf + 100, range->addr);
	ASSERT_EQ(0, conn_disconnect(p->b));
	ASSERT_TRUE(conn_poll(p->a, POLLRDHUP, SOON) & POLLRDHUP);
	ASSERT_EQ(0, conn_take_flags(p->a, cmds[0], ULDMA_RANGE_SPIN, 8,
				     range));
	EXPECT_EQ(0, range->length);
}

TEST_F(wait, listen_once_again)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_listen_once(p->a, PORT + 1));
	EXPECT_EQ(-EAGAIN, conn_recv(p->a, 8, &self->range));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT + 1));
	EXPECT_EQ(POLLOUT, conn_poll(p->a, ALL, SOON));
}

/* Each of the conditions begins to hold and ends, for the side it is about. */
TEST_F(wait, poll)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, meet(p));
	/* Just made. */
	EXPECT_EQ(POLLOUT, conn_poll(p->a, ALL, SOON));
	EXPECT_EQ(POLLOUT, conn_poll(p->b, ALL, SOON));

	ASSERT_EQ(0, conn_send(p->b, self->buf, 8));
	EXPECT_EQ(0, conn_poll(p->b, ALL, 0));
	EXPECT_EQ(0, conn_poll(p->a, POLLIN, 0));
	ASSERT_EQ(0, conn_prepost(p->a, self->buf + 100, 100));
	EXPECT_EQ(POLLIN, conn_poll(p->a, POLLIN, SOON));
	EXPECT_EQ(POLLOUT, conn_poll(p->b, ALL, SOON));
	/* Until it is taken. */
	EXPECT_EQ(POLLIN, conn_poll(p->a, POLLIN, SOON));
	ASSERT_EQ(0, conn_recv(p->a, 4, &self->range));
	EXPECT_EQ(POLLIN, conn_poll(p->a, POLLIN, 0));
	ASSERT_EQ(0, conn_recv(p->a, 4, &self->range));
	EXPECT_EQ(0, conn_poll(p->a, POLLIN, 0));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->buf, 8));
	EXPECT_EQ(0, conn_poll(p->b, POLLIN | POLLRDHUP, 0));

	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_EQ(POLLRDHUP | POLLHUP,
		  conn_poll(p->a, POLLRDHUP, SOON) & ~POLLERR);
	/* The calls would not wait. */
	EXPECT_EQ(POLLIN | POLLOUT | POLLRDHUP | POLLHUP,
		  conn_poll(p->a, ALL, 0));
	ASSERT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(0, conn_poll(p->a, ALL, 0));
}

/* Data can still be got after the end, and the end is seen before it. */
TEST_F(wait, poll_end_with_data)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, meet(p));
	ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
	ASSERT_EQ(0, conn_send(p->b, self->buf + 100, 8));
	ASSERT_TRUE(conn_poll(p->a, POLLIN, SOON) & POLLIN);
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(conn_poll(p->a, POLLRDHUP, SOON) & POLLRDHUP);
	EXPECT_EQ(0, conn_poll(p->a, ALL, 0) & POLLERR);
	ASSERT_EQ(0, conn_recv_all(p->a, self->buf, 8));
	ASSERT_EQ(0, conn_recv(p->a, 8, &self->range));
	EXPECT_EQ(0, self->range.length);
}

/* Where there is a connection, POLLIN is about data, and events are urgent. */
TEST_F(wait, poll_events)
{
	struct pair *p = &self->pair;
	struct uldma_event event;
	struct region r;

	ASSERT_EQ(0, region_register(p->a, self->buf, 8, RW, &r));
	ASSERT_EQ(0, meet(p));
	/* News of the link are events, too. */
	while (read(p->a, &event, sizeof(event)) == sizeof(event))
		;
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(POLLOUT, conn_poll(p->a, ALL, 0));
	ASSERT_EQ(0, munmap(self->buf, page_size()));
	EXPECT_EQ(POLLPRI, conn_poll(p->a, POLLPRI, SOON));
	EXPECT_EQ(POLLOUT | POLLPRI, conn_poll(p->a, ALL, 0));
	ASSERT_EQ(sizeof(event), read(p->a, &event, sizeof(event)));
	EXPECT_EQ(ULDMA_EVENT_STALE, event.type);
	EXPECT_EQ(0, conn_poll(p->a, POLLPRI, 0));
}

static __u32 epoll_for(int epoll, int timeout_ms)
{
	struct epoll_event event = { };

	return epoll_wait(epoll, &event, 1, timeout_ms) == 1 ? event.events : 0;
}

static int epoll_on(int fd, __u32 events)
{
	struct epoll_event event = { .events = events };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		return -errno;
	return epoll;
}

TEST_F(wait, epoll)
{
	struct pair *p = &self->pair;
	int listener, epoll;

	listener = epoll_on(p->listener, EPOLLIN);
	ASSERT_LE(0, listener);
	EXPECT_EQ(0, epoll_for(listener, 0));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(EPOLLIN, epoll_for(listener, SOON));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	EXPECT_EQ(0, epoll_for(listener, 0));

	epoll = epoll_on(p->a, EPOLLIN | EPOLLRDHUP);
	ASSERT_LE(0, epoll);
	EXPECT_EQ(0, epoll_for(epoll, 0));
	ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
	ASSERT_EQ(0, conn_send(p->b, self->buf + 100, 8));
	EXPECT_EQ(EPOLLIN, epoll_for(epoll, SOON));
	EXPECT_EQ(EPOLLIN, epoll_for(epoll, SOON));
	ASSERT_EQ(0, conn_recv_all(p->a, self->buf, 8));
	EXPECT_EQ(0, epoll_for(epoll, 0));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(epoll_for(epoll, SOON) & EPOLLRDHUP);
	close(epoll);
	close(listener);
}

/* Edge-triggered: once for all that comes, and anew for what comes anew. */
TEST_F(wait, epoll_edges)
{
	struct pair *p = &self->pair;
	int epoll;

	ASSERT_EQ(0, meet(p));
	epoll = epoll_on(p->a, EPOLLIN | EPOLLRDHUP | EPOLLET);
	ASSERT_LE(0, epoll);
	EXPECT_EQ(0, epoll_for(epoll, 0));
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
		ASSERT_EQ(0, conn_send(p->b, self->buf + 100, 8));
		ASSERT_TRUE(conn_poll(p->b, POLLOUT, SOON) & POLLOUT);
		ASSERT_EQ(0, conn_recycle_all(p->b, self->buf + 100, 8));
		EXPECT_EQ(EPOLLIN, epoll_for(epoll, SOON));
		ASSERT_EQ(0, conn_recv_all(p->a, self->buf, 8));
		EXPECT_EQ(-EAGAIN, conn_recv(p->a, 8, &self->range));
		while (epoll_for(epoll, 0))
			EXPECT_EQ(-EAGAIN, conn_recv(p->a, 8, &self->range));
	}
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(epoll_for(epoll, SOON) & EPOLLRDHUP);
	close(epoll);
}

static int set_eventfd(int fd, int eventfd)
{
	struct uldma_eventfd arg = { .size = sizeof(arg), .fd = eventfd };

	return uldma_ioctl(fd, ULDMA_IOC_EVENTFD, &arg);
}

/* Waits for a signal and takes it: whether there was one. */
static bool signalled(int eventfd, int timeout_ms)
{
	__u64 count;

	return poll_for(eventfd, timeout_ms) & POLLIN &&
	       read(eventfd, &count, sizeof(count)) == sizeof(count);
}

TEST_F(wait, eventfd)
{
	struct pair *p = &self->pair;
	int at_listener = eventfd(0, EFD_NONBLOCK);
	int at_a = eventfd(0, EFD_NONBLOCK);
	int at_b = eventfd(0, EFD_NONBLOCK);

	ASSERT_LE(0, at_listener);
	ASSERT_LE(0, at_a);
	ASSERT_LE(0, at_b);
	ASSERT_EQ(0, set_eventfd(p->listener, at_listener));
	ASSERT_EQ(0, set_eventfd(p->a, at_a));
	ASSERT_EQ(0, set_eventfd(p->b, at_b));
	signalled(at_listener, 0);
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_TRUE(signalled(at_listener, SOON));
	ASSERT_EQ(0, conn_accept(p->a, PORT));

	for (int i = 0; i < 20; i++) {
		signalled(at_a, 0);
		signalled(at_b, 0);
		ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
		ASSERT_EQ(0, conn_send(p->b, self->buf + 100, 8));
		EXPECT_TRUE(signalled(at_a, SOON));
		EXPECT_TRUE(signalled(at_b, SOON));
		ASSERT_TRUE(conn_poll(p->a, POLLIN, SOON) & POLLIN);
		ASSERT_EQ(0, conn_recv_all(p->a, self->buf, 8));
		ASSERT_TRUE(conn_poll(p->b, POLLOUT, SOON) & POLLOUT);
		ASSERT_EQ(0, conn_recycle_all(p->b, self->buf + 100, 8));
	}
	signalled(at_a, 0);
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(signalled(at_a, SOON));
	close(at_listener);
	close(at_a);
	close(at_b);
}

/**
 * struct waiter - a thread that waits in a call
 * @wait: the call
 * @pair: the connections
 * @range: what it got
 * @thread: the thread
 * @result: what it returned
 */
struct waiter {
	int (*wait)(struct waiter *waiter);
	struct pair *pair;
	struct range range;
	pthread_t thread;
	int result;
};

static int wait_recv(struct waiter *waiter)
{
	return conn_recv(waiter->pair->a, 8, &waiter->range);
}

static int wait_recycle(struct waiter *waiter)
{
	return conn_recycle(waiter->pair->a, 8, &waiter->range);
}

static int wait_accept(struct waiter *waiter)
{
	return conn_accept(waiter->pair->a, PORT);
}

static void *waiter_main(void *arg)
{
	struct waiter *waiter = arg;

	waiter->result = waiter->wait(waiter);
	return NULL;
}

static int waiter_start(struct waiter *waiter, struct pair *pair,
			int (*wait)(struct waiter *waiter))
{
	*waiter = (struct waiter){ .wait = wait, .pair = pair, .result = 1 };
	return -pthread_create(&waiter->thread, NULL, waiter_main, waiter);
}

static int waiter_end(struct waiter *waiter)
{
	pthread_join(waiter->thread, NULL);
	return waiter->result;
}

/* The order of the waiter and of the event. */
TEST_F(wait, blocking)
{
	struct pair *p = &self->pair;
	struct waiter receiver, recycler;

	ASSERT_EQ(0, fcntl(p->a, F_SETFL, 0));
	ASSERT_EQ(0, waiter_start(&receiver, p, wait_accept));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	ASSERT_EQ(0, waiter_end(&receiver));
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));

	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(0, waiter_start(&receiver, p, wait_recv));
		ASSERT_EQ(0, waiter_start(&recycler, p, wait_recycle));
		ASSERT_EQ(0, conn_prepost(p->a, self->buf, 8));
		ASSERT_EQ(0, conn_send(p->a, self->buf + 100, 8));
		ASSERT_EQ(0, conn_prepost(p->b, self->buf + 200, 8));
		ASSERT_EQ(0, conn_send(p->b, self->buf + 300, 8));
		ASSERT_EQ(0, waiter_end(&receiver));
		ASSERT_EQ(0, waiter_end(&recycler));
		EXPECT_EQ(self->buf, receiver.range.addr);
		EXPECT_EQ(8, receiver.range.length);
		EXPECT_EQ(self->buf + 100, recycler.range.addr);
		EXPECT_EQ(8, recycler.range.length);
		ASSERT_TRUE(conn_poll(p->b, POLLIN, SOON) & POLLIN);
		ASSERT_EQ(0, conn_recv_all(p->b, self->buf + 200, 8));
		ASSERT_TRUE(conn_poll(p->b, POLLOUT, SOON) & POLLOUT);
		ASSERT_EQ(0, conn_recycle_all(p->b, self->buf + 300, 8));
	}
}

TEST_F(wait, woken_by_disconnect)
{
	struct pair *p = &self->pair;
	struct waiter receiver, recycler;

	ASSERT_EQ(0, meet(p));
	ASSERT_EQ(0, fcntl(p->a, F_SETFL, 0));
	ASSERT_EQ(0, conn_send(p->a, self->buf, 8));
	ASSERT_EQ(0, waiter_start(&receiver, p, wait_recv));
	ASSERT_EQ(0, waiter_start(&recycler, p, wait_recycle));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_EQ(0, waiter_end(&receiver));
	EXPECT_EQ(0, receiver.range.length);
	EXPECT_EQ(0, waiter_end(&recycler));
	EXPECT_EQ(0, recycler.range.length);
}

/* Another thread of the same process ends the connection. */
TEST_F(wait, woken_by_own_disconnect)
{
	struct pair *p = &self->pair;
	struct waiter receiver;
	int ret;

	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, meet(p));
		ASSERT_EQ(0, fcntl(p->a, F_SETFL, 0));
		ASSERT_EQ(0, waiter_start(&receiver, p, wait_recv));
		ASSERT_EQ(0, conn_disconnect(p->a));
		ret = waiter_end(&receiver);
		EXPECT_TRUE(ret == -ENOTCONN || (!ret && !receiver.range.length))
			TH_LOG("got %d", ret);
		ASSERT_EQ(0, conn_disconnect(p->b));
		ASSERT_EQ(0, fcntl(p->a, F_SETFL, O_NONBLOCK));
	}
}

struct mortal {
	struct pair *pair;
	/* Memory that it leaves and that cannot be reaped. */
	size_t unsent;
};

/* Connects to the parent, says so, and is killed one day. */
static void connect_and_stay(int fd, void *arg)
{
	struct mortal *mortal = arg;
	int own = conn_open_at(uldma_other(), 0);
	int ret = conn_connect(own, mortal->pair->to_a, PORT);

	if (!ret && mortal->unsent)
		ret = conn_send(own, buffer(page_size()), mortal->unsent);
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

/* Waits in a call while the other side dies: what the call returned. */
static int wait_for_death(struct pair *p, size_t unsent)
{
	struct mortal mortal = { .pair = p, .unsent = unsent };
	struct waiter receiver;
	struct helper child;
	int ret;

	ret = helper_start(&child, connect_and_stay, &mortal);
	if (ret)
		return ret;
	if (read(child.fd, &ret, sizeof(ret)) != sizeof(ret))
		return -EPIPE;
	ret = ret ?: conn_accept(p->a, PORT) ?:
	      -fcntl(p->a, F_SETFL, 0) ?:
	      waiter_start(&receiver, p, wait_recv) ?:
	      helper_kill(&child);
	return ret ?: waiter_end(&receiver) ?: (int)receiver.range.length;
}

/* No data was lost, so for the other side it is a disconnect. */
TEST_F(wait, woken_by_death)
{
	struct pair *p = &self->pair;

	EXPECT_EQ(0, wait_for_death(p, 0));
	EXPECT_TRUE(conn_poll(p->a, 0, SOON) & POLLHUP);
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(p->a));
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
}

TEST_F(wait, woken_by_death_with_loss)
{
	struct pair *p = &self->pair;

	EXPECT_EQ(-ECONNRESET, wait_for_death(p, 8));
	EXPECT_TRUE(conn_poll(p->a, 0, SOON) & POLLERR);
	EXPECT_TRUE(conn_poll(p->a, 0, SOON) & POLLHUP);
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(p->a));
	EXPECT_TRUE(conn_query(p->a).out_flags & ULDMA_CONN_RESET);
	EXPECT_EQ(-ECONNRESET, conn_send(p->a, self->buf, 8));
	EXPECT_EQ(-ECONNRESET, conn_prepost(p->a, self->buf, 8));
	EXPECT_EQ(-ECONNRESET, conn_recycle(p->a, 8, &self->range));
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
}

static void on_alarm(int signal)
{
}

/* Signals end the waiting, not what is waited for. */
TEST_F(wait, signals)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval timer = { .it_value.tv_usec = 20000,
				   .it_interval.tv_usec = 20000 };
	struct itimerval none = { };
	struct pair *p = &self->pair;

	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, fcntl(p->a, F_SETFL, 0));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	EXPECT_EQ(-EINTR, conn_accept(p->a, PORT));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &none, NULL));
	ASSERT_EQ(0, meet(p));

	memcpy(self->buf, "received", 8);
	ASSERT_EQ(0, conn_prepost(p->a, self->buf + 100, 8));
	ASSERT_EQ(0, conn_send(p->a, self->buf + 200, 8));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	for (int i = 0; i < 5; i++) {
		EXPECT_EQ(-EINTR, conn_recv(p->a, 8, &self->range));
		EXPECT_EQ(-EINTR, conn_recycle(p->a, 8, &self->range));
	}
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &none, NULL));
	EXPECT_EQ(8, conn_query(p->a).out_posted);
	EXPECT_EQ(8, conn_query(p->a).out_unsent);
	ASSERT_EQ(0, conn_send(p->b, self->buf, 8));
	ASSERT_EQ(0, conn_prepost(p->b, self->buf + 300, 8));
	ASSERT_EQ(0, conn_recv_all(p->a, self->buf + 100, 8));
	EXPECT_EQ(0, memcmp(self->buf + 100, "received", 8));
	ASSERT_EQ(0, conn_recycle_all(p->a, self->buf + 200, 8));
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
