// SPDX-License-Identifier: GPL-2.0
/*
 * Data centre bridging of Ethernet ports.  A port answers as the driver under
 * whose name its adapter is bound; README.md says what differs between them,
 * and dscp.c has the priorities by DSCP.
 * The core calls all of this with RTNL.
 */
#include "swib.h"
#include "dcb.h"

#if IS_ENABLED(CONFIG_DCB)

#define CELL		144		/* bytes; buffers of mlx5 are whole cells */
#define TOTAL_BUFFER	262016		/* bytes */
#define LOSSLESS_MTU	9216		/* bytes that a lossless buffer needs beside xoff */
#define BNXT_LLTC	2		/* lossless traffic classes */

static int getets(struct net_device *nd, struct ieee_ets *ets)
{
	*ets = dcb_of(nd)->ets;
	return 0;
}

static int setets(struct net_device *nd, struct ieee_ets *ets)
{
	struct swib_dcb *d = dcb_of(nd);
	struct ieee_ets old;
	int i, sum = 0;

	if (!ieee_mode(nd))
		return -EINVAL;
	for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++) {
		if (ets->prio_tc[i] >= IEEE_8021QAZ_MAX_TCS)
			return -EINVAL;
		if (ets->tc_tsa[i] == IEEE_8021QAZ_TSA_ETS)
			sum += ets->tc_tx_bw[i];
		else if (ets->tc_tsa[i] != IEEE_8021QAZ_TSA_STRICT &&
			 (driver_of(nd) == SWIB_DRV_MLX4 || driver_of(nd) == SWIB_DRV_BNXT))
			return -ENOTSUPP;
	}
	if (sum && sum != 100)
		return -EINVAL;
	old = d->ets;
	d->ets = *ets;
	d->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	d->ets_set = true;
	if (driver_of(nd) == SWIB_DRV_ICE) {
		if (swib_dscp_any(d))
			memcpy(d->ets.prio_tc, old.prio_tc, sizeof(old.prio_tc));
		reset(nd);
	}
	return 0;
}

static int getpfc(struct net_device *nd, struct ieee_pfc *pfc)
{
	*pfc = dcb_of(nd)->pfc;
	if (driver_of(nd) != SWIB_DRV_SWIB)
		pfc->delay = 0;
	if (driver_of(nd) == SWIB_DRV_MLX5 && !is(nd, SWIB_DCB_NOBUFFERS))
		pfc->delay = dcb_of(nd)->cable;
	return 0;
}

/* Whether the buffers of lossless priorities are large enough for a pause to work. */
static int check_lossless(struct net_device *nd, const struct dcbnl_buffer *b)
{
	struct swib_dcb *d = dcb_of(nd);
	u32 xoff = (301 + 216 * d->cable / 100) * 40 + 272 * nd->mtu / 100;
	int i;

	for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++)
		if ((d->pfc.pfc_en & BIT(i)) &&
		    b->buffer_size[b->prio2buffer[i] & 7] < xoff + LOSSLESS_MTU + CELL)
			return -ENOMEM;
	return 0;
}

/* The port goes down and comes up by itself, as when a driver toggles it. */
static void toggle(struct net_device *nd)
{
	netif_carrier_off(nd);
	schedule_delayed_work(&swib_to_eth(nd)->plug, msecs_to_jiffies(300));
}

static int setpfc(struct net_device *nd, struct ieee_pfc *pfc)
{
	struct swib_dcb *d = dcb_of(nd);
	bool changed = pfc->pfc_en != d->pfc.pfc_en;
	u8 cap = d->pfc.pfc_cap;
	u16 cable;

	if (!ieee_mode(nd))
		return -EINVAL;
	switch (driver_of(nd)) {
	case SWIB_DRV_MLX5:
		d->pfc.pfc_en = pfc->pfc_en;
		if (changed)
			toggle(nd);
		cable = d->cable;
		if (pfc->delay && pfc->delay < 1000)
			d->cable = pfc->delay;
		if (!is(nd, SWIB_DCB_NOBUFFERS) && d->manual &&
		    check_lossless(nd, &d->buffer)) {
			d->cable = cable;
			return -ENOMEM;
		}
		return 0;
	case SWIB_DRV_BNXT:
		/* the map of priorities to classes is not there before it was set */
		if (!d->ets_set || hweight8(pfc->pfc_en) > BNXT_LLTC)
			return -EINVAL;
		break;
	default:
		break;
	}
	d->pfc = *pfc;
	d->pfc.pfc_cap = cap;
	if (driver_of(nd) == SWIB_DRV_ICE) {
		if (!changed)
			return 0;
		reset(nd);
	}
	return 0;
}

static int getmaxrate(struct net_device *nd, struct ieee_maxrate *m)
{
	*m = dcb_of(nd)->maxrate;
	return 0;
}

static int setmaxrate(struct net_device *nd, struct ieee_maxrate *m)
{
	dcb_of(nd)->maxrate = *m;
	return 0;
}

/* ---- receive buffers ---------------------------------------------------- */

static bool has_buffers(struct net_device *nd)
{
	return driver_of(nd) == SWIB_DRV_SWIB ||
	       (driver_of(nd) == SWIB_DRV_MLX5 && !is(nd, SWIB_DCB_NOBUFFERS));
}

static int getbuffer(struct net_device *nd, struct dcbnl_buffer *b)
{
	if (!has_buffers(nd))
		return -EOPNOTSUPP;
	*b = dcb_of(nd)->buffer;
	return 0;
}

static int setbuffer(struct net_device *nd, struct dcbnl_buffer *b)
{
	struct swib_dcb *d = dcb_of(nd);
	u32 total = 0;
	int i, r;

	if (!has_buffers(nd))
		return -EOPNOTSUPP;
	if (driver_of(nd) == SWIB_DRV_MLX5) {
		for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++) {
			total += b->buffer_size[i];
			if ((d->pfc.pfc_en & BIT(i)) && !b->buffer_size[b->prio2buffer[i] & 7])
				return -EINVAL;
		}
		if (total > TOTAL_BUFFER)
			return -EINVAL;
		r = check_lossless(nd, b);
		if (r)
			return r;
		for (i = 0; i < DCBX_MAX_BUFFERS; i++)
			b->buffer_size[i] -= b->buffer_size[i] % CELL;
	}
	d->buffer = *b;
	d->buffer.total_size = TOTAL_BUFFER;
	d->manual = true;
	return 0;
}

/* ---- who is in charge --------------------------------------------------- */

static u8 getdcbx(struct net_device *nd)
{
	return dcb_of(nd)->dcbx;
}

static u8 setdcbx(struct net_device *nd, u8 mode)
{
	const u8 both = DCB_CAP_DCBX_VER_IEEE | DCB_CAP_DCBX_VER_CEE;
	struct swib_dcb *d = dcb_of(nd);
	bool no = mode & DCB_CAP_DCBX_LLD_MANAGED;

	if (is(nd, SWIB_DCB_MANAGED))
		return 1;
	switch (driver_of(nd)) {
	case SWIB_DRV_SWIB:
		no = mode & DCB_CAP_DCBX_VER_CEE;
		mode |= DCB_CAP_DCBX_VER_IEEE;
		break;
	case SWIB_DRV_MLX5:
		no |= mode && !(mode & DCB_CAP_DCBX_HOST);
		if (!mode)		/* back to the firmware */
			mode = d->dcbx & ~DCB_CAP_DCBX_HOST;
		break;
	case SWIB_DRV_MLX4:
	case SWIB_DRV_ICE:
		no |= (mode & both) == both || !(mode & DCB_CAP_DCBX_HOST);
		/* no change is no success for ice; by DSCP there is no way back to CEE */
		if (driver_of(nd) == SWIB_DRV_ICE)
			no |= mode == d->dcbx;
		break;
	case SWIB_DRV_BNXT:
		no = (mode & DCB_CAP_DCBX_HOST) &&
		     ((mode & DCB_CAP_DCBX_VER_CEE) || !(mode & DCB_CAP_DCBX_VER_IEEE));
		break;
	default:
		no |= (mode & DCB_CAP_DCBX_VER_CEE) || !(mode & DCB_CAP_DCBX_HOST);
		break;
	}
	if (no)
		return 1;
	d->dcbx = mode;
	return 0;
}

#ifdef SWIB_APPTRUST
/* By DSCP, by PCP, or one before the other, as the drivers that have it. */
static int setapptrust(struct net_device *nd, u8 *sel, int n)
{
	struct swib_dcb *d = dcb_of(nd);
	int i;

	if (n > ARRAY_SIZE(d->trust))
		return -EOPNOTSUPP;
	for (i = 0; i < n; i++)
		if (sel[i] != IEEE_8021QAZ_APP_SEL_DSCP && sel[i] != DCB_APP_SEL_PCP)
			return -EOPNOTSUPP;
	memcpy(d->trust, sel, n);
	d->ntrust = n;
	return 0;
}

static int getapptrust(struct net_device *nd, u8 *sel, int *n)
{
	struct swib_dcb *d = dcb_of(nd);

	memcpy(sel, d->trust, d->ntrust);
	*n = d->ntrust;
	return 0;
}
#endif

static struct dcbnl_rtnl_ops dcb_ops __ro_after_init = {
	.ieee_getets = getets,
	.ieee_setets = setets,
	.ieee_getpfc = getpfc,
	.ieee_setpfc = setpfc,
	.ieee_getmaxrate = getmaxrate,
	.ieee_setmaxrate = setmaxrate,
	.ieee_setapp = swib_dscp_set,
	.ieee_delapp = swib_dscp_del,
	.dcbnl_getbuffer = getbuffer,
	.dcbnl_setbuffer = setbuffer,
	.getdcbx = getdcbx,
	.setdcbx = setdcbx,
};

/* mlx4: the core keeps a list of priorities that the driver knows nothing of */
static const struct dcbnl_rtnl_ops mlx4_ops = {
	.ieee_getets = getets,
	.ieee_setets = setets,
	.ieee_getpfc = getpfc,
	.ieee_setpfc = setpfc,
	.ieee_getmaxrate = getmaxrate,
	.ieee_setmaxrate = setmaxrate,
	.getdcbx = getdcbx,
	.setdcbx = setdcbx,
};

/* The mode in which a port of a driver begins. */
static u8 first_mode(struct net_device *nd)
{
	if (is(nd, SWIB_DCB_MANAGED))
		return DCB_CAP_DCBX_LLD_MANAGED | DCB_CAP_DCBX_VER_IEEE;
	if (is(nd, SWIB_DCB_CEE))
		return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE;
	switch (driver_of(nd)) {
	case SWIB_DRV_MLX5:		/* the firmware's, until somebody takes it */
		return DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE;
	case SWIB_DRV_MLX4:
		return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE;
	default:
		return DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
	}
}

/* Before the link is registered. */
void swib_dcb_init(struct net_device *nd)
{
	struct swib_dcb *d = dcb_of(nd);

	d->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	d->pfc.pfc_cap = driver_of(nd) == SWIB_DRV_BNXT ? BNXT_LLTC : IEEE_8021QAZ_MAX_TCS;
	d->buffer.total_size = TOTAL_BUFFER;
	d->buffer.buffer_size[0] = TOTAL_BUFFER;
	d->cable = 7;
	d->dcbx = first_mode(nd);
	memset(d->dscp, driver_of(nd) == SWIB_DRV_MLX5 ? 0 : SWIB_NO_PRIO, sizeof(d->dscp));
	nd->dcbnl_ops = driver_of(nd) == SWIB_DRV_MLX4 ? &mlx4_ops : &dcb_ops;
}

#else

void swib_dcb_init(struct net_device *nd)
{
}

#endif

/* As mlx5, Ethernet ports have no table of what they trust unless asked to. */
int __init swib_dcb_setup(bool apptrust)
{
	if (!apptrust)
		return 0;
#if IS_ENABLED(CONFIG_DCB) && defined(SWIB_APPTRUST)
	dcb_ops.dcbnl_setapptrust = setapptrust;
	dcb_ops.dcbnl_getapptrust = getapptrust;
	return 0;
#else
	pr_err("swib: apptrust: this kernel has no such table\n");
	return -EOPNOTSUPP;
#endif
}

/* dcb NODE WORD...: what the card's firmware has of DCB, instead of the words before */
int swib_dcb_command(char *a)
{
	static const char * const words[] = {
		"all", "nodscp", "nobuffers", "managed", "cee", "trusts",
	};
	struct swib_node *n = swib_node_by_name(swib_word(&a));
	unsigned int flags = 0;
	char *w = swib_word(&a);
	int i;

	if (!n || n->is_switch)
		return -ENODEV;
	do {
		i = match_string(words, ARRAY_SIZE(words), w);
		if (i < 0)
			return -EINVAL;
		if (i)
			flags |= BIT(i - 1);
		w = swib_word(&a);
	} while (*w);
	swib_hcas[n->idx]->dcb_flags = flags;
	return 0;
}
