// SPDX-License-Identifier: GPL-2.0
/*
 * Data centre bridging of Ethernet ports.  A port answers as the driver under
 * whose name its adapter is bound; README.md says what differs between them.
 * The core calls all of this with RTNL.
 */
#include <linux/seq_file.h>
#include "swib.h"

#if IS_ENABLED(CONFIG_DCB)

#define CELL		144		/* bytes; buffers of mlx5 are whole cells */
#define TOTAL_BUFFER	262016		/* bytes */
#define LOSSLESS_MTU	9216		/* bytes that a lossless buffer needs beside xoff */
#define BNXT_LLTC	2		/* lossless traffic classes */
/* ice answers setters with these as well as with errors */
#define ICE_NO_CHANGE	1
#define ICE_CHANGED	2

static struct swib_dcb *dcb_of(struct net_device *nd)
{
	return &swib_to_eth(nd)->dcb;
}

static enum swib_driver driver_of(struct net_device *nd)
{
	return swib_to_eth(nd)->hca->driver;
}

static bool is(struct net_device *nd, enum swib_dcb_flag f)
{
	return swib_to_eth(nd)->hca->dcb_flags & f;
}

/* bnxt, ice and hns3 take settings in a mode of IEEE only, and some of the host's only. */
static bool ieee_mode(struct net_device *nd)
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
static void reset(struct net_device *nd)
{
	if (!netif_running(nd))
		return;
	dev_close(nd);
	dev_open(nd, NULL);
}

/* ice: whether a DSCP has a priority, by which the card goes then */
static bool by_dscp(const struct swib_dcb *d)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(d->dscp); i++)
		if (d->dscp[i] != SWIB_NO_PRIO)
			return true;
	return false;
}

/* ice: what a change between priorities and DSCP leaves of the classes */
static void default_ets(struct swib_dcb *d, bool dscp)
{
	int i;

	memset(&d->ets, 0, sizeof(d->ets));
	d->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	d->ets.tc_tx_bw[0] = 100;
	for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++) {
		d->ets.tc_tsa[i] = dscp || !i ? IEEE_8021QAZ_TSA_ETS : IEEE_8021QAZ_TSA_STRICT;
		d->ets.prio_tc[i] = dscp ? i : 0;
	}
}

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
		if (by_dscp(d))
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

/* ---- priorities by DSCP ------------------------------------------------- */

static struct dcb_app app_of(int dscp, u8 prio)
{
	return (struct dcb_app){
		.selector = IEEE_8021QAZ_APP_SEL_DSCP,
		.protocol = dscp,
		.priority = prio,
	};
}

/* mlx5: one priority for each DSCP; the list begins when the first is set. */
static int mlx5_setapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	struct dcb_app old = app_of(app->protocol, d->dscp[app->protocol]);
	bool fresh = dcb_ieee_delapp(nd, &old);
	int r;

	d->dscp[app->protocol] = app->priority;
	r = dcb_ieee_setapp(nd, app);
	if (!r && fresh)
		d->ndscp++;
	return r;
}

static int mlx5_delapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	int r;

	if (!d->ndscp || app->priority != d->dscp[app->protocol])
		return -ENOENT;
	r = dcb_ieee_delapp(nd, app);
	if (r)
		return r;
	d->dscp[app->protocol] = 0;
	d->ndscp--;
	return 0;
}

/* hns3: replaces too, and a priority that is not in its table is not to be deleted */
static int hns3_setapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	u8 old = d->dscp[app->protocol];
	struct dcb_app gone = app_of(app->protocol, old);
	int r;

	if (old == app->priority)
		return 0;
	r = dcb_ieee_setapp(nd, app);
	if (r)
		return r;
	d->dscp[app->protocol] = app->priority;
	return old == SWIB_NO_PRIO ? 0 : dcb_ieee_delapp(nd, &gone);
}

static int hns3_delapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	int r;

	if (app->priority != d->dscp[app->protocol])
		return -EINVAL;
	r = dcb_ieee_delapp(nd, app);
	if (!r)
		d->dscp[app->protocol] = SWIB_NO_PRIO;
	return r;
}

/* bnxt: the list is the core's; the card's entry goes with any entry of its DSCP */
static int bnxt_setapp(struct net_device *nd, struct dcb_app *app)
{
	int r = dcb_ieee_setapp(nd, app);

	if (!r)
		dcb_of(nd)->dscp[app->protocol] = app->priority;
	return r;
}

static int bnxt_delapp(struct net_device *nd, struct dcb_app *app)
{
	int r = dcb_ieee_delapp(nd, app);

	if (!r)
		dcb_of(nd)->dscp[app->protocol] = SWIB_NO_PRIO;
	return r;
}

/* ice: a DSCP that has a priority takes no other; by default it has that of its group */
static int ice_setapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	bool first = !by_dscp(d);
	bool changes = first || app->priority != app->protocol % 8;
	int r;

	if (netif_is_bond_slave(nd))
		return -EINVAL;
	r = dcb_ieee_setapp(nd, app);
	if (r)
		return r;
	if (d->dscp[app->protocol] != SWIB_NO_PRIO) {
		dcb_ieee_delapp(nd, app);
		return -EINVAL;
	}
	d->dscp[app->protocol] = app->priority;
	if (first)
		default_ets(d, true);
	if (!changes)
		return ICE_NO_CHANGE;
	reset(nd);
	return 0;
}

static int ice_delapp(struct net_device *nd, struct dcb_app *app)
{
	struct swib_dcb *d = dcb_of(nd);
	bool changes = app->priority != app->protocol % 8;
	int r;

	if (netif_is_bond_slave(nd))
		return -EINVAL;
	r = dcb_ieee_delapp(nd, app);
	if (r)
		return r;
	d->dscp[app->protocol] = SWIB_NO_PRIO;
	if (!by_dscp(d)) {
		default_ets(d, false);
		d->pfc.pfc_en = 0;
		changes = true;
	}
	if (!changes)
		return ICE_CHANGED;
	reset(nd);
	return 0;
}

/* 0 if the driver goes on with an entry */
static int check_app(struct net_device *nd, struct dcb_app *app)
{
	if (driver_of(nd) == SWIB_DRV_SWIB)
		return 0;
	if (!ieee_mode(nd))
		return -EINVAL;
	if (app->selector != IEEE_8021QAZ_APP_SEL_DSCP || app->protocol > 63 ||
	    app->priority > 7)
		return -EINVAL;
	if (is(nd, SWIB_DCB_NODSCP))
		return driver_of(nd) == SWIB_DRV_BNXT ? -ENOTSUPP : -EOPNOTSUPP;
	return 0;
}

static int setapp(struct net_device *nd, struct dcb_app *app)
{
	int r = check_app(nd, app);

	if (r)
		return r;
	switch (driver_of(nd)) {
	case SWIB_DRV_MLX5:
		return mlx5_setapp(nd, app);
	case SWIB_DRV_HNS3:
		return hns3_setapp(nd, app);
	case SWIB_DRV_BNXT:
		return bnxt_setapp(nd, app);
	case SWIB_DRV_ICE:
		return ice_setapp(nd, app);
	default:
		return dcb_ieee_setapp(nd, app);
	}
}

static int delapp(struct net_device *nd, struct dcb_app *app)
{
	int r = check_app(nd, app);

	if (r)
		return r;
	switch (driver_of(nd)) {
	case SWIB_DRV_MLX5:
		return mlx5_delapp(nd, app);
	case SWIB_DRV_HNS3:
		return hns3_delapp(nd, app);
	case SWIB_DRV_BNXT:
		return bnxt_delapp(nd, app);
	case SWIB_DRV_ICE:
		return ice_delapp(nd, app);
	default:
		return dcb_ieee_delapp(nd, app);
	}
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
	.ieee_setapp = setapp,
	.ieee_delapp = delapp,
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

/* After it: a firmware that trusts DSCP has a priority for each. */
void swib_dcb_start(struct net_device *nd)
{
	struct swib_dcb *d = dcb_of(nd);
	struct dcb_app app;
	int i;

	if (driver_of(nd) != SWIB_DRV_MLX5 || !is(nd, SWIB_DCB_TRUSTS))
		return;
	for (i = 0; i < ARRAY_SIZE(d->dscp); i++) {
		d->dscp[i] = i >> 3;
		app = app_of(i, d->dscp[i]);
		if (!dcb_ieee_setapp(nd, &app))
			d->ndscp++;
	}
}

/* The card's priorities by DSCP, where its driver has such a table. */
void swib_dcb_show(struct seq_file *s, struct net_device *nd)
{
	struct swib_dcb *d = dcb_of(nd);
	const char *sep = " dscp ";
	int i;

	if (driver_of(nd) == SWIB_DRV_SWIB || driver_of(nd) == SWIB_DRV_MLX4 ||
	    (driver_of(nd) == SWIB_DRV_MLX5 && !d->ndscp))
		return;
	for (i = 0; i < ARRAY_SIZE(d->dscp); i++)
		if (d->dscp[i] != SWIB_NO_PRIO) {
			seq_printf(s, "%s%d:%u", sep, i, d->dscp[i]);
			sep = ",";
		}
}

#else

void swib_dcb_show(struct seq_file *s, struct net_device *nd)
{
}

void swib_dcb_init(struct net_device *nd)
{
}

void swib_dcb_start(struct net_device *nd)
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
