// SPDX-License-Identifier: GPL-2.0
/*
 * The adapter's devlink instance, by which the port type can be read and set
 * as with mlx4 (`devlink port set platform/swib.0/1 type eth`).
 */
#include <net/devlink.h>
#include "swib.h"

struct swib_devlink {
	struct swib_hca *hca;
	swib_set_type set_type;
	struct devlink_port port[SWIB_MAX_HCA_PORTS + 1];
};

static int port_type_set(struct devlink_port *dp, enum devlink_port_type type)
{
	struct swib_devlink *l = devlink_priv(dp->devlink);

	switch (type) {
	case DEVLINK_PORT_TYPE_IB:
		return l->set_type(l->hca, dp->index, SWIB_PORT_IB);
	case DEVLINK_PORT_TYPE_ETH:
		return l->set_type(l->hca, dp->index, SWIB_PORT_ETH);
	case DEVLINK_PORT_TYPE_AUTO:
		return l->set_type(l->hca, dp->index, SWIB_PORT_AUTO);
	default:
		return -EOPNOTSUPP;
	}
}

#ifdef SWIB_DEVLINK_PORT_OPS
static const struct devlink_ops ops = {};

static const struct devlink_port_ops port_ops = {
	.port_type_set = port_type_set,
};

static int port_register(struct devlink *dl, struct devlink_port *dp, int i)
{
	return devl_port_register_with_ops(dl, dp, i, &port_ops);
}
#else
static const struct devlink_ops ops = {
	.port_type_set = port_type_set,
};

static int port_register(struct devlink *dl, struct devlink_port *dp, int i)
{
	return devl_port_register(dl, dp, i);
}
#endif

/* Before the personality comes up; h->lock is not held. */
int swib_devlink_create(struct swib_hca *h, struct device *parent, swib_set_type set_type)
{
	struct devlink_port_attrs attrs = { .flavour = DEVLINK_PORT_FLAVOUR_PHYSICAL };
	struct swib_devlink *l;
	struct devlink *dl;
	int i, r = 0;

	dl = devlink_alloc(&ops, sizeof(*l), parent);
	if (!dl)
		return -ENOMEM;
	l = devlink_priv(dl);
	l->hca = h;
	l->set_type = set_type;
	devl_lock(dl);
	for (i = 1; !r && i <= h->node.nports; i++) {
		attrs.phys.port_number = i;
		devlink_port_attrs_set(&l->port[i], &attrs);
		r = port_register(dl, &l->port[i], i);
	}
	if (r)
		for (i -= 2; i >= 1; i--)
			devl_port_unregister(&l->port[i]);
	devl_unlock(dl);
	if (r) {
		devlink_free(dl);
		return r;
	}
	h->devlink = l;
	return 0;
}

/* When the personality is up: users may come. */
void swib_devlink_open(struct swib_hca *h)
{
	devlink_register(priv_to_devlink(h->devlink));
}

/* Before the personality goes. */
void swib_devlink_close(struct swib_hca *h)
{
	devlink_unregister(priv_to_devlink(h->devlink));
}

/* When it is gone. */
void swib_devlink_destroy(struct swib_hca *h)
{
	struct swib_devlink *l = h->devlink;
	struct devlink *dl;
	int i;

	if (!l)
		return;
	dl = priv_to_devlink(l);
	h->devlink = NULL;
	devl_lock(dl);
	for (i = 1; i <= h->node.nports; i++)
		devl_port_unregister(&l->port[i]);
	devl_unlock(dl);
	devlink_free(dl);
}

void swib_devlink_ib(struct swib_hca *h, int port, struct ib_device *d)
{
	if (h->devlink)
		devlink_port_type_ib_set(&h->devlink->port[port], d);
}

/* Before the link is registered, on kernels that want it so. */
void swib_devlink_eth_early(struct swib_hca *h, int port, struct net_device *nd)
{
#ifdef SWIB_DEVLINK_PORT_OPS
	if (h->devlink)
		SET_NETDEV_DEVLINK_PORT(nd, &h->devlink->port[port]);
#endif
}

void swib_devlink_eth(struct swib_hca *h, int port, struct net_device *nd)
{
#ifndef SWIB_DEVLINK_PORT_OPS
	if (h->devlink)
		devlink_port_type_eth_set(&h->devlink->port[port], nd);
#endif
}

void swib_devlink_clear(struct swib_hca *h, int port)
{
	if (h->devlink)
		devlink_port_type_clear(&h->devlink->port[port]);
}
