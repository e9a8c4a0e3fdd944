// SPDX-License-Identifier: GPL-2.0
/*
 * The drivers of adapters: one on the platform bus under several names, one on
 * PCI; and what they do to the network devices above them.
 */
#include <linux/if_arp.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include "swib.h"

static const struct attribute_group *device_groups[] = {
	&swib_port_group,
	&swib_sriov_group,
	NULL
};

/* ---- platform devices -------------------------------------------------- */

static void platform_unbind(struct swib_hca *h)
{
	swib_vf_lose(h);
	swib_hca_unbind(h);
}

static int swib_platform_probe(struct platform_device *pdev);

#ifdef SWIB_REMOVE_VOID
static void swib_platform_remove(struct platform_device *pdev)
{
	platform_unbind(platform_get_drvdata(pdev));
}
#else
static int swib_platform_remove(struct platform_device *pdev)
{
	platform_unbind(platform_get_drvdata(pdev));
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
	.driver = { .name = n, .dev_groups = device_groups },	\
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
	int r;

	/* pci_device_can_probe() */
	if ((*h)->pf && (*h)->pf->no_autoprobe && !kept(pdev))
		return -ENODEV;
	(*h)->driver = driver_of(pdev->dev.driver);
	r = (*h)->pf ? swib_vf_start(*h) : 0;
	return r ?: swib_hca_bind(*h, &pdev->dev);
}

/* swib_cfg_mutex is held */
static int set_driver(struct swib_hca *h, const char *name)
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
	swib_vf_del_all(h);
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

/* driver N NAME: rebinds the driver of an adapter under that name */
int swib_driver_command(char *a)
{
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	const char *name = swib_word(&a);

	if (!n || n->is_switch)
		return -ENODEV;
	if (swib_too_much(a))
		return -EINVAL;
	return set_driver(swib_hcas[n->idx], name);
}

/* ---- PCI devices ------------------------------------------------------- */

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
	.dev_groups = device_groups,
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

int swib_drivers_init(bool pci)
{
	int i, r;

	r = register_netdevice_notifier(&netdev_nb);
	if (r)
		return r;
	swib_vf_init();
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
	swib_vf_exit();
	unregister_netdevice_notifier(&netdev_nb);
	return r;
}

void swib_drivers_exit(bool pci)
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
	swib_vf_exit();
	unregister_netdevice_notifier(&netdev_nb);
}
