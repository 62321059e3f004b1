// SPDX-License-Identifier: GPL-2.0

#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/list_lru.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mount.h>
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/ratelimit.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/srcu.h>
#include <linux/suspend.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "shims.h"

int uldma_srcu_init(struct srcu_struct *srcu)
{
	return init_srcu_struct(srcu);
}

int uldma_srcu_read_lock(struct srcu_struct *srcu)
{
	return srcu_read_lock(srcu);
}

void uldma_srcu_read_unlock(struct srcu_struct *srcu, int idx)
{
	srcu_read_unlock(srcu, idx);
}

void uldma_waitqueue_init(struct wait_queue_head *queue)
{
	init_waitqueue_head(queue);
}

void uldma_count_up(struct wait_queue_head *queue, u32 *count)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	WRITE_ONCE(*count, *count + 1);
	wake_up_all_locked(queue);
	spin_unlock_irqrestore(&queue->lock, flags);
}

u32 uldma_count(const u32 *count)
{
	/* A waiter finds later changes itself. */
	return smp_load_acquire(count);
}

/* Sleeps in @state. Returns false if a signal ended the wait. */
bool uldma_wait_for_count(struct wait_queue_head *queue, const u32 *count,
			  u32 seen, unsigned long timeout, unsigned int state)
{
	long left = timeout;

	left = ___wait_event(*queue,
			     ___wait_cond_timeout(READ_ONCE(*count) != seen),
			     state, 0, left, __ret = schedule_timeout(__ret));
	return left >= 0;
}

/*
 * Makes the page table that an insertion at the address of a fault needs. The
 * insertion would do that itself, but under the locks of its caller.
 */
int uldma_alloc_page_table(struct vm_fault *vmf)
{
	if (!pmd_none(pmdp_get_lockless(vmf->pmd)))
		return 0;
	return apply_to_page_range(vmf->vma->vm_mm, vmf->address & PAGE_MASK,
				   PAGE_SIZE, NULL, NULL);
}

/*
 * Takes a lock, whose waiters sleep in @state and are woken one at a time. Returns
 * the time that is left, or 1; 0 after the timeout; negative if a signal ended the
 * wait.
 */
long uldma_timed_lock(struct wait_queue_head *queue, u32 *held,
		      unsigned long timeout, unsigned int state)
{
	long left = timeout;

	if (!xchg(held, 1))
		return 1;
	return ___wait_event(*queue, ___wait_cond_timeout(!xchg(held, 1)),
			     state, 1, left, __ret = schedule_timeout(__ret));
}

void uldma_timed_unlock(struct wait_queue_head *queue, u32 *held)
{
	/* Pairs with xchg() of the next holder. */
	smp_store_release(held, 0);
	wake_up(queue);
}

void uldma_release_fault_lock(struct vm_fault *vmf)
{
	release_fault_lock(vmf);
}

/* Maps @pfn at @address, with all rights of a mapping of normal memory. */
vm_fault_t uldma_insert_writable(struct vm_area_struct *vma,
				 unsigned long address, unsigned long pfn)
{
	return vmf_insert_pfn_prot(vma, address, pfn,
				   vm_get_page_prot(vma->vm_flags));
}

void uldma_vma_set_caching(struct vm_area_struct *vma, u32 caching)
{
	switch (caching) {
	case ULDMA_CACHING_UNCACHED:
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
		break;
	case ULDMA_CACHING_WRITE_COMBINE:
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
		break;
	}
}

/*
 * A file system for one purpose: each device has an inode of its own, whose
 * address_space all files of the device share whatever device node they were
 * opened through, so that one call finds every mapping (as DRM does it).
 *
 * It has no owner: mounting it must not keep the module loaded, and the last
 * inode is put before the module can go.
 */
static int uldma_fs_init_context(struct fs_context *fc)
{
	return init_pseudo(fc, 0x756c646d) ? 0 : -ENOMEM;
}

static struct file_system_type uldma_fs_type = {
	.name = "uldma",
	.init_fs_context = uldma_fs_init_context,
	.kill_sb = kill_anon_super,
};

static struct vfsmount *uldma_fs_mount;
static int uldma_fs_users;

struct inode *uldma_mapping_inode_new(void)
{
	struct inode *inode;
	int ret;

	ret = simple_pin_fs(&uldma_fs_type, &uldma_fs_mount, &uldma_fs_users);
	if (ret)
		return ERR_PTR(ret);

	inode = alloc_anon_inode(uldma_fs_mount->mnt_sb);
	if (IS_ERR(inode))
		simple_release_fs(&uldma_fs_mount, &uldma_fs_users);
	return inode;
}

void uldma_mapping_inode_put(struct inode *inode)
{
	iput(inode);
	simple_release_fs(&uldma_fs_mount, &uldma_fs_users);
}

/* Returns true if a message of this kind may be printed now. */
bool uldma_ratelimit(unsigned int kind)
{
	static struct ratelimit_state states[ULDMA_RATELIMITED] = {
		[0 ... ULDMA_RATELIMITED - 1] =
			RATELIMIT_STATE_INIT(states,
					     DEFAULT_RATELIMIT_INTERVAL,
					     DEFAULT_RATELIMIT_BURST),
	};

	return kind < ARRAY_SIZE(states) && __ratelimit(&states[kind]);
}

unsigned long uldma_rlimit_memlock(void)
{
	return rlimit(RLIMIT_MEMLOCK);
}

u32 uldma_current_uid(void)
{
	return __kuid_val(current_uid());
}

unsigned long uldma_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

/*
 * Punching a hole into a file first unmaps it, which invalidates the addresses,
 * and then removes the pages. Both are done under a lock: that of the inode for
 * files in memory, the invalidate lock for others.
 *
 * Returns true if that lock of the file of the first mapping that ends behind
 * *@addr is free, and sets *@addr to the end of the mapping.
 */
bool uldma_vma_file_is_settled(struct mm_struct *mm, unsigned long *addr)
{
	struct vm_area_struct *vma;
	struct address_space *mapping;
	struct file *file = NULL;
	struct inode *inode;
	bool settled;

	mmap_read_lock(mm);
	vma = find_vma(mm, *addr);
	if (vma && vma->vm_file)
		file = get_file(vma->vm_file);
	*addr = vma ? vma->vm_end : ULONG_MAX;
	mmap_read_unlock(mm);
	if (!file)
		return true;

	mapping = file->f_mapping;
	inode = mapping->host;
	if (inode->i_sb->s_magic == TMPFS_MAGIC ||
	    inode->i_sb->s_magic == HUGETLBFS_MAGIC) {
		settled = inode_trylock_shared(inode);
		if (settled)
			inode_unlock_shared(inode);
	} else {
		settled = filemap_invalidate_trylock_shared(mapping);
		if (settled)
			filemap_invalidate_unlock_shared(mapping);
	}
	fput(file);
	return settled;
}

/* Registers @notifier. None makes room for interval notifiers. */
int uldma_mmu_notifier_register(struct mmu_notifier *notifier,
				struct mm_struct *mm)
{
	int ret;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	ret = __mmu_notifier_register(notifier, mm);
	mmap_write_unlock(mm);
	return ret;
}

u64 uldma_untagged_addr(u64 addr)
{
	return untagged_addr(addr);
}

/*
 * Returns true if a fault at @addr of @vma, where no page is mapped, would bring
 * @page. A pinned page of private memory is always mapped, unless it was
 * discarded.
 */
bool uldma_page_is_behind(struct vm_area_struct *vma, unsigned long addr,
			  struct page *page)
{
	struct folio *folio = page_folio(page);

	if (folio_test_anon(folio) || !vma->vm_file)
		return false;
	if (READ_ONCE(folio->mapping) != vma->vm_file->f_mapping)
		return false;
	return page_pgoff(folio, page) == linear_page_index(vma, addr);
}

/*
 * Returns how many of the @count pages, which is not 0, are one block of
 * physical memory with the first.
 */
unsigned long uldma_contiguous_pages(struct page *const *pages,
				     unsigned long count)
{
	unsigned long pfn = page_to_pfn(pages[0]);
	unsigned long found;

	for (found = 1; found < count; found++)
		if (page_to_pfn(pages[found]) != pfn + found)
			break;
	return found;
}

void *uldma_page_address(struct page *page)
{
	return page_address(page);
}

unsigned long uldma_copy_from_user(void *to, const void __user *from,
				   unsigned long count)
{
	return copy_from_user(to, from, count);
}

unsigned long uldma_copy_to_user(void __user *to, const void *from,
				 unsigned long count)
{
	return copy_to_user(to, from, count);
}

void uldma_get_page(struct page *page)
{
	get_page(page);
}

void uldma_put_page(struct page *page)
{
	put_page(page);
}

void uldma_cond_resched(void)
{
	cond_resched();
}

/*
 * A kernel that preempts lazily sets the second flag, and preempts a loop in the
 * kernel only at the next tick.
 */
unsigned long uldma_array_index_nospec(unsigned long index,
				       unsigned long length)
{
	return array_index_nospec(index, length);
}

bool uldma_need_resched(void)
{
	return need_resched() || test_thread_flag(TIF_NEED_RESCHED_LAZY);
}

int uldma_dma_mapping_error(struct device *dev, dma_addr_t addr)
{
	return dma_mapping_error(dev, addr);
}

bool uldma_dma_need_unmap(struct device *dev)
{
	return dma_need_unmap(dev);
}

int uldma_dma_coerce_mask_and_coherent(struct device *dev, u64 mask)
{
	return dma_coerce_mask_and_coherent(dev, mask);
}

void uldma_dma_wmb(void)
{
	dma_wmb();
}

void uldma_mb(void)
{
	/* Pairs with the peer, which says that it sleeps and polls once more. */
	mb();
}

void uldma_wmb(void)
{
	/* Pairs with the peer, which reads the window in order. */
	wmb();
}

void uldma_rmb(void)
{
	/* Pairs with the peer, which writes the window in order. */
	rmb();
}

#ifdef CONFIG_TRACEPOINTS
/*
 * The tracepoint is not exported by name, but modules may search for it, as
 * tracing modules do.
 */
static void uldma_find_sched_switch(struct tracepoint *tp, void *found)
{
	if (!strcmp(tp->name, "sched_switch"))
		*(struct tracepoint **)found = tp;
}

static struct tracepoint *uldma_sched_switch(void)
{
	struct tracepoint *tp = NULL;

	for_each_kernel_tracepoint(uldma_find_sched_switch, &tp);
	return tp;
}

int uldma_sched_switch_register(uldma_sched_switch_t probe, void *data)
{
	struct tracepoint *tp = uldma_sched_switch();

	return tp ? tracepoint_probe_register(tp, probe, data) : -EOPNOTSUPP;
}

void uldma_sched_switch_unregister(uldma_sched_switch_t probe, void *data)
{
	tracepoint_probe_unregister(uldma_sched_switch(), probe, data);
}

void uldma_sched_switch_synchronize(void)
{
	tracepoint_synchronize_unregister();
}
#else
int uldma_sched_switch_register(uldma_sched_switch_t probe, void *data)
{
	return -EOPNOTSUPP;
}

void uldma_sched_switch_unregister(uldma_sched_switch_t probe, void *data)
{
}

void uldma_sched_switch_synchronize(void)
{
}
#endif

void uldma_on_each_cpu(void (*call)(void *data), void *data)
{
	on_each_cpu(call, data, 1);
}

unsigned int uldma_cpu(void)
{
	return smp_processor_id();
}

unsigned int uldma_possible_cpus(void)
{
	return nr_cpu_ids;
}

u64 uldma_raw_readq(const void __iomem *addr)
{
	return __raw_readq(addr);
}

void uldma_raw_writeq(u64 value, void __iomem *addr)
{
	__raw_writeq(value, addr);
}

void uldma_memset_io(void __iomem *addr, int value, size_t count)
{
	memset_io(addr, value, count);
}

struct workqueue_struct *uldma_workqueue_new(const char *name,
					     unsigned int flags, int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

unsigned int uldma_noio_save(void)
{
	return memalloc_noio_save();
}

void uldma_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

int uldma_pm_notifier_register(struct notifier_block *notifier)
{
	return register_pm_notifier(notifier);
}

void uldma_pm_notifier_unregister(struct notifier_block *notifier)
{
	unregister_pm_notifier(notifier);
}

struct shrinker *uldma_shrinker_alloc(const char *name)
{
	return shrinker_alloc(SHRINKER_MEMCG_AWARE | SHRINKER_NUMA_AWARE, "%s",
			      name);
}

/* The control group that pays for the memory of the current process. */
struct mem_cgroup *uldma_memcg_get(void)
{
	return get_mem_cgroup_from_mm(current->mm);
}

void uldma_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

/* Allocates an object for the list of a group, which pays for both. May sleep. */
void *uldma_lru_alloc(struct kmem_cache *pool, struct list_lru *lru,
		      struct mem_cgroup *memcg)
{
	struct mem_cgroup *old = set_active_memcg(memcg);
	void *object = kmem_cache_alloc_lru(pool, lru, GFP_KERNEL_ACCOUNT);

	set_active_memcg(old);
	return object;
}

/*
 * list_lru_add_obj() would take the list of the group that is charged for the object,
 * which is none if the object is from KFENCE.
 */
void uldma_lru_add(struct list_lru *lru, struct list_head *item,
		   struct mem_cgroup *memcg)
{
	list_lru_add(lru, item, page_to_nid(virt_to_page(item)), memcg);
}

void uldma_lru_del(struct list_lru *lru, struct list_head *item,
		   struct mem_cgroup *memcg)
{
	list_lru_del(lru, item, page_to_nid(virt_to_page(item)), memcg);
}

/* Returns true if the thread that reclaims memory may take locks of file systems. */
bool uldma_may_reclaim(const struct shrink_control *sc)
{
	return sc->gfp_mask & __GFP_FS;
}

/*
 * Marks a pinned page as dirty, unless a thread has locked its folio, which may be
 * the current one. Returns true if it is dirty now.
 */
bool uldma_mark_dirty_now(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (folio_test_dirty(folio))
		return true;
	if (!folio_trylock(folio))
		return false;
	folio_mark_dirty(folio);
	folio_unlock(folio);
	return true;
}
