// SPDX-License-Identifier: GPL-2.0
/*
 * A module with bugs, one for each checker of the sanitizing kernel: the test that
 * loads it sees whether they are found.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/slab.h>

static char *kind = "";
module_param(kind, charp, 0444);
MODULE_PARM_DESC(kind, "use-after-free, leak, lock-order, refcount, overflow or atomic-sleep");

static DEFINE_MUTEX(a);
static DEFINE_MUTEX(b);
static DEFINE_SPINLOCK(s);

static int __init bug_init(void)
{
	volatile char *p;
	refcount_t r;

	if (!strcmp(kind, "use-after-free")) {
		p = kmalloc(64, GFP_KERNEL);
		kfree((void *)p);
		p[3] = 1;
	} else if (!strcmp(kind, "overflow")) {
		p = kmalloc(60, GFP_KERNEL);
		p[60] = 1;
		kfree((void *)p);
	} else if (!strcmp(kind, "leak")) {
		p = kmalloc(1000, GFP_KERNEL);
		p[0] = 1;
	} else if (!strcmp(kind, "lock-order")) {
		mutex_lock(&a);
		mutex_lock(&b);
		mutex_unlock(&b);
		mutex_unlock(&a);
		mutex_lock(&b);
		mutex_lock(&a);
		mutex_unlock(&a);
		mutex_unlock(&b);
	} else if (!strcmp(kind, "refcount")) {
		refcount_set(&r, 0);
		refcount_inc(&r);
	} else if (!strcmp(kind, "atomic-sleep")) {
		spin_lock(&s);
		kfree(kmalloc(64, GFP_KERNEL));
		spin_unlock(&s);
	}
	return 0;
}

static void __exit bug_exit(void)
{
}

module_init(bug_init);
module_exit(bug_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A bug for each checker of the kernel");
