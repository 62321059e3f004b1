// SPDX-License-Identifier: GPL-2.0
/*
 * Polls a network device by the idle time of a processor.
 *
 * A thread with the policy SCHED_IDLE polls while packets are waited for. Every
 * other thread that wants its processor gets it at once, and the scheduler
 * takes the processor for an idle one. So a program that a packet wakes runs
 * where the thread has found that packet, without an interrupt.
 */

#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <uapi/linux/sched/types.h>

#include "netidle.h"

static bool uldma_netidle_may_use(int cpu)
{
	/* An administrator may change the masks, which are then freed. */
	guard(preempt)();
	guard(rcu)();
	return !cpu_is_isolated(cpu) &&
	       housekeeping_cpu(cpu, HK_TYPE_KERNEL_NOISE);
}

/*
 * Moves to the processor whose program waits, as far as is known: so that
 * program does not have to move, and no second processor is kept awake.
 */
static void uldma_netidle_follow(struct uldma_netidle *idle)
{
	int cpu = READ_ONCE(idle->cpu);

	if (cpu == raw_smp_processor_id())
		return;
	if (!uldma_netidle_may_use(cpu) ||
	    set_cpus_allowed_ptr(current, cpumask_of(cpu)))
		WRITE_ONCE(idle->cpu, raw_smp_processor_id());
}

/* Kernels that preempt lazily do not take the processor from this thread. */
static void uldma_netidle_give_way(void)
{
	cpu_relax();
	if (need_resched() || test_thread_flag(TIF_NEED_RESCHED_LAZY))
		schedule();
}

static int uldma_netidle_run(void *data)
{
	struct uldma_netidle *idle = data;
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};

	/* Here, since a new thread takes locks of others before. */
	WARN_ON_ONCE(sched_setattr_nocheck(current, &attr));
	while (!kthread_should_stop()) {
		while (idle->poll(idle->dev) && !kthread_should_stop()) {
			uldma_netidle_follow(idle);
			uldma_netidle_give_way();
		}
		set_current_state(TASK_IDLE);
		if (!idle->poll(idle->dev) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/*
 * Starts the thread, but not with PREEMPT_RT: such a kernel would take the
 * processor from the thread while it polls a NAPI context, for as long as
 * other threads want it.
 */
int uldma_netidle_start(struct uldma_netidle *idle, struct net_device *dev,
			bool (*poll)(struct net_device *dev))
{
	struct task_struct *thread;

	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return 0;
	idle->dev = dev;
	idle->poll = poll;
	idle->sender = raw_smp_processor_id();
	idle->cpu = idle->sender;
	thread = kthread_run(uldma_netidle_run, idle, "%s-idle", dev->name);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	idle->thread = thread;
	return 0;
}

/* Waits for the last poll. No wait begins any more. */
void uldma_netidle_stop(struct uldma_netidle *idle)
{
	if (!idle->thread)
		return;
	/* It has to run for that, also where its processor is never idle. */
	sched_set_normal(idle->thread, MIN_NICE);
	set_cpus_allowed_ptr(idle->thread, cpu_possible_mask);
	kthread_stop(idle->thread);
	idle->thread = NULL;
}

/*
 * Begins a wait; the caller has made poll() return true. The thread moves at
 * most once in each wait, wherever packets are sent meanwhile.
 */
void uldma_netidle_wait(struct uldma_netidle *idle)
{
	if (!idle->thread)
		return;
	WRITE_ONCE(idle->cpu, READ_ONCE(idle->sender));
	wake_up_process(idle->thread);
}
