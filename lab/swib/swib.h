/* SPDX-License-Identifier: GPL-2.0 */
/*
 * swib - a software InfiniBand fabric for test labs
 *
 * Terms: a node is a switch or an adapter (HCA) of the fabric; a port belongs to
 * a node and may have a peer, the port at the other end of its cable.  An adapter
 * is a slot that outlives its platform or PCI device and its ib_device, so that
 * a driver unbind, or a change of the port type, leaves its cables in place.
 *
 * Locks, outermost first:
 *   swib_cfg_mutex  which adapters and switches exist
 *   swib_hca.lock   the personality of one adapter (ib_device, Ethernet links)
 *   swib_fab_mutex  the fabric: port state, tables, queue pairs, delivery
 *   txq_lock        the queue of packets that have been posted, in delivery.c (may
 *                   be taken in any context)
 */
#ifndef SWIB_H
#define SWIB_H

#include "types.h"

/* ---- what the files have for each other, from the bottom up -------------
 *
 * A file calls what is declared in its own section and in those before it.  What
 * has to be called from below is a hook of node.c or an operation of an object:
 * swib_node_ops, swib_far_end_ops, swib_set_type.  A test keeps it so.
 */

/* node.c */
extern struct mutex swib_cfg_mutex;
extern struct mutex swib_fab_mutex;
extern struct workqueue_struct *swib_wq;
extern struct workqueue_struct *swib_cqwq;
extern struct swib_hca *swib_hcas[SWIB_MAX_HCA];
extern struct swib_node *swib_switches[SWIB_MAX_SWITCH];
extern unsigned int swib_nports;
extern unsigned int swib_topo;
extern unsigned int swib_pkeys;
extern unsigned int swib_host;
extern bool swib_debug;
extern bool swib_cm;
extern bool swib_roce;
/* A struct swib_node is about to be freed; swib_fab_mutex is held. */
extern struct raw_notifier_head swib_node_gone;
/* Meets what leaves a port; true: the packet has been dealt with. */
extern bool (*swib_fault_hook)(struct swib_port *p, struct swib_pkt *k);
char *swib_word(char **s);
bool swib_too_much(char *a);
struct swib_port *swib_port_by_name(const char *name);
struct swib_node *swib_node_by_name(const char *name);

#define swib_dbg(fmt, ...)						\
do {									\
	if (swib_debug)							\
		pr_info("swib: " fmt, ##__VA_ARGS__);			\
} while (0)

/* link.c */
int swib_node_init(struct swib_node *n, unsigned int nports, unsigned int pkeys);
void swib_node_free(struct swib_node *n);
void swib_link_eval(struct swib_port *p);
bool swib_port_ready(const struct swib_port *p);
void swib_port_bounce(struct swib_port *p);
void swib_port_speed(struct swib_port *p, u8 width, u8 speed);
void swib_port_event(struct swib_port *p, enum ib_event_type t);
void swib_cable(struct swib_port *p, struct swib_port *q);
void swib_uncable(struct swib_port *p);
void swib_flap(struct swib_port *p, unsigned int times, unsigned int ms);

/* completion.c */
extern struct xarray swib_qps;
void swib_cq_add(struct ib_cq *ibcq, struct ib_wc *wc, bool solicited);
void swib_cq_work(struct work_struct *w);
int swib_receive(struct swib_qp *qp, struct swib_port *p, struct swib_pkt *k);
void swib_send_done(struct swib_pkt *k, enum ib_wc_status st);
void swib_rq_flush(struct swib_qp *qp);
void swib_qp_error(struct swib_qp *qp);

/* transit.c */
void swib_port_tx(struct swib_port *p, struct swib_pkt *k);
void swib_port_rx_remote(struct swib_port *p, struct swib_pkt *k);
void swib_delay(struct swib_port *from, struct swib_pkt *k, unsigned int ms);
struct swib_port *swib_route(struct swib_port *p, u16 dlid, bool *remote);
void swib_forget_packets(struct list_head *q, struct swib_node *n);
void swib_transit_forget(struct swib_node *n);
void swib_transit_exit(void);

/* rc.c */
void swib_rc_rx(struct swib_port *p, struct swib_pkt *k);
bool swib_rc_send(struct swib_pkt *k);
void swib_rc_exit(void);

/* delivery.c */
void swib_post(struct swib_pkt *k);
void swib_kick(void);
struct swib_pkt *swib_mad_packet(struct swib_port *src, u16 slid, u16 dlid);
void swib_adapter_rx(struct swib_port *p, struct swib_pkt *k);
void swib_forget_qp(struct swib_qp *qp);
void swib_delivery_init(void);
void swib_delivery_exit(void);

/* fault.c */
struct seq_file;
int swib_fault_command(char *args);
void swib_fault_show(struct seq_file *s);
void swib_fault_init(void);
void swib_fault_exit(void);

/* wire.c */
int swib_wire_attach(struct swib_port *p, const char *name);
void swib_wire_detach(struct swib_port *p);
void swib_wire_netdev_gone(struct net_device *nd);

/* trap.c */
void swib_trap_link(struct swib_node *n);
void swib_trap_local(struct swib_port *p, bool desc);
void swib_trap_mkey(struct swib_port *p, const struct ib_smp *s);

/* pma.c */
enum swib_mad_result {
	SWIB_MAD_PASS,			/* not for the agent */
	SWIB_MAD_REPLY,			/* turned into a response */
	SWIB_MAD_DROP,			/* M_Key violation: no answer */
};

#define SWIB_MAD_UNSUP_METHOD	cpu_to_be16(0x08)
#define SWIB_MAD_UNSUP_ATTR	cpu_to_be16(0x0c)
#define SWIB_MAD_BAD_FIELD	cpu_to_be16(0x1c)

enum swib_mad_result swib_pma(struct swib_node *n, struct swib_port *in, struct ib_mad *m);

/* sma.c */
enum swib_mad_result swib_sma(struct swib_node *n, struct swib_port *in, struct ib_smp *s,
			      bool trusted);

/* switch.c */
int swib_switch_add(int idx, unsigned int nports, u64 guid, const char *desc);
void swib_switch_del(int idx);

/* dscp.c */
#if IS_ENABLED(CONFIG_DCB)
bool swib_dscp_any(const struct swib_dcb *d);
int swib_dscp_set(struct net_device *nd, struct dcb_app *app);
int swib_dscp_del(struct net_device *nd, struct dcb_app *app);
void swib_dscp_start(struct net_device *nd);
void swib_dscp_show(struct seq_file *s, struct net_device *nd);
#else
static inline void swib_dscp_start(struct net_device *nd) { }
static inline void swib_dscp_show(struct seq_file *s, struct net_device *nd) { }
#endif

/* dcb.c */
int swib_dcb_setup(bool apptrust);
void swib_dcb_init(struct net_device *nd);
int swib_dcb_command(char *args);

/* devlink.c */
typedef int (*swib_set_type)(struct swib_hca *h, int port, enum swib_port_type t);
#if IS_ENABLED(CONFIG_NET_DEVLINK)
int swib_devlink_create(struct swib_hca *h, struct device *parent, swib_set_type set_type);
void swib_devlink_open(struct swib_hca *h);
void swib_devlink_close(struct swib_hca *h);
void swib_devlink_destroy(struct swib_hca *h);
void swib_devlink_ib(struct swib_hca *h, int port, struct ib_device *d);
void swib_devlink_eth_early(struct swib_hca *h, int port, struct net_device *nd);
void swib_devlink_eth(struct swib_hca *h, int port, struct net_device *nd);
void swib_devlink_clear(struct swib_hca *h, int port);
#else
static inline int swib_devlink_create(struct swib_hca *h, struct device *parent,
				      swib_set_type set_type) { return 0; }
static inline void swib_devlink_open(struct swib_hca *h) { }
static inline void swib_devlink_close(struct swib_hca *h) { }
static inline void swib_devlink_destroy(struct swib_hca *h) { }
static inline void swib_devlink_ib(struct swib_hca *h, int port, struct ib_device *d) { }
static inline void swib_devlink_eth_early(struct swib_hca *h, int port, struct net_device *nd) { }
static inline void swib_devlink_eth(struct swib_hca *h, int port, struct net_device *nd) { }
static inline void swib_devlink_clear(struct swib_hca *h, int port) { }
#endif

/* ether.c */
int swib_eth_add(struct swib_hca *h, int port);
void swib_eth_del(struct swib_hca *h, int port);
struct net_device *swib_eth_netdev(struct swib_hca *h, int port);
struct net_device *swib_eth_active(struct swib_hca *h, int port);
void swib_eth_carrier(struct swib_port *p);
bool swib_eth_is(struct net_device *nd);

/* queues.c */
extern const struct ib_device_ops swib_queue_ops;

/* device.c */
extern const struct ib_device_ops swib_dev_ops;

/* ipoib.c */
extern const struct ib_device_ops swib_ipoib_ops;

/* adapter.c */
struct swib_hca_config {
	unsigned int nports;
	unsigned int pkeys;
	u64 guid;			/* 0: by index */
	struct swib_hca *pf;		/* makes it a virtual function */
	int vf_num;
	bool no_cm, enhanced;
	char desc[64];
};

/* A struct swib_hca is about to be removed; swib_cfg_mutex is held. */
extern struct raw_notifier_head swib_hca_leaves;
extern const struct attribute_group swib_port_group;
int swib_hca_add(int idx, const struct swib_hca_config *c, struct device *pci);
int swib_hca_del(int idx);
int swib_hca_set_type(struct swib_hca *h, int port, enum swib_port_type t);
int swib_hca_ib_up(struct swib_hca *h);
void swib_hca_ib_down(struct swib_hca *h);
int swib_hca_set_smi(struct swib_hca *h, int port, bool on);
int swib_hca_set_enhanced(struct swib_hca *h, bool on);
int swib_hca_set_vpd(struct swib_hca *h, const char *text);
void swib_hca_set_rule(struct swib_hca *h, enum swib_type_rule r);
int swib_hca_bind(struct swib_hca *h, struct device *parent);
void swib_hca_unbind(struct swib_hca *h);

/* vf.c */
extern const struct attribute_group swib_sriov_group;
int swib_vf_start(struct swib_hca *h);
void swib_vf_del_all(struct swib_hca *pf);
void swib_vf_lose(struct swib_hca *h);
int swib_vf_command(char *args);
void swib_vf_init(void);
void swib_vf_exit(void);

/* driver.c */
int swib_driver_command(char *args);
int swib_drivers_init(bool pci);
void swib_drivers_exit(bool pci);

/* lag.c */
int swib_lag_command(char *args);
int swib_lag_init(void);
void swib_lag_exit(void);

/* control.c */
void swib_control_init(void);
void swib_control_exit(void);

#endif
