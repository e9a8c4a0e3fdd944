// SPDX-License-Identifier: GPL-2.0
/*
 * The control file /sys/kernel/debug/swib/ctl: commands in, the state of the
 * fabric out.  README.md documents every command.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include "swib.h"

#define SWIB_MAX_WRITE	SZ_1M

static struct dentry *dir;

static int cmd_switch(char *a)
{
	unsigned int idx, ports;
	u64 guid = 0;
	char *w;

	if (kstrtouint(swib_word(&a), 10, &idx) || kstrtouint(swib_word(&a), 10, &ports))
		return -EINVAL;
	while (a && *a) {
		if (!strncmp(a, "desc=", 5))
			return swib_switch_add(idx, ports, guid, a + 5);
		w = swib_word(&a);
		if (!*w)
			break;
		if (strncmp(w, "guid=", 5) || kstrtou64(w + 5, 16, &guid))
			return -EINVAL;
	}
	return swib_switch_add(idx, ports, guid, NULL);
}

static int cmd_add(char *a)
{
	struct swib_hca_config c = {
		.nports = swib_nports,
		.pkeys = swib_pkeys,
		.no_cm = !swib_cm,
	};
	unsigned int idx, on;
	char *w;
	int r;

	if (kstrtouint(swib_word(&a), 10, &idx))
		return -EINVAL;
	while (a && *a) {
		if (!strncmp(a, "desc=", 5)) {		/* the rest of the line */
			strscpy(c.desc, a + 5, sizeof(c.desc));
			break;
		}
		w = swib_word(&a);
		if (!*w)
			break;
		if (!strncmp(w, "ports=", 6)) {
			r = kstrtouint(w + 6, 10, &c.nports);
		} else if (!strncmp(w, "pkeys=", 6)) {
			r = kstrtouint(w + 6, 10, &c.pkeys);
		} else if (!strncmp(w, "guid=", 5)) {
			r = kstrtou64(w + 5, 16, &c.guid);
		} else if (!strncmp(w, "cm=", 3)) {
			r = kstrtouint(w + 3, 10, &on);
			c.no_cm = !on;
		} else {
			r = -EINVAL;
		}
		if (r)
			return r;
	}
	return swib_hca_add(idx, &c, NULL);
}

/* del N, hN or sN */
static int cmd_del(char *a)
{
	char *w = swib_word(&a);
	struct swib_node *n;
	unsigned int idx;

	if (swib_too_much(a))
		return -EINVAL;
	if (kstrtouint(w, 10, &idx)) {
		n = swib_node_by_name(w);
		if (!n)
			return -ENODEV;
		if (n->is_switch) {
			swib_switch_del(n->idx);
			return 0;
		}
		idx = n->idx;
	}
	/* a PCI function goes by sysfs, a virtual one by its physical one's sriov_numvfs */
	if (idx < SWIB_MAX_HCA && swib_hcas[idx] && (!swib_hcas[idx]->pdev || swib_hcas[idx]->pf))
		return -EBUSY;
	return swib_hca_del(idx);
}

static int cmd_cable(char *a, bool in)
{
	struct swib_port *p = swib_port_by_name(swib_word(&a)), *q;

	if (!p)
		return -ENODEV;
	if (!in) {
		if (swib_too_much(a))
			return -EINVAL;
		swib_uncable(p);
		return 0;
	}
	if (p->wire)
		return -EBUSY;
	q = swib_port_by_name(swib_word(&a));
	if (!q || q == p)
		return -ENODEV;
	if (swib_too_much(a))
		return -EINVAL;
	if (q->wire)
		return -EBUSY;
	swib_cable(p, q);
	return 0;
}

/* link PORT up|down|stuck|training|flap [TIMES [MS]]; also the older "link HCA PORT up|down" */
static int cmd_link(char *a)
{
	unsigned int hca, times = 1, ms = 100;
	char *first = swib_word(&a), *verb, *w, name[32];
	struct swib_port *p;

	if (!kstrtouint(first, 10, &hca)) {
		snprintf(name, sizeof(name), "h%u/%s", hca, swib_word(&a));
		first = name;
	}
	p = swib_port_by_name(first);
	if (!p)
		return -ENODEV;
	verb = swib_word(&a);
	if (!strcmp(verb, "flap")) {
		w = swib_word(&a);
		if (*w && kstrtouint(w, 10, &times))
			return -EINVAL;
		w = swib_word(&a);
		if (*w && kstrtouint(w, 10, &ms))
			return -EINVAL;
		if (!times || times > 100000 || swib_too_much(a))
			return -EINVAL;
		swib_flap(p, times, ms);
		return 0;
	}
	if (swib_too_much(a))
		return -EINVAL;
	if (!strcmp(verb, "stuck")) {
		p->stuck = SWIB_PHYS_POLLING;
	} else if (!strcmp(verb, "training")) {
		p->stuck = SWIB_PHYS_TRAINING;
	} else if (!strcmp(verb, "up")) {
		p->stuck = 0;
		p->unplugged = false;
	} else if (!strcmp(verb, "down")) {
		p->unplugged = true;
	} else {
		return -EINVAL;
	}
	swib_link_eval(p);
	return 0;
}

/* wire PORT NETDEV, unwire PORT: a cable to another kernel */
static int cmd_wire(char *a, bool in)
{
	struct swib_port *p;
	char *w;

	mutex_lock(&swib_fab_mutex);
	p = swib_port_by_name(swib_word(&a));
	mutex_unlock(&swib_fab_mutex);
	if (!p)
		return -ENODEV;
	if (!in) {
		if (swib_too_much(a))
			return -EINVAL;
		swib_wire_detach(p);
		return 0;
	}
	w = swib_word(&a);
	if (!*w || swib_too_much(a))
		return -EINVAL;
	return swib_wire_attach(p, w);
}

static int cmd_node(const char *cmd, char *a)
{
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	char *v = swib_word(&a);

	if (!n)
		return -ENODEV;
	if (swib_too_much(a))
		return -EINVAL;
	if (!strcmp(cmd, "slow"))
		return kstrtouint(v, 10, &n->slow_ms);
	if (!strcmp(v, "on"))
		n->silent = true;
	else if (!strcmp(v, "off"))
		n->silent = false;
	else
		return -EINVAL;
	return 0;
}

/* guid PORT GUID: another port GUID, e.g. one that is in use elsewhere */
static int cmd_guid(char *a)
{
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	u64 guid;

	if (!p)
		return -ENODEV;
	if (kstrtou64(swib_word(&a), 16, &guid) || !guid || swib_too_much(a))
		return -EINVAL;
	p->guid[0] = cpu_to_be64(guid);
	swib_port_event(p, IB_EVENT_GID_CHANGE);
	return 0;
}

/* mkey PORT|SWITCH KEY [PROTECT [LEASE]] */
static int cmd_mkey(char *a)
{
	char *name = swib_word(&a), *w;
	struct swib_port *p = swib_port_by_name(name);
	struct swib_node *n = p ? p->node : swib_node_by_name(name);
	u8 protect = 1;
	u16 lease = 0;
	u64 key;

	if (n && n->is_switch)
		p = &n->port[0];		/* one for all ports */
	if (!p)
		return -ENODEV;
	if (kstrtou64(swib_word(&a), 16, &key))
		return -EINVAL;
	w = swib_word(&a);
	if (*w && (kstrtou8(w, 10, &protect) || protect > 3))
		return -EINVAL;
	w = swib_word(&a);
	if (*w && kstrtou16(w, 10, &lease))
		return -EINVAL;
	if (swib_too_much(a))
		return -EINVAL;
	p->pi.mkey = cpu_to_be64(key);
	p->pi.mkeyprot_resv_lmc = (p->pi.mkeyprot_resv_lmc & 0x3f) | protect << 6;
	p->pi.mkey_lease_period = cpu_to_be16(lease);
	p->mkey_expires = 0;
	return 0;
}

/* mtu PORT 256..4096: the largest that the port can, from the next link up on */
static int cmd_mtu(char *a)
{
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	unsigned int mtu;
	int e;

	if (!p)
		return -ENODEV;
	if (kstrtouint(swib_word(&a), 10, &mtu) || swib_too_much(a))
		return -EINVAL;
	for (e = IB_MTU_256; e <= IB_MTU_4096; e++)
		if (mtu == 128 << e)
			break;
	if (e > IB_MTU_4096)
		return -EINVAL;
	p->pi.inittypereply_mtucap = (p->pi.inittypereply_mtucap & 0xf0) | e;
	p->pi.neighbormtu_mastersmsl = (p->pi.neighbormtu_mastersmsl & 0xf) | e << 4;
	if (swib_phys(p) == SWIB_PHYS_LINKUP)
		swib_port_bounce(p);
	return 0;
}

/* speed PORT 4xHDR: the widest and fastest that the port can */
static int cmd_speed(char *a)
{
	static const char * const widths[] = { "1x", "4x", "8x", "12x", "2x" };
	static const char * const speeds[] = {
		"SDR", "DDR", "QDR", "", "FDR", "EDR", "HDR", "NDR",
	};
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	char *w = swib_word(&a), *name = strchr(w, 'x'), width[4];
	int i, k;

	if (!p)
		return -ENODEV;
	if (!name || !*++name || name - w >= sizeof(width) || swib_too_much(a))
		return -EINVAL;
	strscpy(width, w, name - w + 1);
	i = match_string(widths, ARRAY_SIZE(widths), width);
	k = match_string(speeds, ARRAY_SIZE(speeds), name);
	if (i < 0 || k < 0)
		return -EINVAL;
	swib_port_speed(p, BIT(i), BIT(k));	/* in the order of the bits in PortInfo */
	return 0;
}

static int cmd_type(char *a)
{
	static const char * const names[] = { "ib", "eth", "auto" };
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	int t = match_string(names, ARRAY_SIZE(names), swib_word(&a));

	if (!p || p->node->is_switch)
		return -ENODEV;
	if (t < 0)
		return t;
	if (swib_too_much(a))
		return -EINVAL;
	return swib_hca_set_type(swib_hcas[p->node->idx], p->num, t);
}

/* smi PORT off, on: whether ib_core sees a QP0 at the port */
static int cmd_smi(char *a)
{
	static const char * const names[] = { "off", "on" };
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	int on = match_string(names, ARRAY_SIZE(names), swib_word(&a));

	if (!p || p->node->is_switch)
		return -ENODEV;
	if (on < 0 || swib_too_much(a))
		return -EINVAL;
	return swib_hca_set_smi(swib_hcas[p->node->idx], p->num, on);
}

/* ipoib NODE enhanced, plain: whose queues the IPoIB links of an adapter use */
static int cmd_ipoib(char *a)
{
	static const char * const names[] = { "plain", "enhanced" };
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	int on = match_string(names, ARRAY_SIZE(names), swib_word(&a));

	if (!n || n->is_switch)
		return -ENODEV;
	if (on < 0 || swib_too_much(a))
		return -EINVAL;
	return swib_hca_set_enhanced(swib_hcas[n->idx], on);
}

/* vpd N TEXT: the rest of the line is the text of the device's file vpd */
static int cmd_vpd(char *a)
{
	struct swib_node *n = swib_node_by_name(swib_word(&a));

	if (!n || n->is_switch)
		return -ENODEV;
	return swib_hca_set_vpd(swib_hcas[n->idx], a ? skip_spaces(a) : "");
}

/* smdisabled PORT on, off: IsSMDisabled of the capability mask; no process may set IsSM then */
static int cmd_smdisabled(char *a)
{
	static const char * const names[] = { "off", "on" };
	struct swib_port *p = swib_port_by_name(swib_word(&a));
	int on = match_string(names, ARRAY_SIZE(names), swib_word(&a));

	if (!p || p->node->is_switch)
		return -ENODEV;
	if (on < 0 || swib_too_much(a))
		return -EINVAL;
	if (on)
		p->pi.cap_mask |= cpu_to_be32(IB_PORT_SM_DISABLED);
	else
		p->pi.cap_mask &= ~cpu_to_be32(IB_PORT_SM_DISABLED);
	return 0;
}

/* types N any, equal or ordered: which types the card takes for its ports */
static int cmd_types(char *a)
{
	static const char * const names[] = { "any", "equal", "ordered" };
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	int r = match_string(names, ARRAY_SIZE(names), swib_word(&a));

	if (!n || n->is_switch)
		return -ENODEV;
	if (r < 0)
		return r;
	if (swib_too_much(a))
		return -EINVAL;
	swib_hca_set_rule(swib_hcas[n->idx], r);
	return 0;
}

static int command(char *line)
{
	char *args = strim(line), *cmd = swib_word(&args);
	int r = -EINVAL;

	if (!*cmd || *cmd == '#')
		return 0;
	args = args ? skip_spaces(args) : "";
	/* these take swib_fab_mutex themselves */
	if (!strcmp(cmd, "switch"))
		return cmd_switch(args);
	if (!strcmp(cmd, "add"))
		return cmd_add(args);
	if (!strcmp(cmd, "del"))
		return cmd_del(args);
	if (!strcmp(cmd, "type"))
		return cmd_type(args);
	if (!strcmp(cmd, "types"))
		return cmd_types(args);
	if (!strcmp(cmd, "driver"))
		return swib_driver_command(args);
	if (!strcmp(cmd, "smi"))
		return cmd_smi(args);
	if (!strcmp(cmd, "ipoib"))
		return cmd_ipoib(args);
	if (!strcmp(cmd, "vpd"))
		return cmd_vpd(args);
	if (!strcmp(cmd, "lag"))
		return swib_lag_command(args);
	if (!strcmp(cmd, "wire") || !strcmp(cmd, "unwire"))
		return cmd_wire(args, *cmd == 'w');
	mutex_lock(&swib_fab_mutex);
	if (!strcmp(cmd, "cable") || !strcmp(cmd, "uncable"))
		r = cmd_cable(args, *cmd == 'c');
	else if (!strcmp(cmd, "link"))
		r = cmd_link(args);
	else if (!strcmp(cmd, "silent") || !strcmp(cmd, "slow"))
		r = cmd_node(cmd, args);
	else if (!strcmp(cmd, "guid"))
		r = cmd_guid(args);
	else if (!strcmp(cmd, "mkey"))
		r = cmd_mkey(args);
	else if (!strcmp(cmd, "mtu"))
		r = cmd_mtu(args);
	else if (!strcmp(cmd, "speed"))
		r = cmd_speed(args);
	else if (!strcmp(cmd, "smdisabled"))
		r = cmd_smdisabled(args);
	else if (!strcmp(cmd, "vf"))
		r = swib_vf_command(args);
	else if (!strcmp(cmd, "dcb"))
		r = swib_dcb_command(args);
	else if (!strcmp(cmd, "fault"))
		r = swib_fault_command(args);
	mutex_unlock(&swib_fab_mutex);
	return r;
}

/* One command per line; the first that fails ends the write. */
static ssize_t ctl_write(struct file *fp, const char __user *ub, size_t n, loff_t *off)
{
	char *text, *rest, *line;
	int r = 0;

	if (n > SWIB_MAX_WRITE)
		return -E2BIG;
	text = kvmalloc(n + 1, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	if (copy_from_user(text, ub, n)) {
		kvfree(text);
		return -EFAULT;
	}
	text[n] = 0;
	rest = text;
	mutex_lock(&swib_cfg_mutex);
	while (!r && (line = strsep(&rest, "\n")))
		r = command(line);
	mutex_unlock(&swib_cfg_mutex);
	kvfree(text);
	return r ?: n;
}

static void show_node(struct seq_file *s, struct swib_node *n)
{
	const char *name = n->is_switch ? "switch" : "hca";
	struct net_device *nd;
	int i;

	for (i = n->is_switch ? 0 : 1; i <= n->nports; i++) {
		struct swib_port *p = &n->port[i], *q = p->peer;

		if (i && n->is_switch && !q && !p->wire)
			continue;
		seq_printf(s, "%s%d/%d guid %016llx phys %d state %d lid %u smlid %u tx %llu rx %llu disc %llu rc %llu rcmax %llu",
			   name, n->idx, i, be64_to_cpu(p->guid[0]), swib_phys(p), swib_state(p),
			   swib_lid(p), be16_to_cpu(p->pi.sm_lid), p->tx_pkts, p->rx_pkts,
			   p->discards, p->rc_msgs, p->rc_max);
		if (q)
			seq_printf(s, " peer %s%d/%d", q->node->is_switch ? "switch" : "hca",
				   q->node->idx, q->num);
		else if (p->wire)
			seq_printf(s, " wire %s", p->wire->up ? "up" : "down");
		nd = n->is_switch ? NULL : swib_eth_netdev(swib_hcas[n->idx], i);
		if (nd) {
			swib_dscp_show(s, nd);
			dev_put(nd);
		}
		seq_putc(s, '\n');
	}
}

static int ctl_show(struct seq_file *s, void *v)
{
	int i;

	mutex_lock(&swib_cfg_mutex);
	mutex_lock(&swib_fab_mutex);
	for (i = 0; i < SWIB_MAX_SWITCH; i++)
		if (swib_switches[i])
			show_node(s, swib_switches[i]);
	for (i = 0; i < SWIB_MAX_HCA; i++)
		if (swib_hcas[i])
			show_node(s, &swib_hcas[i]->node);
	swib_fault_show(s);
	mutex_unlock(&swib_fab_mutex);
	mutex_unlock(&swib_cfg_mutex);
	return 0;
}

static int ctl_open(struct inode *i, struct file *f)
{
	return single_open(f, ctl_show, NULL);
}

static const struct file_operations ctl_fops = {
	.owner = THIS_MODULE,
	.open = ctl_open,
	.read = seq_read,
	.write = ctl_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void swib_control_init(void)
{
	dir = debugfs_create_dir("swib", NULL);
	debugfs_create_file("ctl", 0600, dir, NULL, &ctl_fops);
}

void swib_control_exit(void)
{
	debugfs_remove_recursive(dir);
}
