/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that Rust cannot call; declared again, and wrapped, in
 * kernel_ext/.
 */
#ifndef _ULDMA_SHIMS_H
#define _ULDMA_SHIMS_H

#include <linux/mm_types.h>
#include <linux/types.h>

struct device;
struct inode;
struct kmem_cache;
struct list_head;
struct list_lru;
struct mem_cgroup;
struct mm_struct;
struct notifier_block;
struct page;
struct shrink_control;
struct shrinker;
struct srcu_struct;
struct task_struct;
struct vm_area_struct;
struct vm_fault;
struct wait_queue_head;
struct workqueue_struct;

/* Values of kernel_ext::vma::Caching; 0 is like other memory. */
#define ULDMA_CACHING_UNCACHED		1
#define ULDMA_CACHING_WRITE_COMBINE	2

int uldma_srcu_init(struct srcu_struct *srcu);
int uldma_srcu_read_lock(struct srcu_struct *srcu);
void uldma_srcu_read_unlock(struct srcu_struct *srcu, int idx);

void uldma_waitqueue_init(struct wait_queue_head *queue);
void uldma_count_up(struct wait_queue_head *queue, u32 *count);
u32 uldma_count(const u32 *count);
bool uldma_wait_for_count(struct wait_queue_head *queue, const u32 *count,
			  u32 seen, unsigned long timeout, unsigned int state);

long uldma_timed_lock(struct wait_queue_head *queue, u32 *held,
		      unsigned long timeout, unsigned int state);
void uldma_timed_unlock(struct wait_queue_head *queue, u32 *held);

int uldma_alloc_page_table(struct vm_fault *vmf);
void uldma_release_fault_lock(struct vm_fault *vmf);
vm_fault_t uldma_insert_writable(struct vm_area_struct *vma,
				 unsigned long address, unsigned long pfn);
void uldma_vma_set_caching(struct vm_area_struct *vma, u32 caching);
struct inode *uldma_mapping_inode_new(void);
void uldma_mapping_inode_put(struct inode *inode);

/* Kinds of kernel_ext::ratelimit. */
#define ULDMA_RATELIMITED 5
bool uldma_ratelimit(unsigned int kind);

unsigned long uldma_rlimit_memlock(void);
u32 uldma_current_uid(void);
unsigned long uldma_page_to_pfn(struct page *page);
bool uldma_vma_file_is_settled(struct mm_struct *mm, unsigned long *addr);
int uldma_mmu_notifier_register(struct mmu_notifier *notifier,
				struct mm_struct *mm);
u64 uldma_untagged_addr(u64 addr);
bool uldma_page_is_behind(struct vm_area_struct *vma, unsigned long addr,
			  struct page *page);
unsigned long uldma_contiguous_pages(struct page *const *pages,
				     unsigned long count);
void *uldma_page_address(struct page *page);
unsigned long uldma_copy_from_user(void *to, const void __user *from,
				   unsigned long count);
unsigned long uldma_copy_to_user(void __user *to, const void *from,
				 unsigned long count);
void uldma_get_page(struct page *page);
void uldma_put_page(struct page *page);
void uldma_cond_resched(void);
bool uldma_need_resched(void);
unsigned long uldma_array_index_nospec(unsigned long index,
				       unsigned long length);
struct workqueue_struct *uldma_workqueue_new(const char *name,
					     unsigned int flags, int max_active);
struct shrinker *uldma_shrinker_alloc(const char *name);
struct mem_cgroup *uldma_memcg_get(void);
void uldma_memcg_put(struct mem_cgroup *memcg);
void *uldma_lru_alloc(struct kmem_cache *pool, struct list_lru *lru,
		      struct mem_cgroup *memcg);
void uldma_lru_add(struct list_lru *lru, struct list_head *item,
		   struct mem_cgroup *memcg);
void uldma_lru_del(struct list_lru *lru, struct list_head *item,
		   struct mem_cgroup *memcg);
bool uldma_may_reclaim(const struct shrink_control *sc);
bool uldma_mark_dirty_now(struct page *page);
unsigned int uldma_noio_save(void);
void uldma_noio_restore(unsigned int flags);
int uldma_dma_mapping_error(struct device *dev, dma_addr_t addr);
bool uldma_dma_need_unmap(struct device *dev);
int uldma_dma_coerce_mask_and_coherent(struct device *dev, u64 mask);
void uldma_dma_wmb(void);
void uldma_mb(void);
void uldma_wmb(void);
void uldma_rmb(void);

typedef void (*uldma_sched_switch_t)(void *data, bool preempt,
				     struct task_struct *prev,
				     struct task_struct *next,
				     unsigned int prev_state);
int uldma_sched_switch_register(uldma_sched_switch_t probe, void *data);
void uldma_sched_switch_unregister(uldma_sched_switch_t probe, void *data);
void uldma_sched_switch_synchronize(void);
void uldma_on_each_cpu(void (*call)(void *data), void *data);
unsigned int uldma_cpu(void);
unsigned int uldma_possible_cpus(void);

u64 uldma_raw_readq(const void __iomem *addr);
void uldma_raw_writeq(u64 value, void __iomem *addr);
void uldma_memset_io(void __iomem *addr, int value, size_t count);

int uldma_pm_notifier_register(struct notifier_block *notifier);
void uldma_pm_notifier_unregister(struct notifier_block *notifier);

#endif /* _ULDMA_SHIMS_H */
