/* SPDX-License-Identifier: GPL-2.0 */
/* The objects of the module, their constants and the fields of PortInfo. */
#ifndef SWIB_TYPES_H
#define SWIB_TYPES_H

#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/dcbnl.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_smi.h>
#include <rdma/ib_verbs.h>

#define SWIB_MAX_HCA		1024
#define SWIB_MAX_SWITCH		256
#define SWIB_MAX_HCA_PORTS	2
#define SWIB_MAX_SW_PORTS	254
#define SWIB_MAX_PKEYS		512
#define SWIB_GUIDS		8
#define SWIB_LFT		0xc000
#define SWIB_MFT		4096
#define SWIB_MFT_POS		16	/* 16 ports each */
#define SWIB_MAX_SGE		32
#define SWIB_MAX_VFS		8
#define SWIB_MAX_SLOW_MS	60000
#define SWIB_VF_BASE		512	/* slot of the first virtual function */
#define SWIB_GUID_BASE		(0x0253574942000000ULL + ((u64)swib_host << 24))
#define SWIB_MCLID		0xc000
#define SWIB_PERM		0xffff	/* permissive LID */
#define SWIB_MC_QPN		0xffffff
#define SWIB_MAX_HOPS		64
#define SWIB_EXT_OFF		30	/* LinkSpeedExtEnabled: extended speeds are off */
#define SWIB_EXT_ALL		31	/* as supported */

enum {				/* PortPhysicalState */
	SWIB_PHYS_POLLING = 2,
	SWIB_PHYS_DISABLED = 3,
	SWIB_PHYS_TRAINING = 4,
	SWIB_PHYS_LINKUP = 5,
};

enum swib_port_type {
	SWIB_PORT_IB,
	SWIB_PORT_ETH,
	SWIB_PORT_AUTO,		/* becomes IB */
};

/*
 * The name under which an adapter's driver is bound.  Its Ethernet ports answer
 * DCB as the ports of that driver do.
 */
enum swib_driver {
	SWIB_DRV_SWIB,
	SWIB_DRV_MLX5,
	SWIB_DRV_MLX4,
	SWIB_DRV_BNXT,
	SWIB_DRV_ICE,
	SWIB_DRV_HNS3,
	SWIB_DRV_HFI1,			/* Omni-Path */
	SWIB_DRIVERS,
};

/* What a card's firmware has, or does, of DCB. */
enum swib_dcb_flag {
	SWIB_DCB_NODSCP = 1,		/* no priorities by DSCP */
	SWIB_DCB_NOBUFFERS = 2,		/* mlx5: no receive buffers to set */
	SWIB_DCB_MANAGED = 4,		/* it keeps DCBX to itself */
	SWIB_DCB_CEE = 8,		/* starts in CEE mode */
	SWIB_DCB_TRUSTS = 16,		/* mlx5: trusts DSCP from the start */
};

/* Which types the two ports of a card can have, as in generations of mlx4. */
enum swib_type_rule {
	SWIB_TYPES_ANY,
	SWIB_TYPES_EQUAL,		/* the same for both */
	SWIB_TYPES_ORDERED,		/* not Ethernet before InfiniBand */
};

struct swib_dev;
struct swib_devlink;
struct swib_eth;
struct swib_hca;
struct swib_node;
struct swib_qp;
struct swib_pkt;
struct swib_port;

/* What kinds of nodes do differently; swib_fab_mutex is held.  NULL: nothing, but for rx. */
struct swib_node_ops {
	void (*rx)(struct swib_port *in, struct swib_pkt *k);	/* a packet arrives */
	void (*link_changed)(struct swib_node *n);
	void (*plug)(struct swib_port *p);	/* it may be in another state than before */
};

struct swib_far_end;

struct swib_far_end_ops {
	void (*tx)(struct swib_far_end *e, struct swib_pkt *k);
	void (*notify)(struct swib_far_end *e);	/* the port's own state may have changed */
	void (*detach)(struct swib_port *p);
};

/* The end of a cable in another kernel. */
struct swib_far_end {
	const struct swib_far_end_ops *ops;
	bool up;
};

struct swib_port {
	struct swib_node *node;
	struct swib_port *peer;
	struct swib_far_end *wire;	/* instead of a peer: to another kernel */
	u8 num;
	bool absent;			/* no driver, or not an InfiniBand port now */
	bool unplugged;			/* by the control file */
	u8 stuck;			/* the physical state that is kept: Polling, Training */
	bool disabled;			/* by the SM: PortPhysicalState Disabled */
	bool no_smi;			/* ib_core sees no QP0 */
	struct ib_port_info pi;
	/* what PortInfo has behind the kernel's struct of it */
	u16 cap_mask2;
	u8 ext_supported, ext_active;	/* LinkSpeedExt: FDR 1, EDR 2, HDR 4, NDR 8 */
	u8 ext_enabled;			/* SWIB_EXT_OFF: none */
	u16 *pkey;
	__be64 guid[SWIB_GUIDS];
	u8 (*sl2vl)[8];			/* by input port */
	u8 vlarb[4][64];
	unsigned long mkey_expires;	/* jiffies, 0: the lease timer does not run */
	u64 tx_pkts, tx_bytes, rx_pkts, rx_bytes, discards, mtx, mrx;
	u64 rc_msgs, rc_max;		/* RC messages sent, and the longest in bytes */
	u8 link_downed;
	struct swib_qp *qp0, *qp1;	/* adapter ports only */
	/* flapping */
	struct delayed_work flap;
	unsigned int flap_left, flap_ms;
};

struct swib_node {
	const struct swib_node_ops *ops;
	bool is_switch;
	bool silent;			/* SMA and PMA do not answer */
	unsigned int slow_ms;		/* they answer after this time */
	int idx;
	u8 nports;
	u16 pkeys;			/* size of the P_Key tables */
	u64 guid;
	char desc[64];
	struct swib_dev *dev;		/* adapters, NULL while not registered */
	struct swib_port *port;		/* nports + 1 */
	/* switches */
	u16 lft_top;
	u8 swinfo_def[3];
	u8 life;
	bool psc;			/* PortStateChange */
	u8 *lft;
	u16 (*mft)[SWIB_MFT_POS];
};

struct swib_dev {
	struct ib_device ibdev;
	struct swib_hca *hca;
};

/* a virtual function on an Ethernet port */
struct swib_eth_vf {
	u8 mac[ETH_ALEN];
	u16 vlan;
	u8 qos;
	__be16 proto;
	u32 min_rate, max_rate;		/* Mbit/s */
	bool spoofchk, trusted;
};

struct swib_vf {
	u64 node_guid;
	u64 port_guid[SWIB_MAX_HCA_PORTS + 1];
	u32 link_state[SWIB_MAX_HCA_PORTS + 1];
	struct swib_eth_vf eth[SWIB_MAX_HCA_PORTS + 1];
};

/* DCB of an Ethernet port */
struct swib_dcb {
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct ieee_maxrate maxrate;
	struct dcbnl_buffer buffer;
	u8 dcbx;
	u8 trust[8];
	int ntrust;
	/* the card's own table, by DSCP: priority, SWIB_NO_PRIO for none */
	u8 dscp[64];
	int ndscp;
	u16 cable;			/* metres */
	bool ets_set;			/* since the driver started */
	bool manual;			/* somebody has set the buffers */
};

#define SWIB_NO_PRIO		0xff

/* the link of an Ethernet port */
struct swib_eth {
	struct list_head list;
	struct net_device *nd;
	struct swib_hca *hca;
	int port;
	struct swib_dcb dcb;
	u32 rx_ring, tx_ring;		/* sizes that nothing depends on */
	struct delayed_work plug;	/* sets the carrier by the plug again */
};

struct swib_hca {
	int idx;
	enum swib_driver driver;
	unsigned int dcb_flags;
	/* RoCE LAG: the other port of the card, and whether both are one device now */
	struct swib_hca *lag_peer;
	bool lag;
	bool active;			/* its Ethernet link is the active slave */
	bool no_autoprobe;		/* drivers of functions bind by hand */
	bool no_cm;			/* IPoIB has no connected mode */
	bool enhanced;			/* the driver has IPoIB's queues, as mlx5 */
	struct platform_device *pdev;	/* ours, NULL when the parent is a PCI device */
	struct device *parent;		/* while a driver is bound */
	struct mutex lock;		/* personality */
	struct swib_node node;
	struct swib_dev *dev;
	struct swib_devlink *devlink;
	struct swib_eth *eth[SWIB_MAX_HCA_PORTS + 1];
	enum swib_port_type type[SWIB_MAX_HCA_PORTS + 1];
	enum swib_type_rule rule;
	u8 asked[SWIB_MAX_HCA_PORTS + 1];	/* type + 1, 0: none */
	unsigned int num_vfs;
	u64 vf_refuse, vf_ignore;	/* GUIDs that its virtual functions do not take */
	unsigned int vf_room;		/* more functions than these do not fit; 0: all do */
	unsigned int vf_slow;		/* ms that the driver of a function takes to start */
	bool vf_adding;			/* add_vfs() registers one */
	bool leaving;			/* it is being removed */
	struct mutex vf_lock;		/* reading and writing sriov_numvfs */
	struct swib_vf vf[SWIB_MAX_VFS];
	struct swib_hca *pf;		/* of a virtual function */
	int vf_num;
	char vpd[128];			/* text of the sysfs file vpd, without it empty */
};

struct swib_cq {
	struct ib_cq ibcq;
	spinlock_t lock;		/* ring and notify */
	struct ib_wc *ring;
	u32 size, head, tail;
	int notify;
	struct work_struct work;
};

struct swib_rqe {
	u64 wr_id;
	int nsge;
	struct ib_sge *sge;
};

struct swib_rq {
	spinlock_t lock;		/* everything below */
	struct swib_rqe *e;
	struct ib_sge *sges;
	u32 size, head, tail, max_sge;
};

struct swib_srq {
	struct ib_srq ibsrq;
	struct swib_rq rq;
	u32 limit;
};

struct swib_pd {
	struct ib_pd ibpd;
};

struct swib_ah {
	struct ib_ah ibah;
	struct rdma_ah_attr attr;
};

struct swib_mc {
	struct list_head list;
	union ib_gid gid;
	u16 lid;
};

struct swib_qp {
	struct ib_qp ibqp;
	struct swib_dev *dev;
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;
	enum ib_qp_state state;
	bool sig_all;
	struct swib_rq rq;
	struct list_head mcs;
	struct list_head stalled;	/* RC packets that wait for a receive buffer */
	unsigned int rnr_tries;
	/* connections to other kernels: a PSN for each message, go back N */
	struct list_head unacked;
	u32 tx_psn, rx_psn;
	bool resend;
	unsigned int rc_tries;
	unsigned long rc_since;		/* jiffies of the last progress */
	u8 port;
};

/* A packet; the destination decides what the fields mean. */
struct swib_pkt {
	struct list_head list;
	struct swib_port *src;		/* where it enters the fabric */
	struct swib_qp *sqp;		/* NULL when nobody waits for its completion */
	unsigned long due;		/* jiffies, of delayed packets */
	u64 wr_id;
	bool signaled, rc, ack, has_imm, solicited, has_grh;
	u8 ack_status;
	u32 psn;
	u16 slid, dlid, pkey;
	u8 sl;
	u8 hops;
	unsigned int slow_ms;		/* what the answering node adds */
	u32 dqpn, sqpn, qkey;
	__be32 imm;
	struct ib_grh grh;
	u32 len;
	u8 data[];
};

static inline struct swib_dev *to_swib_dev(struct ib_device *d)
{
	return container_of(d, struct swib_dev, ibdev);
}

static inline struct swib_eth *swib_to_eth(struct net_device *nd)
{
	return *(struct swib_eth **)netdev_priv(nd);
}

/* Of a bonded card the device is the first adapter's; the second has none of its own. */
static inline bool swib_lag_second(const struct swib_hca *h)
{
	return h->lag && h->lag_peer && h->lag_peer->idx < h->idx;
}

static inline struct swib_qp *to_swib_qp(struct ib_qp *q)
{
	return container_of(q, struct swib_qp, ibqp);
}

static inline struct swib_cq *to_swib_cq(struct ib_cq *q)
{
	return container_of(q, struct swib_cq, ibcq);
}

static inline struct swib_srq *to_swib_srq(struct ib_srq *q)
{
	return container_of(q, struct swib_srq, ibsrq);
}

static inline struct swib_ah *to_swib_ah(struct ib_ah *a)
{
	return container_of(a, struct swib_ah, ibah);
}

static inline struct swib_port *swib_dev_port(struct swib_dev *d, u32 n)
{
	return &d->hca->node.port[n];
}

static inline bool swib_port_is_eth(struct swib_dev *d, u32 n)
{
	return d->hca->type[n] == SWIB_PORT_ETH;
}

static inline int swib_state(const struct swib_port *p)
{
	return p->pi.linkspeed_portstate & 0xf;
}

static inline int swib_phys(const struct swib_port *p)
{
	return p->pi.portphysstate_linkdown >> 4;
}

/* The speed in use, as one bit of enum ib_port_speed. */
static inline u8 swib_speed(const struct swib_port *p)
{
	return p->ext_active ? p->ext_active << 4 : p->pi.linkspeedactive_enabled >> 4;
}

static inline u16 swib_lid(const struct swib_port *p)
{
	return be16_to_cpu(p->pi.lid);
}

static inline int swib_lmc(const struct swib_port *p)
{
	return p->pi.mkeyprot_resv_lmc & 7;
}

static inline bool swib_has_lid(const struct swib_port *p, u16 lid)
{
	u16 mask = ~((1 << swib_lmc(p)) - 1);

	return swib_lid(p) && (swib_lid(p) & mask) == (lid & mask);
}

static inline void swib_set_state(struct swib_port *p, int s)
{
	p->pi.linkspeed_portstate = (p->pi.linkspeed_portstate & 0xf0) | s;
}

static inline void swib_set_phys(struct swib_port *p, int s)
{
	p->pi.portphysstate_linkdown = (p->pi.portphysstate_linkdown & 0x0f) | (s << 4);
}

/* Whether a queue pair takes packets. */
static inline bool swib_qp_receiving(const struct swib_qp *qp)
{
	return qp->state >= IB_QPS_RTR && qp->state != IB_QPS_ERR;
}

#endif
