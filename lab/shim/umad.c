// SPDX-License-Identifier: Apache-2.0
/*
 * libibumad on a simulated subnet.
 *
 * A library with the functions of rdma-core's libibumad that touch devices,
 * for LD_PRELOAD in front of unmodified opensm, osmtest and infiniband-diags.
 * Instead of /dev/infiniband/umadN and sysfs it asks the simulator on the
 * abstract unix socket "$IBSIM_SOCKNAME:umad" (default "sim") and is the host
 * $SIM_HOST there. Everything that the kernel does (registration, matching,
 * timeouts, long messages) is done by the simulator; this file only carries
 * buffers. See package server for the frames.
 *
 * One connection asks questions, one for each open umad file carries MADs, so
 * that neither waits for the other.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/uio.h>
#include <unistd.h>

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

/* an open umad file */
struct file {
	int fd;
	uint32_t id;
	pthread_mutex_t rd, wr;
	uint8_t *pending;	/* a received packet that did not fit yet */
	uint32_t pending_len;
	struct file *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below */
static int ask_fd = -1;
static pid_t ask_pid;
static struct file *files;
static struct {
	char name[NAME_LEN];
	uint32_t type, nports, first;
	uint64_t node_guid, sys_guid;
} ca;

static int write_all(int fd, struct iovec *v, int n)
{
	while (n > 0) {
		struct msghdr m = { .msg_iov = v, .msg_iovlen = n };
		ssize_t w = sendmsg(fd, &m, MSG_NOSIGNAL);

		if (w < 0) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		while (n > 0 && (size_t)w >= v->iov_len) {
			w -= v->iov_len;
			v++;
			n--;
		}
		if (n > 0) {
			v->iov_base = (char *)v->iov_base + w;
			v->iov_len -= w;
		}
	}
	return 0;
}

static int read_all(int fd, void *buf, size_t n)
{
	while (n > 0) {
		ssize_t r = recv(fd, buf, n, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			if (r == 0)
				errno = ENODEV;
			return -1;
		}
		buf = (char *)buf + r;
		n -= r;
	}
	return 0;
}

static int send_frame(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen)
{
	uint32_t h[2] = { alen + blen, type };
	struct iovec v[3] = { { h, sizeof(h) }, { (void *)a, alen }, { (void *)b, blen } };

	return write_all(fd, v, 3);
}

static int dial(void)
{
	const char *base = getenv("IBSIM_SOCKNAME");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int n, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s:umad", base && *base ? base : "sim");
	if (n < 0 || (size_t)n >= sizeof(a.sun_path) - 1 ||
	    connect(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 1 + n) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static const char *host(void)
{
	const char *h = getenv("SIM_HOST");

	return h ? h : "";
}

/*
 * question sends a question and reads the answer behind its errno into out, at
 * most max bytes; the caller holds the lock. It returns the answer's length or
 * -1 with errno.
 */
static int question_on(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen, void *out, size_t max)
{
	uint32_t h[2], err;
	uint8_t drop[256];
	size_t n, take;

	if (send_frame(fd, type, a, alen, b, blen) < 0 || read_all(fd, h, sizeof(h)) < 0)
		return -1;
	if (h[0] < 4 || h[0] > MAX_FRAME || h[1] != type) {
		errno = EPROTO;
		return -1;
	}
	if (read_all(fd, &err, 4) < 0)
		return -1;
	n = h[0] - 4;
	take = n < max ? n : max;
	if (take && read_all(fd, out, take) < 0)
		return -1;
	for (n -= take; n > 0; n -= take) {
		take = n < sizeof(drop) ? n : sizeof(drop);
		if (read_all(fd, drop, take) < 0)
			return -1;
	}
	if (err) {
		errno = err;
		return -1;
	}
	return h[0] - 4 < max ? (int)(h[0] - 4) : (int)max;
}

static int connected(void)
{
	uint8_t r[NAME_LEN + 28];

	if (ask_fd >= 0 && ask_pid == getpid())
		return 0;
	ask_fd = dial();
	ask_pid = getpid();
	if (ask_fd < 0)
		return -1;
	if (question_on(ask_fd, F_HELLO, host(), strlen(host()), NULL, 0, r, sizeof(r)) < (int)sizeof(r)) {
		close(ask_fd);
		ask_fd = -1;
		return -1;
	}
	memcpy(ca.name, r, NAME_LEN);
	ca.name[NAME_LEN - 1] = 0;
	memcpy(&ca.type, r + 20, 4);
	memcpy(&ca.nports, r + 24, 4);
	memcpy(&ca.first, r + 28, 4);
	memcpy(&ca.node_guid, r + 32, 8);
	memcpy(&ca.sys_guid, r + 40, 8);
	return 0;
}

static int question(uint32_t type, const void *a, size_t alen, void *out, size_t max)
{
	int r = -1;

	pthread_mutex_lock(&lock);
	if (connected() == 0) {
		r = question_on(ask_fd, type, a, alen, NULL, 0, out, max);
		if (r < 0 && (errno == ENODEV || errno == EPIPE || errno == EPROTO)) {
			close(ask_fd);
			ask_fd = -1;
			errno = ENODEV;
		}
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static int get_port(int num, struct umad_port *p)
{
	uint8_t r[4096];
	uint32_t n = num, v[8], keys;
	int len = question(F_PORT, &n, 4, r, sizeof(r));

	memset(p, 0, sizeof(*p));
	if (len < 52)
		return -1;
	memcpy(v, r, 32);
	memcpy(p->ca_name, ca.name, NAME_LEN);
	p->portnum = num;
	p->base_lid = v[0];
	p->lmc = v[1];
	p->sm_lid = v[2];
	p->sm_sl = v[3];
	p->state = v[4];
	p->phys_state = v[5];
	p->rate = v[6];
	p->capmask = v[7];	/* network order, as the fields below */
	memcpy(&p->gid_prefix, r + 32, 8);
	memcpy(&p->port_guid, r + 40, 8);
	memcpy(&keys, r + 48, 4);
	if (keys > (unsigned)(len - 52) / 2)
		keys = (len - 52) / 2;
	p->pkeys = calloc(keys ? keys : 1, sizeof(uint16_t));
	if (!p->pkeys)
		return -1;
	memcpy(p->pkeys, r + 52, keys * 2);
	p->pkeys_size = keys;
	strcpy(p->link_layer, "InfiniBand");
	return 0;
}

/* resolve finds the port that a tool means: 0 is the first active one. */
static int resolve(const char *name, int num)
{
	struct umad_port p;
	int best = -1, rank = -1;
	uint32_t i, first, n;

	pthread_mutex_lock(&lock);
	i = connected();
	first = ca.first;
	n = ca.nports;
	pthread_mutex_unlock(&lock);
	if (i || (name && *name && strcmp(name, ca.name)))
		return -1;
	if (num > 0 || n == 0)
		return num >= (int)first && num < (int)(first + n) ? num : -1;
	for (i = first; i < first + n; i++) {
		int r;

		if (get_port(i, &p) < 0)
			continue;
		r = p.state == 4 ? 2 : p.phys_state == 5;
		free(p.pkeys);
		if (r > rank) {
			rank = r;
			best = i;
		}
	}
	return best;
}

int umad_init(void)
{
	return 0;
}

int umad_done(void)
{
	return 0;
}

int umad_get_cas_names(char cas[][NAME_LEN], int max)
{
	int r;

	pthread_mutex_lock(&lock);
	r = connected() == 0 && max > 0;
	if (r)
		memcpy(cas[0], ca.name, NAME_LEN);
	pthread_mutex_unlock(&lock);
	return r;
}

int umad_get_ca_portguids(const char *name, uint64_t *guids, int max)
{
	struct umad_port p;
	int n = 0;
	uint32_t i;

	if (resolve(name, 0) < 0)
		return -ENODEV;
	/* entry 0 is switch port 0, as in the real library */
	if (ca.first > 0 && max > 0)
		guids[n++] = 0;
	for (i = ca.first; i < ca.first + ca.nports; i++) {
		if (n >= max)
			return -ENOMEM;
		if (get_port(i, &p) < 0)
			return -ENODEV;
		guids[n++] = p.port_guid;
		free(p.pkeys);
	}
	return n;
}

int umad_release_port(struct umad_port *p)
{
	free(p->pkeys);
	p->pkeys = NULL;
	p->pkeys_size = 0;
	return 0;
}

int umad_get_port(const char *name, int num, struct umad_port *p)
{
	num = resolve(name, num);
	if (num < 0)
		return -ENODEV;
	return get_port(num, p) < 0 ? -EIO : 0;
}

int umad_release_ca(struct umad_ca *c)
{
	for (int i = 0; i < MAX_PORTS; i++) {
		if (!c->ports[i])
			continue;
		umad_release_port(c->ports[i]);
		free(c->ports[i]);
		c->ports[i] = NULL;
	}
	return 0;
}

int umad_get_ca(const char *name, struct umad_ca *c)
{
	uint32_t i;

	if (resolve(name, 0) < 0)
		return -ENODEV;
	memset(c, 0, sizeof(*c));
	memcpy(c->ca_name, ca.name, NAME_LEN);
	c->node_type = ca.type;
	c->numports = ca.first ? ca.nports : 0;
	strcpy(c->fw_ver, "1.0.0");
	strcpy(c->ca_type, "simulator");
	strcpy(c->hw_ver, "0");
	c->node_guid = ca.node_guid;
	c->system_guid = ca.sys_guid;
	for (i = ca.first; i < ca.first + ca.nports && i < MAX_PORTS; i++) {
		c->ports[i] = calloc(1, sizeof(*c->ports[i]));
		if (!c->ports[i] || get_port(i, c->ports[i]) < 0) {
			umad_release_ca(c);
			return -EIO;
		}
	}
	return 0;
}

void umad_free_ca_device_list(struct umad_device_node *l)
{
	free(l);
}

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct umad_device_node *l = NULL;

	pthread_mutex_lock(&lock);
	if (connected() == 0 && (l = calloc(1, sizeof(*l))))
		l->ca_name = ca.name;
	pthread_mutex_unlock(&lock);
	return l;
}

int umad_sort_ca_device_list(struct umad_device_node **l, size_t n)
{
	(void)l;
	(void)n;
	return 0;	/* there is one device at most */
}

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

static struct file *file_of(int fd)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	for (f = files; f && f->fd != fd; f = f->next)
		;
	pthread_mutex_unlock(&lock);
	if (!f)
		errno = EINVAL;
	return f;
}

int umad_open_port(const char *name, int num)
{
	struct file *f;
	uint32_t n;

	num = resolve(name, num);
	if (num < 0)
		return -ENODEV;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->fd = dial();
	n = num;
	if (f->fd < 0 || question_on(f->fd, F_OPEN, &n, 4, host(), strlen(host()), &f->id, 4) < 4) {
		if (f->fd >= 0)
			close(f->fd);
		free(f);
		return -EIO;
	}
	pthread_mutex_init(&f->rd, NULL);
	pthread_mutex_init(&f->wr, NULL);
	pthread_mutex_lock(&lock);
	f->next = files;
	files = f;
	pthread_mutex_unlock(&lock);
	return f->fd;
}

int umad_close_port(int fd)
{
	struct file **p, *f = NULL;

	pthread_mutex_lock(&lock);
	for (p = &files; *p; p = &(*p)->next)
		if ((*p)->fd == fd) {
			f = *p;
			*p = f->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	close(fd);
	/* Another thread may still wait in umad_recv: the struct stays. */
	(void)f;
	return 0;
}

int umad_get_fd(int fd)
{
	return fd;
}

static int do_register(int fd, int class, int version, int rmpp, uint32_t oui, const void *mask)
{
	struct file *f = file_of(fd);
	uint8_t q[36];
	uint32_t v[5], id;

	if (!f)
		return -EINVAL;
	v[0] = f->id;
	v[1] = class;
	v[2] = version;
	v[3] = rmpp;
	v[4] = oui;
	memcpy(q, v, 20);
	if (mask)
		memcpy(q + 20, mask, 16);
	else
		memset(q + 20, 0, 16);
	if (question(F_REGISTER, q, sizeof(q), &id, 4) < 4)
		return -EPERM;
	return id;
}

int umad_register_oui(int fd, int class, uint8_t rmpp, uint8_t oui[3], long mask[])
{
	if (class < 0x30 || class > 0x4f)
		return -EINVAL;
	return do_register(fd, class, 1, rmpp, oui[0] << 16 | oui[1] << 8 | oui[2], mask);
}

int umad_register(int fd, int class, int version, uint8_t rmpp, long mask[])
{
	return do_register(fd, class, version, rmpp, 0x001405, mask);
}

int umad_register2(int fd, struct umad_reg_attr *a, uint32_t *id)
{
	int r;

	if (!a || !id)
		return EINVAL;
	r = do_register(fd, a->mgmt_class, a->mgmt_class_version, a->rmpp_version, a->oui, a->method_mask);
	if (r < 0)
		return -r;
	*id = r;
	return 0;
}

int umad_unregister(int fd, int agent)
{
	struct file *f = file_of(fd);
	uint32_t q[2];

	if (!f)
		return -EINVAL;
	q[0] = f->id;
	q[1] = agent;
	return question(F_UNREGISTER, q, sizeof(q), NULL, 0) < 0 ? -errno : 0;
}

int umad_send(int fd, int agent, void *umad, int length, int timeout, int retries)
{
	struct file *f = file_of(fd);
	uint32_t h[4] = { agent, 0, timeout < 0 ? 0 : timeout, retries };
	int r;

	if (!f || length < 24)
		return -EINVAL;
	memcpy(umad, h, sizeof(h));
	pthread_mutex_lock(&f->wr);
	r = send_frame(fd, F_MAD, umad, HDR + length, NULL, 0);
	pthread_mutex_unlock(&f->wr);
	if (r < 0) {
		errno = EIO;
		return -EIO;
	}
	return 0;
}

static int wait_fd(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int r = poll(&p, 1, ms);

	if (r == 1)
		return 0;
	return r == 0 ? -ETIMEDOUT : -EIO;
}

int umad_poll(int fd, int ms)
{
	struct file *f = file_of(fd);

	if (!f)
		return -EINVAL;
	if (f->pending)
		return 0;
	return wait_fd(fd, ms);
}

int umad_recv(int fd, void *umad, int *length, int ms)
{
	struct file *f = file_of(fd);
	uint32_t h[2], id;
	int r;

	errno = 0;
	if (!f || !umad || !length) {
		errno = EINVAL;
		return -EINVAL;
	}
	if (ms && !f->pending && (r = wait_fd(fd, ms)) < 0) {
		if (!errno)
			errno = -r;
		return r;
	}
	pthread_mutex_lock(&f->rd);
	if (!f->pending) {
		r = ms ? 0 : wait_fd(fd, 0);
		if (r < 0) {
			pthread_mutex_unlock(&f->rd);
			errno = EWOULDBLOCK;
			return -EWOULDBLOCK;
		}
		if (read_all(fd, h, sizeof(h)) < 0 || h[0] < HDR || h[0] > MAX_FRAME || h[1] != F_MAD ||
		    !(f->pending = malloc(h[0])))
			goto io;
		f->pending_len = h[0];
		if (read_all(fd, f->pending, h[0]) < 0) {
			free(f->pending);
			f->pending = NULL;
			goto io;
		}
	}
	memcpy(&id, f->pending, 4);
	if (f->pending_len > (uint32_t)(HDR + *length)) {
		/* As the kernel's read: say how much there is and keep it. */
		memcpy(umad, f->pending, HDR + *length);
		*length = f->pending_len - HDR;
		pthread_mutex_unlock(&f->rd);
		errno = ENOSPC;
		return -ENOSPC;
	}
	memcpy(umad, f->pending, f->pending_len);
	*length = f->pending_len - HDR;
	free(f->pending);
	f->pending = NULL;
	pthread_mutex_unlock(&f->rd);
	return id;
io:
	pthread_mutex_unlock(&f->rd);
	errno = EIO;
	return -EIO;
}

/* The accessors: their offsets belong to the header with P_Key index. */

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
