// SPDX-License-Identifier: GPL-2.0
/*
 * Cables to ports of other kernels.  The other end is reached through a network
 * device that carries frames in order; each frame holds a piece of one packet.
 * A hello in both directions, with a random epoch of each side, says that the
 * other kernel is there and its port is plugged in; packets of an earlier life of
 * either side do not get through.
 */
#include <linux/if_arp.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include "swib.h"

#define SWIB_WIRE_PROTO		0x88b5	/* IEEE 802 local experimental */
#define SWIB_WIRE_MAGIC		0x73776962
#define SWIB_WIRE_VERSION	1
#define SWIB_WIRE_MAX		(128 * 1024)
#define SWIB_HELLO_MS		200
#define SWIB_DEAD_MS		10000	/* a busy machine may starve the other kernel for long */

enum { WIRE_HELLO = 1, WIRE_DATA = 2, WIRE_BYE = 3 };

enum {
	WIRE_UP = 1,			/* of a hello: the port is plugged in */
	WIRE_RC = 2,
	WIRE_ACK = 4,
	WIRE_GRH = 8,
	WIRE_IMM = 16,
	WIRE_SOLICITED = 32,
};

struct wire_hdr {
	__be32 magic;
	u8 version;
	u8 type;
	__be16 flags;
	__be32 epoch;			/* of the sender */
	__be32 peer_epoch;		/* of the receiver, as the sender knows it */
	__be32 off, total;		/* of a packet's data */
	__be16 slid, dlid, pkey;
	u8 sl, hops;
	__be32 dqpn, sqpn, qkey, imm, psn;
	u8 status;
	u8 pad[7];
	struct ib_grh grh;
} __packed;

#define SWIB_WIRE_MIN_MTU	((unsigned int)sizeof(struct wire_hdr) + 256)

struct swib_wire {
	struct swib_far_end end;
	struct list_head list;
	struct swib_port *port;
	struct net_device *nd;		/* NULL: it is gone, the cable hangs in the air */
	netdevice_tracker tracker;
	struct packet_type pt;
	u32 epoch, peer_epoch;
	unsigned long heard;
	struct delayed_work hello;
	struct sk_buff_head rxq;
	struct work_struct rx;
	struct swib_pkt *part;		/* being put together */
	u32 part_have;
};

static LIST_HEAD(wires);		/* swib_fab_mutex */

static struct swib_wire *to_wire(struct swib_far_end *e)
{
	return container_of(e, struct swib_wire, end);
}

static void send_frame(struct swib_wire *w, const struct wire_hdr *h, const void *data, u32 len)
{
	struct net_device *nd = w->nd;
	struct sk_buff *skb;

	if (!nd)
		return;
	skb = alloc_skb(LL_RESERVED_SPACE(nd) + sizeof(*h) + len + nd->needed_tailroom, GFP_KERNEL);
	if (!skb)
		return;
	skb_reserve(skb, LL_RESERVED_SPACE(nd));
	skb_reset_network_header(skb);
	skb_put_data(skb, h, sizeof(*h));
	if (len)
		skb_put_data(skb, data, len);
	skb->dev = nd;
	skb->protocol = htons(SWIB_WIRE_PROTO);
	if (dev_hard_header(skb, nd, SWIB_WIRE_PROTO, nd->broadcast, nd->dev_addr, skb->len) < 0) {
		kfree_skb(skb);
		return;
	}
	dev_queue_xmit(skb);
}

static void header(struct swib_wire *w, struct wire_hdr *h, u8 type)
{
	memset(h, 0, sizeof(*h));
	h->magic = cpu_to_be32(SWIB_WIRE_MAGIC);
	h->version = SWIB_WIRE_VERSION;
	h->type = type;
	h->epoch = cpu_to_be32(w->epoch);
	h->peer_epoch = cpu_to_be32(w->peer_epoch);
}

static void send_hello(struct swib_wire *w)
{
	struct wire_hdr h;

	header(w, &h, WIRE_HELLO);
	h.flags = cpu_to_be16(swib_port_ready(w->port) ? WIRE_UP : 0);
	send_frame(w, &h, NULL, 0);
}

/*
 * The port's own state may have changed; swib_fab_mutex is held.  Told at once: the
 * far end must see a link that goes down and up again.
 */
static void notify(struct swib_far_end *e)
{
	send_hello(to_wire(e));
}

static void hello_work(struct work_struct *work)
{
	struct swib_wire *w = container_of(work, struct swib_wire, hello.work);

	mutex_lock(&swib_fab_mutex);
	send_hello(w);
	if (w->end.up && time_after(jiffies, w->heard + msecs_to_jiffies(SWIB_DEAD_MS))) {
		w->end.up = false;
		swib_link_eval(w->port);
	}
	mutex_unlock(&swib_fab_mutex);
	queue_delayed_work(swib_wq, &w->hello, msecs_to_jiffies(SWIB_HELLO_MS));
}

/* A packet leaves the kernel; swib_fab_mutex is held. */
static void wire_tx(struct swib_far_end *e, struct swib_pkt *k)
{
	struct swib_wire *w = to_wire(e);
	u32 off = 0, max, n;
	struct wire_hdr h;
	u16 flags = 0;

	if (!w->nd)
		return;
	/* the MTU may have shrunk since; frames that are too long get lost */
	max = max(w->nd->mtu, SWIB_WIRE_MIN_MTU) - sizeof(h);
	header(w, &h, WIRE_DATA);
	flags |= k->rc ? WIRE_RC : 0;
	flags |= k->ack ? WIRE_ACK : 0;
	flags |= k->has_grh ? WIRE_GRH : 0;
	flags |= k->has_imm ? WIRE_IMM : 0;
	flags |= k->solicited ? WIRE_SOLICITED : 0;
	h.flags = cpu_to_be16(flags);
	h.total = cpu_to_be32(k->len);
	h.slid = cpu_to_be16(k->slid);
	h.dlid = cpu_to_be16(k->dlid);
	h.pkey = cpu_to_be16(k->pkey);
	h.sl = k->sl;
	h.hops = k->hops;
	h.dqpn = cpu_to_be32(k->dqpn);
	h.sqpn = cpu_to_be32(k->sqpn);
	h.qkey = cpu_to_be32(k->qkey);
	h.imm = k->imm;
	h.psn = cpu_to_be32(k->psn);
	h.status = k->ack_status;
	h.grh = k->grh;
	do {
		n = min(k->len - off, max);
		h.off = cpu_to_be32(off);
		send_frame(w, &h, k->data + off, n);
		off += n;
	} while (off < k->len);
}

static void rx_hello(struct swib_wire *w, const struct wire_hdr *h)
{
	u32 epoch = be32_to_cpu(h->epoch);
	bool known = be32_to_cpu(h->peer_epoch) == w->epoch;
	bool up = known && (be16_to_cpu(h->flags) & WIRE_UP);

	if (epoch != w->peer_epoch) {		/* it has been born again */
		w->peer_epoch = epoch;
		if (w->end.up) {
			w->end.up = false;
			swib_link_eval(w->port);
		}
		known = false;
		up = false;
	}
	w->heard = jiffies;
	if (up != w->end.up) {
		w->end.up = up;
		swib_link_eval(w->port);
	}
	if (!known)
		send_hello(w);
}

static struct swib_pkt *new_packet(const struct wire_hdr *h)
{
	u32 total = be32_to_cpu(h->total);
	u16 flags = be16_to_cpu(h->flags);
	struct swib_pkt *k;

	if (total > SWIB_WIRE_MAX)
		return NULL;
	k = kvzalloc(struct_size(k, data, total), GFP_KERNEL);
	if (!k)
		return NULL;
	k->len = total;
	k->rc = flags & WIRE_RC;
	k->ack = flags & WIRE_ACK;
	k->has_grh = flags & WIRE_GRH;
	k->has_imm = flags & WIRE_IMM;
	k->solicited = flags & WIRE_SOLICITED;
	k->slid = be16_to_cpu(h->slid);
	k->dlid = be16_to_cpu(h->dlid);
	k->pkey = be16_to_cpu(h->pkey);
	k->sl = h->sl;
	k->hops = min_t(u8, h->hops, SWIB_MAX_HOPS);
	k->dqpn = be32_to_cpu(h->dqpn);
	k->sqpn = be32_to_cpu(h->sqpn);
	k->qkey = be32_to_cpu(h->qkey);
	k->imm = h->imm;
	k->psn = be32_to_cpu(h->psn);
	k->ack_status = h->status;
	k->grh = h->grh;
	return k;
}

static void rx_data(struct swib_wire *w, const struct wire_hdr *h, struct sk_buff *skb)
{
	u32 off = be32_to_cpu(h->off), len = skb->len - sizeof(*h);

	if (!w->end.up || be32_to_cpu(h->epoch) != w->peer_epoch ||
	    be32_to_cpu(h->peer_epoch) != w->epoch || swib_phys(w->port) != SWIB_PHYS_LINKUP)
		return;
	if (!off) {
		kvfree(w->part);
		w->part = new_packet(h);
		w->part_have = 0;
	}
	if (!w->part || off != w->part_have)
		return;
	/* a frame may have been padded to the length of the shortest */
	len = min(len, w->part->len - off);
	if (skb_copy_bits(skb, sizeof(*h), w->part->data + off, len))
		return;
	w->part_have += len;
	if (w->part_have < w->part->len)
		return;
	swib_port_rx_remote(w->port, w->part);
	kvfree(w->part);
	w->part = NULL;
}

static void rx_work(struct work_struct *work)
{
	struct swib_wire *w = container_of(work, struct swib_wire, rx);
	struct wire_hdr h;
	struct sk_buff *skb;

	mutex_lock(&swib_fab_mutex);
	while ((skb = skb_dequeue(&w->rxq))) {
		if (!skb_copy_bits(skb, 0, &h, sizeof(h)) &&
		    h.magic == cpu_to_be32(SWIB_WIRE_MAGIC) && h.version == SWIB_WIRE_VERSION) {
			switch (h.type) {
			case WIRE_HELLO:
				rx_hello(w, &h);
				break;
			case WIRE_DATA:
				rx_data(w, &h, skb);
				break;
			case WIRE_BYE:
				w->peer_epoch = 0;
				w->end.up = false;
				swib_link_eval(w->port);
				break;
			}
		}
		kfree_skb(skb);
	}
	mutex_unlock(&swib_fab_mutex);
}

static int wire_rcv(struct sk_buff *skb, struct net_device *nd, struct packet_type *pt,
		    struct net_device *orig)
{
	struct swib_wire *w = container_of(pt, struct swib_wire, pt);

	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb)
		return NET_RX_DROP;
	skb_queue_tail(&w->rxq, skb);
	queue_work(swib_wq, &w->rx);
	return NET_RX_SUCCESS;
}

/* Lets the network device go; swib_fab_mutex is held. */
static void release(struct swib_wire *w)
{
	if (!w->nd)
		return;
	dev_remove_pack(&w->pt);
	skb_queue_purge(&w->rxq);
	netdev_put(w->nd, &w->tracker);
	w->nd = NULL;
}

/* A network device goes away, which waits until nobody holds it. */
void swib_wire_netdev_gone(struct net_device *nd)
{
	struct swib_wire *w;

	mutex_lock(&swib_fab_mutex);
	list_for_each_entry(w, &wires, list)
		if (w->nd == nd) {
			release(w);
			w->end.up = false;
			swib_link_eval(w->port);
		}
	mutex_unlock(&swib_fab_mutex);
}

/* Removes the cable; swib_fab_mutex is not held. */
void swib_wire_detach(struct swib_port *p)
{
	struct wire_hdr h;
	struct swib_wire *w;

	if (!p->wire)
		return;
	w = to_wire(p->wire);
	mutex_lock(&swib_fab_mutex);
	p->wire = NULL;			/* nobody starts the work items again */
	swib_link_eval(p);
	header(w, &h, WIRE_BYE);
	send_frame(w, &h, NULL, 0);
	release(w);
	list_del(&w->list);
	mutex_unlock(&swib_fab_mutex);
	cancel_delayed_work_sync(&w->hello);
	cancel_work_sync(&w->rx);
	kvfree(w->part);
	kfree(w);
}

static const struct swib_far_end_ops ops = {
	.tx = wire_tx,
	.notify = notify,
	.detach = swib_wire_detach,
};

/* Joins a port to a network device; swib_cfg_mutex is held, swib_fab_mutex is not. */
int swib_wire_attach(struct swib_port *p, const char *name)
{
	struct swib_wire *w;
	struct net_device *nd;
	int r = -EBUSY;

	w = kzalloc(sizeof(*w), GFP_KERNEL);
	if (!w)
		return -ENOMEM;
	w->end.ops = &ops;
	w->port = p;
	w->epoch = get_random_u32() | 1;
	skb_queue_head_init(&w->rxq);
	INIT_WORK(&w->rx, rx_work);
	INIT_DELAYED_WORK(&w->hello, hello_work);
	w->pt.type = htons(SWIB_WIRE_PROTO);
	w->pt.func = wire_rcv;
	mutex_lock(&swib_fab_mutex);
	if (p->peer || p->wire)
		goto unlock;
	r = -ENODEV;
	nd = dev_get_by_name(&init_net, name);
	if (!nd)
		goto unlock;
	r = -EINVAL;
	if (nd->type == ARPHRD_ETHER && nd->mtu >= SWIB_WIRE_MIN_MTU)
		r = nd->reg_state == NETREG_REGISTERED ? 0 : -ENODEV;
	if (r) {
		dev_put(nd);
		goto unlock;
	}
	netdev_tracker_alloc(nd, &w->tracker, GFP_KERNEL);
	w->nd = nd;
	w->pt.dev = nd;
	dev_add_pack(&w->pt);
	list_add_tail(&w->list, &wires);
	p->wire = &w->end;
	queue_delayed_work(swib_wq, &w->hello, 0);
unlock:
	mutex_unlock(&swib_fab_mutex);
	if (r)
		kfree(w);
	return r;
}
