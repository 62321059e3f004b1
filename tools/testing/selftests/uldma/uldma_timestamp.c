// SPDX-License-Identifier: GPL-2.0
/*
 * Sends a datagram, and waits for the time stamp that the driver of the network
 * interface takes when it sends it:
 *
 *	uldma_timestamp ADDRESS PORT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Milliseconds until there is no time stamp. */
#define PATIENCE 20000

/* Takes the time stamp from the socket's queue of errors: 0 or a negated errno. */
static int take(int fd, struct timespec *stamp)
{
	union {
		struct cmsghdr align;
		char space[512];
	} control;
	struct msghdr msg = {
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct scm_timestamping times;
	struct cmsghdr *c;

	if (recvmsg(fd, &msg, MSG_ERRQUEUE) < 0)
		return -errno;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET ||
		    c->cmsg_type != SCM_TIMESTAMPING)
			continue;
		memcpy(&times, CMSG_DATA(c), sizeof(times));
		stamp->tv_sec = times.ts[0].tv_sec;
		stamp->tv_nsec = times.ts[0].tv_nsec;
		return 0;
	}
	return -ENOMSG;
}

int main(int argc, char **argv)
{
	const unsigned int flags = SOF_TIMESTAMPING_TX_SOFTWARE |
				   SOF_TIMESTAMPING_SOFTWARE;
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct pollfd errors = { .fd = socket(AF_INET, SOCK_DGRAM, 0) };
	struct timespec before, stamp, after;
	int ret;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
		return 2;
	}
	to.sin_port = htons(atoi(argv[2]));
	if (setsockopt(errors.fd, SOL_SOCKET, SO_TIMESTAMPING, &flags,
		       sizeof(flags))) {
		perror("SO_TIMESTAMPING");
		return 1;
	}
	clock_gettime(CLOCK_REALTIME, &before);
	if (sendto(errors.fd, "", 1, 0, (struct sockaddr *)&to,
		   sizeof(to)) != 1) {
		perror("sendto");
		return 1;
	}
	if (poll(&errors, 1, PATIENCE) != 1 || !(errors.revents & POLLERR)) {
		printf("no time stamp\n");
		return 1;
	}
	ret = take(errors.fd, &stamp);
	clock_gettime(CLOCK_REALTIME, &after);
	if (ret) {
		printf("no time stamp: %s\n", strerror(-ret));
		return 1;
	}
	if (stamp.tv_sec < before.tv_sec || stamp.tv_sec > after.tv_sec) {
		printf("at %lld s, which is not now\n", (long long)stamp.tv_sec);
		return 1;
	}
	printf("sent at %lld.%09ld\n", (long long)stamp.tv_sec, stamp.tv_nsec);
	return 0;
}
