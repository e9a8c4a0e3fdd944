/* SPDX-License-Identifier: GPL-2.0 */
/* What dcb.c and dscp.c have in common. */
#ifndef SWIB_DCB_H
#define SWIB_DCB_H

static inline struct swib_dcb *dcb_of(struct net_device *nd)
{
	return &swib_to_eth(nd)->dcb;
}

static inline enum swib_driver driver_of(struct net_device *nd)
{
	return swib_to_eth(nd)->hca->driver;
}

static inline bool is(struct net_device *nd, enum swib_dcb_flag f)
{
	return swib_to_eth(nd)->hca->dcb_flags & f;
}

/* bnxt, ice and hns3 take settings in a mode of IEEE only, and some of the host's only. */
static inline bool ieee_mode(struct net_device *nd)
{
	u8 mode = dcb_of(nd)->dcbx;

	switch (driver_of(nd)) {
	case SWIB_DRV_BNXT:
		return (mode & DCB_CAP_DCBX_VER_IEEE) && (mode & DCB_CAP_DCBX_HOST);
	case SWIB_DRV_ICE:
		return (mode & DCB_CAP_DCBX_VER_IEEE) && !(mode & DCB_CAP_DCBX_LLD_MANAGED);
	case SWIB_DRV_HNS3:
		return mode & DCB_CAP_DCBX_VER_IEEE;
	default:
		return true;
	}
}

/* ice takes the interface down and up after a change. */
static inline void reset(struct net_device *nd)
{
	if (!netif_running(nd))
		return;
	dev_close(nd);
	dev_open(nd, NULL);
}

#endif
