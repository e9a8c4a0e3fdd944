// SPDX-License-Identifier: GPL-2.0
/*
 * Adapters: slots of the fabric, their platform or PCI devices, and the
 * personalities (ib_device, Ethernet links) that a bound driver gives them.
 */
#include <linux/delay.h>
#include <linux/if_arp.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include "swib.h"

RAW_NOTIFIER_HEAD(swib_hca_leaves);

static struct platform_driver swib_platform_drivers[SWIB_DRIVERS];
static struct pci_driver swib_pci_driver;

static void plug(struct swib_hca *h, bool in)
{
	int i;

	mutex_lock(&swib_fab_mutex);
	for (i = 1; i <= h->node.nports; i++) {
		struct swib_port *p = &h->node.port[i];

		p->absent = !in || h->type[i] == SWIB_PORT_ETH;
		/* a virtual function without a GUID has no link */
		if (h->pf && (!p->guid[0] || h->pf->vf[h->vf_num].link_state[i] ==
						     IFLA_VF_LINK_STATE_DISABLE))
			p->absent = true;
		swib_link_eval(p);
		if (!in) {
			p->pi.lid = 0;
			p->pi.sm_lid = 0;
		}
	}
	mutex_unlock(&swib_fab_mutex);
}

/* The RDMA device; h->lock is held. */
int swib_hca_ib_up(struct swib_hca *h)
{
	struct swib_dev *d;
	int r;

	if (swib_lag_second(h))
		return 0;
	d = ib_alloc_device(swib_dev, ibdev);
	if (!d)
		return -ENOMEM;
	d->hca = h;
	d->ibdev.node_type = RDMA_NODE_IB_CA;
	d->ibdev.phys_port_cnt = h->node.nports;
	d->ibdev.num_comp_vectors = num_possible_cpus();
	d->ibdev.node_guid = cpu_to_be64(h->node.guid);
	d->ibdev.dev.parent = h->parent;
	strscpy(d->ibdev.node_desc, h->node.desc, sizeof(d->ibdev.node_desc));
	ib_set_device_ops(&d->ibdev, &swib_dev_ops);
	if (h->enhanced)
		ib_set_device_ops(&d->ibdev, &swib_ipoib_ops);
	mutex_lock(&swib_fab_mutex);
	h->node.dev = d;
	mutex_unlock(&swib_fab_mutex);
	r = ib_register_device(&d->ibdev, h->lag ? "swib_bond_%d" : "swib%d", NULL);
	if (r) {
		dev_err(h->parent, "ib_register_device: %d\n", r);
		mutex_lock(&swib_fab_mutex);
		h->node.dev = NULL;
		mutex_unlock(&swib_fab_mutex);
		ib_dealloc_device(&d->ibdev);
		return r;
	}
	WRITE_ONCE(h->dev, d);
	plug(h, true);
	return 0;
}

void swib_hca_ib_down(struct swib_hca *h)
{
	struct swib_dev *d = h->dev;
	int i;

	if (!d)
		return;
	plug(h, false);
	/* no event for a device that is on its way out */
	mutex_lock(&swib_fab_mutex);
	h->node.dev = NULL;
	/* ib_umad does not clear the bit of a device that is gone: firmware starts without it */
	for (i = 1; i <= h->node.nports; i++)
		h->node.port[i].pi.cap_mask &= ~cpu_to_be32(IB_PORT_SM);
	mutex_unlock(&swib_fab_mutex);
	WRITE_ONCE(h->dev, NULL);
	synchronize_rcu();
	ib_unregister_device(&d->ibdev);
	ib_dealloc_device(&d->ibdev);
}

/* The adapter appears with what its port types say; h->lock is held. */
static int personality_up(struct swib_hca *h)
{
	int i, r;

	for (i = 1; i <= h->node.nports; i++)
		if (h->type[i] == SWIB_PORT_ETH) {
			r = swib_eth_add(h, i);
			if (r)
				return r;
		}
	r = swib_hca_ib_up(h);
	for (i = 1; !r && i <= h->node.nports; i++)
		if (h->type[i] != SWIB_PORT_ETH && h->dev)
			swib_devlink_ib(h, i, &h->dev->ibdev);
	return r;
}

static void personality_down(struct swib_hca *h)
{
	int i;

	for (i = 1; i <= h->node.nports; i++)
		swib_devlink_clear(h, i);
	swib_hca_ib_down(h);
	for (i = 1; i <= h->node.nports; i++)
		swib_eth_del(h, i);
}

static bool types_allowed(struct swib_hca *h, const enum swib_port_type *t)
{
	if (h->node.nports < 2)
		return true;
	switch (h->rule) {
	case SWIB_TYPES_EQUAL:
		return (t[1] == SWIB_PORT_ETH) == (t[2] == SWIB_PORT_ETH);
	case SWIB_TYPES_ORDERED:
		return t[1] != SWIB_PORT_ETH || t[2] == SWIB_PORT_ETH;
	default:
		return true;
	}
}

/*
 * As in mlx4, a new port type takes the whole device away and brings it back.
 * Also as there (set_port_type, mlx4_check_port_params), a card that wants the
 * same type on both ports remembers what it refuses, and takes both when the
 * other port asks for the same.
 */
int swib_hca_set_type(struct swib_hca *h, int port, enum swib_port_type t)
{
	enum swib_port_type want[SWIB_MAX_HCA_PORTS + 1];
	int i, r = 0;

	mutex_lock(&h->lock);
	if (port < 1 || port > h->node.nports) {
		r = -EINVAL;
		goto out;
	}
	memcpy(want, h->type, sizeof(want));
	if (h->rule == SWIB_TYPES_EQUAL) {
		h->asked[port] = t + 1;
		for (i = 1; i <= h->node.nports; i++)
			if (h->asked[i])
				want[i] = h->asked[i] - 1;
	}
	want[port] = t;
	if (!types_allowed(h, want)) {
		r = -EOPNOTSUPP;
		goto out;
	}
	memset(h->asked, 0, sizeof(h->asked));
	if (memcmp(want, h->type, sizeof(want))) {
		personality_down(h);
		memcpy(h->type, want, sizeof(want));
		/* without a driver it counts from the next bind on */
		if (h->parent)
			r = personality_up(h);
	}
out:
	mutex_unlock(&h->lock);
	return r;
}

/* What the device has to be registered again for. */
static int set_flag(struct swib_hca *h, bool *flag, bool on)
{
	int r = 0;

	mutex_lock(&h->lock);
	if (*flag != on) {
		personality_down(h);
		*flag = on;
		if (h->parent)
			r = personality_up(h);
	}
	mutex_unlock(&h->lock);
	return r;
}

/*
 * A port without subnet management packets, as of a virtual function of mlx5: ib_core
 * makes no QP0 and ib_umad no issm device. Like a new type it takes the device away.
 */
int swib_hca_set_smi(struct swib_hca *h, int port, bool on)
{
	return set_flag(h, &h->node.port[port].no_smi, !on);
}

/* Whether the driver has IPoIB's queues; without connected mode. */
int swib_hca_set_enhanced(struct swib_hca *h, bool on)
{
	return set_flag(h, &h->enhanced, on);
}

void swib_hca_set_rule(struct swib_hca *h, enum swib_type_rule r)
{
	mutex_lock(&h->lock);
	h->rule = r;
	memset(h->asked, 0, sizeof(h->asked));
	mutex_unlock(&h->lock);
}

/* ---- sysfs files of the adapter's device ------------------------------- */

static const char * const type_names[] = {
	[SWIB_PORT_IB] = "ib",
	[SWIB_PORT_ETH] = "eth",
	[SWIB_PORT_AUTO] = "auto",
};

static ssize_t type_show(struct device *dev, char *b, int port)
{
	struct swib_hca *h = dev_get_drvdata(dev);

	if (h->type[port] == SWIB_PORT_AUTO)
		return sysfs_emit(b, "auto (ib)\n");
	return sysfs_emit(b, "%s\n", type_names[h->type[port]]);
}

static ssize_t type_store(struct device *dev, const char *b, size_t n, int port)
{
	struct swib_hca *h = dev_get_drvdata(dev);
	int t, r;

	t = sysfs_match_string(type_names, b);
	if (t < 0)
		return t;
	r = swib_hca_set_type(h, port, t);
	return r ?: n;
}

static ssize_t swib_port1_show(struct device *d, struct device_attribute *a, char *b)
{
	return type_show(d, b, 1);
}

static ssize_t swib_port1_store(struct device *d, struct device_attribute *a, const char *b,
				size_t n)
{
	return type_store(d, b, n, 1);
}
static DEVICE_ATTR_RW(swib_port1);

static ssize_t swib_port2_show(struct device *d, struct device_attribute *a, char *b)
{
	return type_show(d, b, 2);
}

static ssize_t swib_port2_store(struct device *d, struct device_attribute *a, const char *b,
				size_t n)
{
	return type_store(d, b, n, 2);
}
static DEVICE_ATTR_RW(swib_port2);

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

static int vf_slot(struct swib_hca *pf, int i)
{
	return SWIB_VF_BASE + pf->idx * SWIB_MAX_VFS + i;
}

/* swib_cfg_mutex is held */
static void del_vfs(struct swib_hca *pf)
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
			del_vfs(pf);
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
		del_vfs(h);
	else if (!h->num_vfs)
		r = add_vfs(h, num);
	if (r != -ENODEV)
		mutex_unlock(&swib_cfg_mutex);
	mutex_unlock(&h->vf_lock);
	return r ?: n;
}
static DEVICE_ATTR_RW(sriov_numvfs);

/* The vital product data that a PCI function would have. */
static ssize_t vpd_show(struct device *d, struct device_attribute *a, char *b)
{
	struct swib_hca *h = dev_get_drvdata(d);

	return sysfs_emit(b, "%s\n", h->vpd);
}
static DEVICE_ATTR_ADMIN_RO(vpd);

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

static struct attribute *swib_device_attrs[] = {
	&dev_attr_swib_port1.attr,
	&dev_attr_swib_port2.attr,
	&dev_attr_sriov_totalvfs.attr,
	&dev_attr_sriov_numvfs.attr,
	&dev_attr_sriov_drivers_autoprobe.attr,
	NULL
};

static umode_t swib_device_visible(struct kobject *k, struct attribute *a, int i)
{
	struct device *d = kobj_to_dev(k);
	struct swib_hca *h = dev_get_drvdata(d);

	if (a == &dev_attr_swib_port2.attr && h->node.nports < 2)
		return 0;
	/* a PCI function has the files of the PCI core if it can */
	if (i >= 2 && (dev_is_pci(d) || h->pf))
		return 0;
	return a->mode;
}

static const struct attribute_group swib_device_group = {
	.attrs = swib_device_attrs,
	.is_visible = swib_device_visible,
};

static const struct attribute_group *swib_device_groups[] = { &swib_device_group, NULL };

/* A file that is there when there is something in it, as the PCI core has it. */
int swib_hca_set_vpd(struct swib_hca *h, const char *text)
{
	bool had, has;
	int r = 0;

	mutex_lock(&h->lock);
	had = h->vpd[0];
	strscpy(h->vpd, text, sizeof(h->vpd));
	has = h->vpd[0];
	if (h->parent && !dev_is_pci(h->parent) && had != has) {
		if (has)
			r = device_create_file(h->parent, &dev_attr_vpd);
		else
			device_remove_file(h->parent, &dev_attr_vpd);
	}
	mutex_unlock(&h->lock);
	return r;
}

/* ---- drivers ----------------------------------------------------------- */

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

static int bind(struct swib_hca *h, struct device *parent)
{
	int r = 0;

	/* in add_vfs() it has been waited for, without the mutex */
	if (h->pf && !READ_ONCE(h->pf->vf_adding))
		start_slowly(h->pf);
	if (h->pf)
		r = take_guids(h);
	if (r)
		return r;
	r = swib_devlink_create(h, parent, swib_hca_set_type);
	if (r)
		return r;
	mutex_lock(&h->lock);
	h->parent = parent;
	dev_set_drvdata(parent, h);
	r = personality_up(h);
	if (!r && h->vpd[0] && !dev_is_pci(parent))
		r = device_create_file(parent, &dev_attr_vpd);
	if (r) {
		personality_down(h);
		h->parent = NULL;
	}
	mutex_unlock(&h->lock);
	if (r)
		swib_devlink_destroy(h);
	else
		swib_devlink_open(h);
	return r;
}

/*
 * The virtual functions go before the driver of the physical one, which calls
 * pci_disable_sriov() in its remove().  Who holds the mutex and waits for this
 * device's lock has deleted them already.
 */
static void lose_vfs(struct swib_hca *h)
{
	while (READ_ONCE(h->num_vfs)) {
		if (mutex_trylock(&swib_cfg_mutex)) {
			del_vfs(h);
			mutex_unlock(&swib_cfg_mutex);
		} else {
			usleep_range(1000, 2000);
		}
	}
}

static void unbind(struct swib_hca *h)
{
	lose_vfs(h);
	swib_devlink_close(h);
	mutex_lock(&h->lock);
	if (h->vpd[0] && !dev_is_pci(h->parent))
		device_remove_file(h->parent, &dev_attr_vpd);
	personality_down(h);
	h->parent = NULL;
	mutex_unlock(&h->lock);
	swib_devlink_destroy(h);
}

static int swib_platform_probe(struct platform_device *pdev);

#ifdef SWIB_REMOVE_VOID
static void swib_platform_remove(struct platform_device *pdev)
{
	unbind(platform_get_drvdata(pdev));
}
#else
static int swib_platform_remove(struct platform_device *pdev)
{
	unbind(platform_get_drvdata(pdev));
	return 0;
}
#endif

/*
 * One driver under several names: adapters are bound to the first, by the name
 * of their device, and to another by its driver_override.
 */
#define SWIB_PLATFORM_DRIVER(n) {				\
	.probe = swib_platform_probe,				\
	.remove = swib_platform_remove,				\
	.driver = { .name = n, .dev_groups = swib_device_groups },	\
}

static struct platform_driver swib_platform_drivers[SWIB_DRIVERS] = {
	[SWIB_DRV_SWIB] = SWIB_PLATFORM_DRIVER("swib"),
	[SWIB_DRV_MLX5] = SWIB_PLATFORM_DRIVER("mlx5_core"),
	[SWIB_DRV_MLX4] = SWIB_PLATFORM_DRIVER("mlx4_core"),
	[SWIB_DRV_BNXT] = SWIB_PLATFORM_DRIVER("bnxt_en"),
	[SWIB_DRV_ICE] = SWIB_PLATFORM_DRIVER("ice"),
	[SWIB_DRV_HNS3] = SWIB_PLATFORM_DRIVER("hns3"),
	[SWIB_DRV_HFI1] = SWIB_PLATFORM_DRIVER("hfi1"),
};

/* Which of the names a driver has, -1 for a driver of others. */
static int driver_of(const struct device_driver *d)
{
	int i;

	for (i = 0; i < SWIB_DRIVERS; i++)
		if (d == &swib_platform_drivers[i].driver)
			return i;
	return -1;
}

/* Whether a device is kept for a driver. */
static bool kept(struct platform_device *pdev)
{
#ifdef SWIB_DEVICE_OVERRIDE
	return device_has_driver_override(&pdev->dev);
#else
	return pdev->driver_override;
#endif
}

static int swib_platform_probe(struct platform_device *pdev)
{
	struct swib_hca **h = dev_get_platdata(&pdev->dev);

	/* pci_device_can_probe() */
	if ((*h)->pf && (*h)->pf->no_autoprobe && !kept(pdev))
		return -ENODEV;
	(*h)->driver = driver_of(pdev->dev.driver);
	return bind(*h, &pdev->dev);
}

/* swib_cfg_mutex is held */
int swib_hca_set_driver(struct swib_hca *h, const char *name)
{
	struct device *d;
	int i, r;

	for (i = 0; i < SWIB_DRIVERS; i++)
		if (!strcmp(name, swib_platform_drivers[i].driver.name))
			break;
	if (i == SWIB_DRIVERS)
		return -EINVAL;
	if (!h->pdev || h->pf)
		return -EBUSY;		/* a PCI function, or a virtual one */
	d = &h->pdev->dev;
	del_vfs(h);
	device_release_driver(d);
#ifdef SWIB_DEVICE_OVERRIDE
	r = device_set_driver_override(d, name);
#else
	r = driver_set_override(d, &h->pdev->driver_override, name, strlen(name));
#endif
	if (!r)
		r = device_attach(d);
	return r < 0 ? r : r == 0 ? -ENODEV : 0;
}

/* The port that the other end of a new adapter's cable is in, if any. */
static struct swib_port *default_peer(int idx, int port)
{
	unsigned int num = idx * swib_nports + port;

	switch (swib_topo) {
	case 0:
		if (!swib_hcas[idx ^ 1] || port > swib_hcas[idx ^ 1]->node.nports)
			return NULL;
		return &swib_hcas[idx ^ 1]->node.port[port];
	case 1:
		if (!swib_switches[0] || num > swib_switches[0]->nports)
			return NULL;
		return &swib_switches[0]->port[num];
	}
	return NULL;
}

/* A virtual function is a port of its own at the switch of its physical function. */
static struct swib_port *vf_peer(struct swib_hca *pf, int port)
{
	struct swib_port *up = pf->node.port[port].peer;
	int i;

	if (!up || !up->node->is_switch)
		return NULL;
	for (i = up->node->nports; i > 0; i--)
		if (!up->node->port[i].peer && !up->node->port[i].wire)
			return &up->node->port[i];
	return NULL;
}

static const struct swib_node_ops ops = {
	.plug = swib_eth_carrier,
};

/* pci is the device of a PCI adapter, which a driver binds already. */
int swib_hca_add(int idx, const struct swib_hca_config *c, struct device *pci)
{
	struct swib_hca *h;
	int i, r;

	if (idx < 0 || idx >= SWIB_MAX_HCA)
		return -EINVAL;
	if (swib_hcas[idx])
		return -EEXIST;
	if (c->nports < 1 || c->nports > SWIB_MAX_HCA_PORTS || c->pkeys < 32 ||
	    c->pkeys > SWIB_MAX_PKEYS || c->pkeys % 32)
		return -EINVAL;
	h = kzalloc(sizeof(*h), GFP_KERNEL);
	if (!h)
		return -ENOMEM;
	mutex_init(&h->lock);
	mutex_init(&h->vf_lock);
	h->idx = idx;
	h->no_cm = c->no_cm;
	h->enhanced = c->enhanced;
	h->pf = c->pf;
	h->vf_num = c->vf_num;
	h->node.ops = &ops;
	h->node.idx = idx;
	h->node.guid = c->guid ?: SWIB_GUID_BASE + ((u64)(idx + 1) << 8);
	if (c->desc[0])
		strscpy(h->node.desc, c->desc, sizeof(h->node.desc));
	else
		snprintf(h->node.desc, sizeof(h->node.desc), "swib%d", idx);
	r = swib_node_init(&h->node, c->nports, c->pkeys);
	if (r)
		goto free;
	mutex_lock(&swib_fab_mutex);
	swib_hcas[idx] = h;
	for (i = 1; i <= c->nports; i++) {
		struct swib_port *peer = c->pf ? vf_peer(c->pf, i) : default_peer(idx, i);

		h->node.port[i].absent = true;
		if (peer && !peer->peer)
			swib_cable(&h->node.port[i], peer);
	}
	mutex_unlock(&swib_fab_mutex);
	if (pci) {
		r = bind(h, pci);
		if (r)
			goto forget;
		return 0;
	}
	h->pdev = platform_device_register_data(NULL, "swib", idx, &h, sizeof(h));
	if (IS_ERR(h->pdev)) {
		r = PTR_ERR(h->pdev);
		goto forget;
	}
	return 0;
forget:
	mutex_lock(&swib_fab_mutex);
	swib_hcas[idx] = NULL;
	mutex_unlock(&swib_fab_mutex);
free:
	swib_node_free(&h->node);
	kfree(h);
	return r;
}

int swib_hca_del(int idx)
{
	struct swib_hca *h;

	if (idx < 0 || idx >= SWIB_MAX_HCA || !swib_hcas[idx])
		return -ENODEV;
	h = swib_hcas[idx];
	WRITE_ONCE(h->leaving, true);
	if (h->num_vfs)
		del_vfs(h);
	raw_notifier_call_chain(&swib_hca_leaves, 0, h);
	if (h->pdev)
		platform_device_unregister(h->pdev);
	else
		unbind(h);
	mutex_lock(&swib_fab_mutex);
	swib_hcas[idx] = NULL;
	mutex_unlock(&swib_fab_mutex);
	swib_node_free(&h->node);
	kfree(h);
	return 0;
}

static int swib_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct swib_hca_config c = {
		.nports = swib_nports,
		.pkeys = swib_pkeys,
		.no_cm = !swib_cm,
	};
	int i, r = -ENOSPC;

	mutex_lock(&swib_cfg_mutex);
	for (i = 0; i < SWIB_MAX_HCA; i++)
		if (!swib_hcas[i]) {
			r = swib_hca_add(i, &c, &pdev->dev);
			break;
		}
	mutex_unlock(&swib_cfg_mutex);
	return r;
}

static void swib_pci_remove(struct pci_dev *pdev)
{
	struct swib_hca *h = pci_get_drvdata(pdev);

	mutex_lock(&swib_cfg_mutex);
	swib_hca_del(h->idx);
	mutex_unlock(&swib_cfg_mutex);
}

/* QEMU's "edu" device stands for an adapter's PCI function. */
static const struct pci_device_id swib_pci_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};

static struct pci_driver swib_pci_driver = {
	.name = "swib",
	.id_table = swib_pci_ids,
	.probe = swib_pci_probe,
	.remove = swib_pci_remove,
	/* pci_register_driver puts this over the driver's own */
	.dev_groups = swib_device_groups,
};

/* ---- adapters without connected mode ----------------------------------- */

static struct swib_hca *hca_of(struct net_device *nd)
{
	struct device *parent = nd->dev.parent;

	if (!parent || !parent->driver ||
	    (driver_of(parent->driver) < 0 && parent->driver != &swib_pci_driver.driver))
		return NULL;
	return dev_get_drvdata(parent);
}

/*
 * A kernel without CONFIG_INFINIBAND_IPOIB_CM sets no RC flag in the hardware
 * address, and ib_ipoib refuses connected mode then.  The flag goes before anybody
 * sees the new link, its own or a child's.
 */
static void drop_rc_flag(struct net_device *nd)
{
	struct net_device *up = nd;
	struct swib_hca *h;
	u8 flags;

	if (!nd->dev.parent)
		up = __dev_get_by_index(dev_net(nd), dev_get_iflink(nd));
	h = up ? hca_of(up) : NULL;
	if (h && h->no_cm) {
		flags = nd->dev_addr[0] & ~0x80;
		dev_addr_mod(nd, 0, &flags, 1);
	}
}

static int netdev_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct net_device *nd = netdev_notifier_info_to_dev(ptr);

	if (event == NETDEV_POST_INIT && nd->type == ARPHRD_INFINIBAND)
		drop_rc_flag(nd);
	else if (event == NETDEV_UNREGISTER)
		swib_wire_netdev_gone(nd);
	return NOTIFY_DONE;
}

static struct notifier_block netdev_nb = { .notifier_call = netdev_event };

/*
 * rtnetlink lists the virtual functions of a link when the bus of its device
 * counts them, which the platform bus does not do by itself.
 */
#ifdef SWIB_NUM_VF
static int num_vf(struct device *d)
{
	struct swib_hca *h;

	if (!d->driver || driver_of(d->driver) < 0)
		return 0;
	h = dev_get_drvdata(d);
	return h ? h->num_vfs : 0;
}

static void count_vfs(bool on)
{
	platform_bus_type.num_vf = on ? num_vf : NULL;
}
#else
static void count_vfs(bool on)
{
}
#endif

int swib_adapters_init(bool pci)
{
	int i, r;

	r = register_netdevice_notifier(&netdev_nb);
	if (r)
		return r;
	/* also beside PCI adapters: "add" makes platform devices */
	for (i = 0; i < SWIB_DRIVERS; i++) {
		r = platform_driver_register(&swib_platform_drivers[i]);
		if (r)
			goto driver;
	}
	if (pci) {
		r = pci_register_driver(&swib_pci_driver);
		if (r)
			goto driver;
	}
	count_vfs(true);
	return 0;
driver:
	while (i--)
		platform_driver_unregister(&swib_platform_drivers[i]);
	unregister_netdevice_notifier(&netdev_nb);
	return r;
}

void swib_adapters_exit(bool pci)
{
	int i;

	count_vfs(false);
	if (pci)
		pci_unregister_driver(&swib_pci_driver);
	mutex_lock(&swib_cfg_mutex);
	for (i = 0; i < SWIB_MAX_HCA; i++)
		swib_hca_del(i);
	mutex_unlock(&swib_cfg_mutex);
	for (i = 0; i < SWIB_DRIVERS; i++)
		platform_driver_unregister(&swib_platform_drivers[i]);
	unregister_netdevice_notifier(&netdev_nb);
}
