// SPDX-License-Identifier: GPL-2.0
/*
 * Makes one endpoint of a sequence and one of the other node know each other, so
 * that messages cross.
 */
#include "uldma_conn.h"
#include "uldma_fuzz_model.h"

/* The connection by which they met, or -1. */
static int meeting = -1;

static struct endpoint_name *page_of_names(void)
{
	static struct endpoint_name *names;

	return names ?: (names = buffer(page_size()));
}

/*
 * Tells the other node the name of an endpoint, and asks for that of its own. Returns
 * false if two have met already.
 */
bool meet(const struct device *d, struct endpoint_name *name)
{
	struct endpoint_name *names = page_of_names();
	int fd;

	if (meeting >= 0 || !d->remote || !names)
		return false;
	fd = open(d->path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	names[0] = *name;
	if (conn_connect(fd, 0, MEETING_PORT) ||
	    conn_prepost(fd, &names[1], sizeof(names[1])) ||
	    conn_send_wait(fd, &names[0], sizeof(names[0])) ||
	    conn_recv_all(fd, &names[1], sizeof(names[1]))) {
		conn_disconnect(fd);
		close(fd);
		return false;
	}
	meeting = fd;
	*name = names[1];
	return true;
}

/* Ends the other node's endpoint. A worker may have the file, too. */
void part(void)
{
	if (meeting < 0)
		return;
	conn_disconnect(meeting);
	close(meeting);
	meeting = -1;
}
