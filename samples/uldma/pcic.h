/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Connections by the names and the order of arguments of PCIComm: thin wrappers
 * of the ioctls of linux/uldma.h.
 *
 * fd is an open /dev/uldmaN, and has one connection. dev is NULL or "", or says
 * which device the file must be of and which node is meant: "NODE", "uldmaN" or
 * "uldmaN:NODE". The node can be left out where the link has two, and is of no
 * interest to who listens. cid is the port, greater than zero.
 *
 * All return the bytes that they have processed (zero where there are none to
 * process, or at the end of the stream), or -1 with errno as in linux/uldma.h;
 * EINVAL for a dev, cid or len that cannot be.
 */
#ifndef PCIC_H
#define PCIC_H

/* Listens for one peer; poll() reports POLLOUT once it has connected. */
int pcic_listen(int fd, char *dev, int cid);
/* Connects to who listens at the peer. */
int pcic_connect(int fd, char *dev, int cid);
/* Ends the connection; waits until nothing is in flight. */
int pcic_disconnect(int fd);
/* Gives memory to receive into. */
int pcic_prepost_recv(int fd, void *data, int len);
/* Gets received memory back: at most len bytes, fewer where it is not contiguous. */
int pcic_recv(int fd, void **data, int len);
/* Gives memory to send. */
int pcic_send(int fd, void *data, int len);
/* Gets sent memory back, as pcic_recv(). */
int pcic_send_recycle(int fd, void **data, int len);

#endif /* PCIC_H */
