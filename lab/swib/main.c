// SPDX-License-Identifier: GPL-2.0
/* The module: parameters, start and end. */
#include "swib.h"

static unsigned int nhca = 2;
module_param(nhca, uint, 0444);
MODULE_PARM_DESC(nhca, "adapters at start (2)");

module_param_named(nports, swib_nports, uint, 0444);
MODULE_PARM_DESC(nports, "ports of an adapter, 1 or 2 (1)");

module_param_named(topo, swib_topo, uint, 0444);
MODULE_PARM_DESC(topo, "1: one switch, 0: cables between adapters 2n and 2n+1, 2: no cables (1)");

module_param_named(pkeys, swib_pkeys, uint, 0444);
MODULE_PARM_DESC(pkeys, "size of the P_Key tables, a multiple of 32 up to 512 (32)");

module_param_named(cm, swib_cm, bool, 0444);
MODULE_PARM_DESC(cm, "IPoIB has connected mode (Y)");

module_param_named(host, swib_host, uint, 0444);
MODULE_PARM_DESC(host, "number that goes into the GUIDs, for fabrics of several kernels (0)");

static bool pci;
module_param(pci, bool, 0444);
MODULE_PARM_DESC(pci, "one adapter per QEMU edu PCI device instead of nhca platform devices (N)");

module_param_named(roce, swib_roce, bool, 0444);
MODULE_PARM_DESC(roce, "Ethernet ports have RDMA of their own (Y)");

static bool apptrust;
module_param(apptrust, bool, 0444);
MODULE_PARM_DESC(apptrust, "Ethernet ports have a table of what they trust, from Linux 6.2 on (N)");

module_param_named(debug, swib_debug, bool, 0644);
MODULE_PARM_DESC(debug, "log dropped packets (N)");

static int make_switch(void)
{
	unsigned int ports = clamp(nhca * swib_nports, 32u, (unsigned int)SWIB_MAX_SW_PORTS);

	return swib_topo == 1 ? swib_switch_add(0, ports, 0, NULL) : 0;
}

static int make_adapters(void)
{
	struct swib_hca_config c = {
		.nports = swib_nports,
		.pkeys = swib_pkeys,
		.no_cm = !swib_cm,
	};
	int i, r = 0;

	for (i = 0; !r && !pci && i < nhca; i++)
		r = swib_hca_add(i, &c, NULL);
	return r;
}

/* Ends what swib_init has started, as far as it came. */
static void stop(void)
{
	int i;

	mutex_lock(&swib_cfg_mutex);
	for (i = 0; i < SWIB_MAX_SWITCH; i++)
		swib_switch_del(i);
	mutex_unlock(&swib_cfg_mutex);
	swib_fault_exit();
	swib_delivery_exit();
	if (swib_wq)
		destroy_workqueue(swib_wq);
	if (swib_cqwq)
		destroy_workqueue(swib_cqwq);
}

static int __init swib_init(void)
{
	int r;

	if (swib_nports < 1 || swib_nports > SWIB_MAX_HCA_PORTS || nhca > SWIB_MAX_HCA ||
	    swib_topo > 2 || swib_host > 0xffff || swib_pkeys < 32 ||
	    swib_pkeys > SWIB_MAX_PKEYS || swib_pkeys % 32)
		return -EINVAL;
	if (swib_topo == 1 && nhca * swib_nports > SWIB_MAX_SW_PORTS) {
		pr_err("swib: one switch has %d ports; give a topology of several\n",
		       SWIB_MAX_SW_PORTS);
		return -EINVAL;
	}
	r = swib_dcb_setup(apptrust);
	if (r)
		return r;
	swib_delivery_init();
	swib_fault_init();
	r = -ENOMEM;
	swib_wq = alloc_ordered_workqueue("swib", WQ_MEM_RECLAIM);
	swib_cqwq = alloc_workqueue("swib_cq", WQ_MEM_RECLAIM, 0);
	if (!swib_wq || !swib_cqwq)
		goto fail;
	/* a PCI adapter that is there already looks for the switch */
	mutex_lock(&swib_cfg_mutex);
	r = make_switch();
	mutex_unlock(&swib_cfg_mutex);
	if (r)
		goto fail;
	r = swib_lag_init();
	if (r)
		goto fail;
	r = swib_drivers_init(pci);
	if (r)
		goto lag;
	mutex_lock(&swib_cfg_mutex);
	r = make_adapters();
	mutex_unlock(&swib_cfg_mutex);
	if (r) {
		swib_drivers_exit(pci);
		goto lag;
	}
	swib_control_init();
	return 0;
lag:
	swib_lag_exit();
fail:
	stop();
	return r;
}

static void __exit swib_exit(void)
{
	swib_control_exit();
	swib_drivers_exit(pci);
	swib_lag_exit();
	stop();
}

module_init(swib_init);
module_exit(swib_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Software InfiniBand fabric for test labs");
