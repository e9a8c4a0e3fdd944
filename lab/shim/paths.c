// SPDX-License-Identifier: Apache-2.0
/* Paths that programs open: the IsSM file of a port, and /sys/class/infiniband. */
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The IsSM bit is held by an open file. The path leads to nothing that exists;
 * open() and close() below know it.
 */
#define ISSM "/dev/infiniband/sim-issm"

int umad_get_issm_path(const char *name, int num, char path[], int max)
{
	num = resolve(name, num);
	if (num < 0)
		return -ENODEV;
	snprintf(path, max, ISSM "%d", num);
	return 0;
}

static int issm_fd[MAX_PORTS] = { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };

static int set_issm(uint32_t num, uint32_t on)
{
	uint32_t q[2] = { num, on };

	return question(F_ISSM, q, sizeof(q), NULL, 0) < 0 ? -1 : 0;
}

static int open_issm(const char *path)
{
	int num = atoi(path + strlen(ISSM)), fd;

	if (num < 0 || num >= MAX_PORTS) {
		errno = ENOENT;
		return -1;
	}
	if (set_issm(num, 1) < 0)
		return -1;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	pthread_mutex_lock(&lock);
	issm_fd[num] = fd;
	pthread_mutex_unlock(&lock);
	return fd;
}

/*
 * Scripts read /sys/class/infiniband. A process that looks there gets a folder
 * of its own with what the simulator says at that moment, removed at its end.
 */
#define SYS "/sys/class/infiniband"

static char sys_dir[64];
static pid_t sys_pid;

static int next_open(const char *path, int flags, mode_t mode)
{
	static int (*f)(const char *, int, ...);

	if (!f)
		f = dlsym(RTLD_NEXT, "open64");
	return f(path, flags, mode);
}

static void put_file(const char *dir, const char *name, const char *fmt, ...)
{
	char path[256], text[128];
	va_list a;
	int fd, n;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	va_start(a, fmt);
	n = vsnprintf(text, sizeof(text), fmt, a);
	va_end(a);
	fd = next_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (write(fd, text, n) != n)
		perror(path);
	close(fd);
}

static int drop_entry(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)type;
	(void)w;
	return remove(path);
}

static void drop_sys(void)
{
	if (sys_dir[0] && sys_pid == getpid())
		nftw(sys_dir, drop_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_sys(void)
{
	static const char *const state[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER" };
	static const char *const phys[] = { "", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
		"LinkErrorRecovery", "Phy Test" };
	const char *tmp = getenv("TMPDIR");
	char dir[128], sub[192];
	uint32_t i;

	snprintf(sys_dir, sizeof(sys_dir), "%.40s/umad-sys-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(sys_dir)) {
		sys_dir[0] = 0;
		return;
	}
	sys_pid = getpid();
	atexit(drop_sys);
	if (resolve(NULL, 0) < 0)
		return;
	snprintf(dir, sizeof(dir), "%s/%s", sys_dir, ca.name);
	mkdir(dir, 0755);
	put_file(dir, "node_type", "%u: %s\n", ca.type, ca.type == 2 ? "switch" : "CA");
	put_file(dir, "hca_type", "simulator\n");
	snprintf(dir, sizeof(dir), "%s/%s/ports", sys_dir, ca.name);
	mkdir(dir, 0755);
	for (i = ca.first; i < ca.first + ca.nports; i++) {
		struct umad_port p;
		uint64_t g, x;

		if (get_port(i, &p) < 0)
			continue;
		free(p.pkeys);
		g = be64toh(p.port_guid);
		x = be64toh(p.gid_prefix);
		snprintf(sub, sizeof(sub), "%s/%u", dir, i);
		mkdir(sub, 0755);
		put_file(sub, "lid", "0x%x\n", p.base_lid);
		put_file(sub, "lid_mask_count", "%u\n", p.lmc);
		put_file(sub, "sm_lid", "0x%x\n", p.sm_lid);
		put_file(sub, "sm_sl", "%u\n", p.sm_sl);
		put_file(sub, "state", "%u: %s\n", p.state, state[p.state < 6 ? p.state : 0]);
		put_file(sub, "phys_state", "%u: %s\n", p.phys_state, phys[p.phys_state & 7]);
		put_file(sub, "rate", "%u Gb/sec\n", p.rate);
		put_file(sub, "cap_mask", "0x%08x\n", be32toh(p.capmask));
		put_file(sub, "link_layer", "InfiniBand\n");
		snprintf(sub, sizeof(sub), "%s/%u/gids", dir, i);
		mkdir(sub, 0755);
		put_file(sub, "0", "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x\n", (unsigned)(x >> 48 & 0xffff), (unsigned)(x >> 32 & 0xffff),
			 (unsigned)(x >> 16 & 0xffff), (unsigned)(x & 0xffff), (unsigned)(g >> 48 & 0xffff), (unsigned)(g >> 32 & 0xffff),
			 (unsigned)(g >> 16 & 0xffff), (unsigned)(g & 0xffff));
	}
}

/* where gives the real path of one that a program names. */
static const char *where(const char *path, char *buf, size_t n)
{
	size_t l = strlen(SYS);

	if (strncmp(path, SYS, l) || (path[l] && path[l] != '/'))
		return path;
	if (!sys_dir[0])
		make_sys();
	if (!sys_dir[0])
		return path;
	snprintf(buf, n, "%s%s", sys_dir, path + l);
	return buf;
}

#define OPEN(name)							\
int name(const char *path, int flags, ...)				\
{									\
	char buf[512];							\
	mode_t mode = 0;						\
									\
	if (flags & (O_CREAT | __O_TMPFILE)) {				\
		va_list a;						\
									\
		va_start(a, flags);					\
		mode = va_arg(a, mode_t);				\
		va_end(a);						\
	}								\
	if (strncmp(path, ISSM, strlen(ISSM)) == 0)			\
		return open_issm(path);					\
	return next_open(where(path, buf, sizeof(buf)), flags, mode);	\
}

OPEN(open)
OPEN(open64)

#define ON_PATH(type, name, args, call)					\
type name args								\
{									\
	static type (*f) args;						\
	char buf[512];							\
									\
	if (!f)								\
		f = dlsym(RTLD_NEXT, #name);				\
	path = where(path, buf, sizeof(buf));				\
	return f call;							\
}

ON_PATH(int, stat, (const char *path, struct stat *st), (path, st))
ON_PATH(int, lstat, (const char *path, struct stat *st), (path, st))
ON_PATH(int, stat64, (const char *path, struct stat64 *st), (path, st))
ON_PATH(int, lstat64, (const char *path, struct stat64 *st), (path, st))
ON_PATH(int, access, (const char *path, int mode), (path, mode))
ON_PATH(int, faccessat, (int dir, const char *path, int mode, int flags), (dir, path, mode, flags))
ON_PATH(int, chdir, (const char *path), (path))
ON_PATH(DIR *, opendir, (const char *path), (path))

int close(int fd)
{
	static int (*f)(int);
	int num = -1;

	if (!f)
		f = dlsym(RTLD_NEXT, "close");
	for (int i = 0; fd >= 0 && i < MAX_PORTS; i++) {
		if (issm_fd[i] == fd) {
			issm_fd[i] = -1;
			num = i;
		}
	}
	if (num >= 0)
		set_issm(num, 0);
	return f(fd);
}
