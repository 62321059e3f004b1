/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Polling of a network device by the idle time of a processor.
 */
#ifndef _ULDMA_NETIDLE_H
#define _ULDMA_NETIDLE_H

#include <linux/compiler.h>
#include <linux/smp.h>
#include <linux/types.h>

struct net_device;
struct task_struct;

struct uldma_netidle {
	struct task_struct *thread;
	struct net_device *dev;
	/* Polls; returns true while there are packets to wait for. */
	bool (*poll)(struct net_device *dev);
	/* The processor that sent the last packet. */
	int sender;
	/* The processor to poll on, from the wait that began last. */
	int cpu;
};

int uldma_netidle_start(struct uldma_netidle *idle, struct net_device *dev,
			bool (*poll)(struct net_device *dev));
void uldma_netidle_stop(struct uldma_netidle *idle);
void uldma_netidle_wait(struct uldma_netidle *idle);

/* Notes that this processor sends a packet; bottom halves are disabled. */
static inline void uldma_netidle_sent(struct uldma_netidle *idle)
{
	int cpu = smp_processor_id();

	if (READ_ONCE(idle->sender) != cpu)
		WRITE_ONCE(idle->sender, cpu);
}

#endif /* _ULDMA_NETIDLE_H */
