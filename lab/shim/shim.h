// SPDX-License-Identifier: Apache-2.0
/*
 * libibumad on a simulated subnet.
 *
 * A library with the functions of rdma-core's libibumad that touch devices,
 * for LD_PRELOAD in front of unmodified opensm, osmtest and infiniband-diags.
 * Instead of /dev/infiniband/umadN and sysfs it asks the simulator on the
 * abstract unix socket "$IBSIM_SOCKNAME:umad" (default "sim") and is the host
 * $SIM_HOST there. Everything that the kernel does (registration, matching,
 * timeouts, long messages) is done by the simulator; these files only carry
 * buffers. See package server for the frames.
 *
 * One connection asks questions, one for each open umad file carries MADs, so
 * that neither waits for the other.
 */
#ifndef SHIM_H
#define SHIM_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_LEN 20
#define MAX_PORTS 10
#define HDR 64			/* struct ib_user_mad with P_Key index */
#define MAX_FRAME (16u << 20)

enum { F_HELLO = 1, F_PORT, F_OPEN, F_REGISTER, F_UNREGISTER, F_ISSM, F_MAD = 10 };

/* The public structures of infiniband/umad.h; the layout is the ABI. */
struct umad_port {
	char ca_name[NAME_LEN];
	int portnum;
	unsigned base_lid, lmc, sm_lid, sm_sl, state, phys_state, rate;
	uint32_t capmask;
	uint64_t gid_prefix, port_guid;
	unsigned pkeys_size;
	uint16_t *pkeys;
	char link_layer[NAME_LEN];
};

struct umad_ca {
	char ca_name[NAME_LEN];
	unsigned node_type;
	int numports;
	char fw_ver[20], ca_type[40], hw_ver[20];
	uint64_t node_guid, system_guid;
	struct umad_port *ports[MAX_PORTS];
};

struct umad_device_node {
	struct umad_device_node *next;
	const char *ca_name;
};

struct umad_reg_attr {
	uint8_t mgmt_class, mgmt_class_version;
	uint32_t flags;
	uint64_t method_mask[2];
	uint32_t oui;
	uint8_t rmpp_version;
};

/*
 * What the files share. It is hidden: a program has names such as lock of its own,
 * and a library that is loaded in front of it must not take their place.
 */
#pragma GCC visibility push(hidden)

/* wire.c */

/* The simulator's answer to F_HELLO. */
struct adapter {
	char name[NAME_LEN];
	uint32_t type, nports, first;
	uint64_t node_guid, sys_guid;
};

extern pthread_mutex_t lock; /* of ca, and of the state of each file */
extern struct adapter ca;

int read_all(int fd, void *buf, size_t n);
int send_frame(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen);
int dial(void);
const char *host(void);
int question_on(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen, void *out, size_t max);
int connected(void);
int question(uint32_t type, const void *a, size_t alen, void *out, size_t max);

/* device.c */
int get_port(int num, struct umad_port *p);
int resolve(const char *name, int num);

#pragma GCC visibility pop

#endif
