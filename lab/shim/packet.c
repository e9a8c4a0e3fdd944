// SPDX-License-Identifier: Apache-2.0
/* The accessors: their offsets belong to the header with P_Key index. */
#include "shim.h"

#include <endian.h>
#include <string.h>

size_t umad_size(void)
{
	return HDR;
}

void *umad_get_mad(void *umad)
{
	return (uint8_t *)umad + HDR;
}

int umad_status(void *umad)
{
	uint32_t s;

	memcpy(&s, (uint8_t *)umad + 4, 4);
	return s;
}

void *umad_get_mad_addr(void *umad)
{
	return (uint8_t *)umad + 20;
}

int umad_set_addr_net(void *umad, uint16_t dlid, uint32_t dqp, int sl, uint32_t qkey)
{
	uint8_t *u = umad;

	memcpy(u + 20, &dqp, 4);
	memcpy(u + 24, &qkey, 4);
	memcpy(u + 28, &dlid, 2);
	u[30] = sl;
	return 0;
}

int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16(dlid), htobe32(dqp), sl, htobe32(qkey));
}

int umad_set_pkey(void *umad, int index)
{
	uint16_t v = index;

	memcpy((uint8_t *)umad + 56, &v, 2);
	return 0;
}

int umad_get_pkey(void *umad)
{
	uint16_t v;

	memcpy(&v, (uint8_t *)umad + 56, 2);
	return v;
}

/* addr is a struct ib_mad_addr: GRH fields at 12 and on. */
int umad_set_grh(void *umad, void *addr)
{
	uint8_t *u = umad, *a = addr;

	if (!addr) {
		u[32] = 0;
		return 0;
	}
	u[32] = 1;
	u[33] = a[13];
	u[34] = a[14];
	u[35] = a[15];
	memcpy(u + 36, a + 16, 16);
	{
		uint32_t fl;

		memcpy(&fl, a + 32, 4);
		fl = htobe32(fl);
		memcpy(u + 52, &fl, 4);
	}
	return 0;
}

int umad_set_grh_net(void *umad, void *addr)
{
	uint8_t *u = umad, *a = addr;

	u[32] = addr != NULL;
	if (addr) {
		u[33] = a[13];
		u[34] = a[14];
		u[35] = a[15];
		memcpy(u + 36, a + 16, 20);
	}
	return 0;
}
