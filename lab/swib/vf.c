// SPDX-License-Identifier: GPL-2.0
/*
 * Virtual functions, which are adapters too: the files by which they come and go,
 * and how their drivers start.
 */
#include <linux/delay.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include "swib.h"

static int vf_slot(struct swib_hca *pf, int i)
{
	return SWIB_VF_BASE + pf->idx * SWIB_MAX_VFS + i;
}

/* swib_cfg_mutex is held */
void swib_vf_del_all(struct swib_hca *pf)
{
	char name[20];
	unsigned int last;

	while (pf->num_vfs) {
		last = pf->num_vfs - 1;
		snprintf(name, sizeof(name), "virtfn%u", last);
		sysfs_remove_link(&pf->parent->kobj, name);
		swib_hca_del(vf_slot(pf, last));
		/* unbinding the driver waits for the last one to be gone */
		WRITE_ONCE(pf->num_vfs, last);
	}
	memset(pf->vf, 0, sizeof(pf->vf));
}

/* The time that the driver of a virtual function takes to start, in which no signal ends it. */
static void start_slowly(struct swib_hca *pf)
{
	unsigned int ms = READ_ONCE(pf->vf_slow);

	if (ms)
		schedule_timeout_uninterruptible(msecs_to_jiffies(ms));
}

/*
 * The PCI core lets the driver of each new function start, and other cards go on
 * meanwhile: swib_cfg_mutex, which is held, is free while a driver is slow.  Who
 * removes the physical function meanwhile waits for the writer of the file.
 */
static int wait_for_driver(struct swib_hca *pf)
{
	if (!READ_ONCE(pf->vf_slow))
		return 0;
	mutex_unlock(&swib_cfg_mutex);
	start_slowly(pf);
	while (!mutex_trylock(&swib_cfg_mutex)) {
		if (READ_ONCE(pf->leaving))
			return -ENODEV;
		usleep_range(1000, 2000);
	}
	return 0;
}

/* swib_cfg_mutex is held, and after -ENODEV it is not any more */
static int add_vfs(struct swib_hca *pf, unsigned int num)
{
	struct swib_hca_config c = {
		.nports = pf->node.nports,
		.pkeys = pf->node.pkeys,
		.no_cm = pf->no_cm,
		.enhanced = pf->enhanced,
		.pf = pf,
	};
	struct swib_hca *vf;
	char name[16];
	int i, r;

	if (vf_slot(pf, SWIB_MAX_VFS) > SWIB_MAX_HCA)
		return -ENOSPC;
	if (pf->vf_room && num > pf->vf_room)
		return -ENOMEM;		/* as PCI where the BARs do not fit */
	for (i = 0; i < num; i++) {
		r = wait_for_driver(pf);
		if (r)
			return r;
		c.vf_num = i;
		snprintf(c.desc, sizeof(c.desc), "%.50s vf%d", pf->node.desc, i);
		WRITE_ONCE(pf->vf_adding, true);
		r = swib_hca_add(vf_slot(pf, i), &c, NULL);
		WRITE_ONCE(pf->vf_adding, false);
		if (r == -ENODEV)
			r = -EIO;
		if (r) {
			swib_vf_del_all(pf);
			return r;
		}
		pf->num_vfs++;
		/* as the PCI core names them; without them all else still works */
		vf = swib_hcas[vf_slot(pf, i)];
		snprintf(name, sizeof(name), "virtfn%d", i);
		if (sysfs_create_link(&pf->parent->kobj, &vf->pdev->dev.kobj, name) ||
		    sysfs_create_link(&vf->pdev->dev.kobj, &pf->parent->kobj, "physfn"))
			dev_warn(pf->parent, "no links to virtual function %d\n", i);
	}
	return 0;
}

/* A virtual function reads its GUIDs when its driver starts, not later. */
static int take_guids(struct swib_hca *h)
{
	struct swib_vf *v = &h->pf->vf[h->vf_num];
	int i, r = 0;

	mutex_lock(&swib_fab_mutex);
	if (v->node_guid && v->node_guid == h->pf->vf_refuse)
		r = -EINVAL;
	else if (v->node_guid && v->node_guid != h->pf->vf_ignore)
		h->node.guid = v->node_guid;
	for (i = 1; i <= h->node.nports; i++)
		h->node.port[i].guid[0] = cpu_to_be64(v->port_guid[i]);
	mutex_unlock(&swib_fab_mutex);
	return r;
}

/* The driver of a virtual function starts. */
int swib_vf_start(struct swib_hca *h)
{
	/* in add_vfs() it has been waited for, without the mutex */
	if (!READ_ONCE(h->pf->vf_adding))
		start_slowly(h->pf);
	return take_guids(h);
}

/*
 * The virtual functions go before the driver of the physical one, which calls
 * pci_disable_sriov() in its remove().  Who holds the mutex and waits for this
 * device's lock has deleted them already.
 */
void swib_vf_lose(struct swib_hca *h)
{
	while (READ_ONCE(h->num_vfs)) {
		if (mutex_trylock(&swib_cfg_mutex)) {
			swib_vf_del_all(h);
			mutex_unlock(&swib_cfg_mutex);
		} else {
			usleep_range(1000, 2000);
		}
	}
}

/* ---- sysfs files, as of the PCI core ------------------------------------ */

static ssize_t sriov_totalvfs_show(struct device *d, struct device_attribute *a, char *b)
{
	return sysfs_emit(b, "%d\n", SWIB_MAX_VFS);
}
static DEVICE_ATTR_RO(sriov_totalvfs);

/* A reader waits for a writer, as in the PCI core, where both hold the device's lock. */
static ssize_t sriov_numvfs_show(struct device *d, struct device_attribute *a, char *b)
{
	struct swib_hca *h = dev_get_drvdata(d);
	ssize_t n;

	if (mutex_lock_killable(&h->vf_lock))
		return -EINTR;
	n = sysfs_emit(b, "%u\n", h->num_vfs);
	mutex_unlock(&h->vf_lock);
	return n;
}

/* The rules of the PCI core: to 0 or from 0, and no more than there are. */
static ssize_t sriov_numvfs_store(struct device *d, struct device_attribute *a, const char *b,
				  size_t n)
{
	struct swib_hca *h = dev_get_drvdata(d);
	unsigned int num;
	int r;

	r = kstrtouint(b, 0, &num);
	if (r)
		return r;
	if (num > SWIB_MAX_VFS || h->pf)
		return -ERANGE;
	if (mutex_lock_killable(&h->vf_lock))
		return -EINTR;
	/* who removes this file holds the mutex and waits for us */
	if (!mutex_trylock(&swib_cfg_mutex)) {
		mutex_unlock(&h->vf_lock);
		return restart_syscall();
	}
	if (num && h->num_vfs && num != h->num_vfs)
		r = -EBUSY;
	else if (!num)
		swib_vf_del_all(h);
	else if (!h->num_vfs)
		r = add_vfs(h, num);
	if (r != -ENODEV)
		mutex_unlock(&swib_cfg_mutex);
	mutex_unlock(&h->vf_lock);
	return r ?: n;
}
static DEVICE_ATTR_RW(sriov_numvfs);

static ssize_t sriov_drivers_autoprobe_show(struct device *d, struct device_attribute *a, char *b)
{
	struct swib_hca *h = dev_get_drvdata(d);

	return sysfs_emit(b, "%d\n", !h->no_autoprobe);
}

static ssize_t sriov_drivers_autoprobe_store(struct device *d, struct device_attribute *a,
					     const char *b, size_t n)
{
	struct swib_hca *h = dev_get_drvdata(d);
	bool on;
	int r = kstrtobool(b, &on);

	if (!r)
		h->no_autoprobe = !on;
	return r ?: n;
}
static DEVICE_ATTR_RW(sriov_drivers_autoprobe);

static struct attribute *sriov_attrs[] = {
	&dev_attr_sriov_totalvfs.attr,
	&dev_attr_sriov_numvfs.attr,
	&dev_attr_sriov_drivers_autoprobe.attr,
	NULL
};

/* A PCI function has the files of the PCI core if it can. */
static umode_t sriov_visible(struct kobject *k, struct attribute *a, int i)
{
	struct device *d = kobj_to_dev(k);
	struct swib_hca *h = dev_get_drvdata(d);

	return dev_is_pci(d) || h->pf ? 0 : a->mode;
}

const struct attribute_group swib_sriov_group = {
	.attrs = sriov_attrs,
	.is_visible = sriov_visible,
};

/*
 * vf N refuse HEX, ignore HEX: a GUID that virtual functions do not take; room HEX: so many fit;
 * slow MS: how long their driver takes to start; killing the writer does not end that
 */
int swib_vf_command(char *a)
{
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	const char *what = swib_word(&a);
	unsigned int ms;
	u64 guid;

	if (!n || n->is_switch)
		return -ENODEV;
	if (!strcmp(what, "slow")) {
		if (kstrtouint(swib_word(&a), 10, &ms) || ms > SWIB_MAX_SLOW_MS || swib_too_much(a))
			return -EINVAL;
		WRITE_ONCE(swib_hcas[n->idx]->vf_slow, ms);
		return 0;
	}
	if (kstrtou64(swib_word(&a), 16, &guid) || swib_too_much(a))
		return -EINVAL;
	if (!strcmp(what, "refuse"))
		swib_hcas[n->idx]->vf_refuse = guid;
	else if (!strcmp(what, "ignore"))
		swib_hcas[n->idx]->vf_ignore = guid;
	else if (!strcmp(what, "room"))
		swib_hcas[n->idx]->vf_room = guid;
	else
		return -EINVAL;
	return 0;
}

/* An adapter goes, after its virtual functions. */
static int hca_leaves(struct notifier_block *nb, unsigned long event, void *h)
{
	swib_vf_del_all(h);
	return NOTIFY_DONE;
}

static struct notifier_block hca_nb = {
	.notifier_call = hca_leaves,
	.priority = 1,			/* before the pair of a bonded card is undone */
};

void swib_vf_init(void)
{
	raw_notifier_chain_register(&swib_hca_leaves, &hca_nb);
}

/* When no adapter is left. */
void swib_vf_exit(void)
{
	raw_notifier_chain_unregister(&swib_hca_leaves, &hca_nb);
}
