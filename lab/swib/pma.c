// SPDX-License-Identifier: GPL-2.0
/* The performance management agent. */
#include <rdma/ib_pma.h>
#include "swib.h"

static void clear(struct swib_port *p)
{
	p->tx_bytes = 0;
	p->tx_pkts = 0;
	p->rx_bytes = 0;
	p->rx_pkts = 0;
	p->discards = 0;
	p->mtx = 0;
	p->mrx = 0;
	p->link_downed = 0;
}

static void counters(struct swib_port *p, u8 select, struct ib_pma_portcounters *c)
{
	memset(c, 0, sizeof(*c));
	c->port_select = select;
	c->link_downed_counter = p->link_downed;
	c->port_xmit_discards = cpu_to_be16(min_t(u64, p->discards, U16_MAX));
	c->port_xmit_data = cpu_to_be32(min_t(u64, p->tx_bytes / 4, U32_MAX));
	c->port_rcv_data = cpu_to_be32(min_t(u64, p->rx_bytes / 4, U32_MAX));
	c->port_xmit_packets = cpu_to_be32(min_t(u64, p->tx_pkts, U32_MAX));
	c->port_rcv_packets = cpu_to_be32(min_t(u64, p->rx_pkts, U32_MAX));
}

static void counters_ext(struct swib_port *p, u8 select, struct ib_pma_portcounters_ext *c)
{
	memset(c, 0, sizeof(*c));
	c->port_select = select;
	c->port_xmit_data = cpu_to_be64(p->tx_bytes / 4);
	c->port_rcv_data = cpu_to_be64(p->rx_bytes / 4);
	c->port_xmit_packets = cpu_to_be64(p->tx_pkts);
	c->port_rcv_packets = cpu_to_be64(p->rx_pkts);
	c->port_multicast_xmit_packets = cpu_to_be64(p->mtx);
	c->port_multicast_rcv_packets = cpu_to_be64(p->mrx);
	c->port_unicast_xmit_packets = cpu_to_be64(p->tx_pkts - p->mtx);
	c->port_unicast_rcv_packets = cpu_to_be64(p->rx_pkts - p->mrx);
}

enum swib_mad_result swib_pma(struct swib_node *n, struct swib_port *in, struct ib_mad *m)
{
	void *data = (u8 *)m + IB_MGMT_MAD_HDR + 40;
	bool set = m->mad_hdr.method == IB_MGMT_METHOD_SET;
	struct swib_port *p;
	u8 select;

	if (m->mad_hdr.method != IB_MGMT_METHOD_GET && !set)
		return SWIB_MAD_PASS;
	m->mad_hdr.status = 0;
	select = ((struct ib_pma_portcounters *)data)->port_select;
	p = select <= n->nports ? &n->port[select] : in;
	switch (m->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO: {
		struct ib_class_port_info *c = data;

		memset(c, 0, sizeof(*c));
		c->base_version = 1;
		c->class_version = 1;
		c->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
		ib_set_cpi_resp_time(c, 18);
		break;
	}
	case IB_PMA_PORT_COUNTERS:
		if (set)
			clear(p);
		counters(p, select, data);
		break;
	case IB_PMA_PORT_COUNTERS_EXT:
		if (set)
			clear(p);
		counters_ext(p, select, data);
		break;
	default:
		m->mad_hdr.status = SWIB_MAD_UNSUP_ATTR;
	}
	m->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	return SWIB_MAD_REPLY;
}
