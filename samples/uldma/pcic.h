/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Connections under the names and with the order of arguments of PCIComm: thin
 * wrappers of the ioctls of linux/uldma.h.
 *
 * fd is an open /dev/uldmaN, and has one connection. dev is NULL or "", or
 * names the device of the file and the node of the peer: "NODE", "uldmaN" or
 * "uldmaN:NODE". The node can be left out where the link has two, and listeners
 * ignore it. cid is the port, greater than zero.
 *
 * All return the bytes that they have processed (zero where there are none to
 * process, or at the end of the stream), or -1 with errno as in linux/uldma.h;
 * EINVAL for an invalid dev, cid or len.
 */
#ifndef PCIC_H
#define PCIC_H

/* Listens for one peer; poll() reports POLLOUT once it has connected. */
int pcic_listen(int fd, char *dev, int cid);
/* Connects to the process that listens at the peer. */
int pcic_connect(int fd, char *dev, int cid);
/* Ends the connection; waits until nothing is in flight. */
int pcic_disconnect(int fd);
/* Posts memory to receive into. */
int pcic_prepost_recv(int fd, void *data, int len);
/* Reaps received memory: at most len bytes, fewer where it is not contiguous. */
int pcic_recv(int fd, void **data, int len);
/* Posts memory to send. */
int pcic_send(int fd, void *data, int len);
/* Reaps sent memory: at most len bytes, fewer where it is not contiguous. */
int pcic_send_recycle(int fd, void **data, int len);

#endif /* PCIC_H */
