// SPDX-License-Identifier: GPL-2.0
/*
 * The serving half of uldma_conn_peer: takes orders from a connection, and has
 * them carried out by workers.
 */
#include "uldma_conn_match.h"
#include "uldma_conn_order.h"
#include "uldma_conn_stream.h"
#include "uldma_process.h"

/**
 * struct outcome - what a worker says at the end
 * @result: of its streams
 * @copied: bytes copied on this side
 * @name: of its connection
 */
struct outcome {
	__s64 result;
	__u64 copied;
	__u64 name;
};

struct worker {
	struct helper helper;
	struct outcome outcome;
};

static struct worker workers[WORKERS];

static int work_echo(int fd, size_t chunk)
{
	char *memory = buffer(chunk);
	struct range range;
	int ret;

	if (!memory)
		return -ENOMEM;
	ret = conn_prepost(fd, memory, chunk);
	while (!ret) {
		ret = conn_recv(fd, chunk, &range);
		if (ret || !range.length)
			break;
		ret = conn_send(fd, range.addr, range.length) ?:
		      conn_recycle_all(fd, range.addr, range.length);
		if (ret)
			break;
		ret = conn_prepost(fd, range.addr, range.length);
		/* The other side disconnects when it has got all. */
		if (ret == -EPIPE)
			return 0;
	}
	return ret;
}

static int work_streams(int fd, const __u64 *args)
{
	struct stream streams[2] = { };
	int count = 0;

	if (args[1] & WORK_RECEIVE)
		streams[count++].cmd = ULDMA_IOC_CONN_PREPOST;
	if (args[1] & WORK_SEND)
		streams[count++].cmd = ULDMA_IOC_CONN_SEND;
	for (int i = 0; i < count; i++) {
		streams[i].fd = fd;
		streams[i].total = args[2];
		/* The other direction has other bytes. */
		streams[i].seed = args[3] +
				  (streams[i].cmd == ULDMA_IOC_CONN_SEND);
		streams[i].chunk = args[4];
		streams[i].lead = args[5];
	}
	return streams_run(streams, count);
}

static int work_match(int fd, bool leaves)
{
	struct matched m;
	short events;
	int ret = matched_begin(fd, &m);

	if (!ret && leaves)
		ret = endpoint_destroy(fd, &m.endpoint);
	if (ret)
		return ret;
	events = conn_poll(fd, 0, PARTNER_PATIENCE);
	if (events & POLLERR)
		return -ECONNRESET;
	return events & POLLHUP ? 0 : -ETIMEDOUT;
}

static int work_of(int fd, const __u64 *args)
{
	if (args[1] & WORK_ECHO)
		return work_echo(fd, args[4]);
	if (args[1] & WORK_MATCH)
		return work_match(fd, args[1] & WORK_LEAVE);
	return work_streams(fd, args);
}

/* Listens, says so, works, says how that was, and stays for the other side. */
static void work(int fd, void *arg)
{
	const __u64 *args = arg;
	struct outcome outcome = { };
	int own = uldma_open(0);
	int ret;

	ret = own < 0 ? own : conn_listen_once(own, WORKER_PORT(args[0]));
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret) || ret)
		_exit(1);
	if (!(conn_poll(own, POLLOUT, SOON) & POLLOUT))
		_exit(1);
	outcome.name = conn_query(own).out_name;
	outcome.result = work_of(own, args);
	outcome.copied = conn_query(own).out_copied;
	if (write(fd, &outcome, sizeof(outcome)) != sizeof(outcome))
		_exit(1);
}

static void worker_end(struct worker *worker)
{
	if (worker->helper.pid)
		helper_kill(&worker->helper);
	*worker = (struct worker){ };
}

static __s64 worker_start(struct worker *worker, const __u64 *args)
{
	int ret;

	worker_end(worker);
	ret = helper_start(&worker->helper, work, (void *)args);
	if (ret)
		return ret;
	if (read(worker->helper.fd, &ret, sizeof(ret)) != sizeof(ret))
		return -EIO;
	return ret;
}

static __s64 worker_result(struct worker *worker)
{
	struct outcome *outcome = &worker->outcome;

	if (!poll_for(worker->helper.fd, PARTNER_PATIENCE))
		return -ETIMEDOUT;
	if (read(worker->helper.fd, outcome, sizeof(*outcome)) !=
	    sizeof(*outcome))
		return -EIO;
	return outcome->result;
}

static __s64 execute(const struct order *order)
{
	struct worker *worker = &workers[order->args[0] % WORKERS];

	switch (order->verb) {
	case ORDER_QUIT:
		return 0;
	case ORDER_WORK:
		return worker_start(worker, order->args);
	case ORDER_RESULT:
		return worker_result(worker);
	case ORDER_COPIED:
		return worker->outcome.copied;
	case ORDER_NAME:
		return worker->outcome.name;
	case ORDER_KILL:
		worker_end(worker);
		return 0;
	case ORDER_STOP:
		return kill(worker->helper.pid, SIGSTOP);
	case ORDER_GO_ON:
		return kill(worker->helper.pid, SIGCONT);
	default:
		return -EINVAL;
	}
}

/* Serves one connection to its end: 0, or 1 after ORDER_QUIT. */
static int serve_one(int fd, struct order *order, __s64 *answer)
{
	while (!conn_recv_into(fd, order, sizeof(*order))) {
		*answer = execute(order);
		if (conn_send_wait(fd, answer, sizeof(*answer)))
			return 0;
		if (order->verb == ORDER_QUIT)
			return 1;
	}
	return 0;
}

int conn_peer_serve(void)
{
	int listener = uldma_open(0);
	/* Not of the stack, which is others' memory as well. */
	struct order *order = buffer(page_size());
	__s64 *answer = buffer(page_size());
	int done = 0;
	int fd, ret;

	if (listener < 0)
		return listener;
	if (!order || !answer)
		return -ENOMEM;
	/* The tests, which give orders, ask for no ring; a hostile peer does. */
	ret = conn_listen_as(listener, ORDER_PORT, 4, 0, 1);
	if (ret)
		return ret;
	printf("ready\n");
	fflush(stdout);

	while (!done) {
		fd = uldma_open(0);
		if (fd < 0)
			return fd;
		ret = conn_accept(fd, ORDER_PORT);
		if (ret)
			return ret;
		done = serve_one(fd, order, answer);
		for (int i = 0; i < WORKERS; i++)
			worker_end(&workers[i]);
		close(fd);
	}
	return 0;
}
