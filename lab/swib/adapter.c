// SPDX-License-Identifier: GPL-2.0
/*
 * Adapters: slots of the fabric, and the personalities (ib_device, Ethernet links)
 * that a bound driver gives them.
 */
#include <linux/pci.h>
#include <linux/platform_device.h>
#include "swib.h"

RAW_NOTIFIER_HEAD(swib_hca_leaves);

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
	ib_set_device_ops(&d->ibdev, &swib_queue_ops);
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

/* ---- sysfs files of the port types ------------------------------------- */

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

static struct attribute *port_attrs[] = {
	&dev_attr_swib_port1.attr,
	&dev_attr_swib_port2.attr,
	NULL
};

static umode_t port_visible(struct kobject *k, struct attribute *a, int i)
{
	struct swib_hca *h = dev_get_drvdata(kobj_to_dev(k));

	return i < h->node.nports ? a->mode : 0;
}

const struct attribute_group swib_port_group = {
	.attrs = port_attrs,
	.is_visible = port_visible,
};

/* ---- vital product data ------------------------------------------------ */

/* The vital product data that a PCI function would have. */
static ssize_t vpd_show(struct device *d, struct device_attribute *a, char *b)
{
	struct swib_hca *h = dev_get_drvdata(d);

	return sysfs_emit(b, "%s\n", h->vpd);
}
static DEVICE_ATTR_ADMIN_RO(vpd);

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

/* ---- beginning and end ------------------------------------------------- */

/* A driver starts. */
int swib_hca_bind(struct swib_hca *h, struct device *parent)
{
	int r;

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

void swib_hca_unbind(struct swib_hca *h)
{
	swib_devlink_close(h);
	mutex_lock(&h->lock);
	if (h->vpd[0] && !dev_is_pci(h->parent))
		device_remove_file(h->parent, &dev_attr_vpd);
	personality_down(h);
	h->parent = NULL;
	mutex_unlock(&h->lock);
	swib_devlink_destroy(h);
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
	.rx = swib_adapter_rx,
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
		r = swib_hca_bind(h, pci);
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
	raw_notifier_call_chain(&swib_hca_leaves, 0, h);
	if (h->pdev)
		platform_device_unregister(h->pdev);
	else
		swib_hca_unbind(h);
	mutex_lock(&swib_fab_mutex);
	swib_hcas[idx] = NULL;
	mutex_unlock(&swib_fab_mutex);
	swib_node_free(&h->node);
	kfree(h);
	return 0;
}
