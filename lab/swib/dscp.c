// SPDX-License-Identifier: GPL-2.0
/*
 * Priorities by DSCP of Ethernet ports, as each of the drivers keeps them: in its
 * own table, in the list of the core, or in both.  The core calls this with RTNL.
 */
#include <linux/seq_file.h>
#include "swib.h"
#include "dcb.h"

/* ice answers setters with these as well as with errors */
#define ICE_NO_CHANGE	1
#define ICE_CHANGED	2

/* ice: whether a DSCP has a priority, by which the card goes then */
bool swib_dscp_any(const struct swib_dcb *d)
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
	bool first = !swib_dscp_any(d);
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
	if (!swib_dscp_any(d)) {
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

int swib_dscp_set(struct net_device *nd, struct dcb_app *app)
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

int swib_dscp_del(struct net_device *nd, struct dcb_app *app)
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

/* After the link is registered: a firmware that trusts DSCP has a priority for each. */
void swib_dscp_start(struct net_device *nd)
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
void swib_dscp_show(struct seq_file *s, struct net_device *nd)
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
