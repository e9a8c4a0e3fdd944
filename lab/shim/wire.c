// SPDX-License-Identifier: Apache-2.0
/* The connections to the simulator, and its answers to questions. */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct adapter ca;
static int ask_fd = -1;
static pid_t ask_pid;

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

int read_all(int fd, void *buf, size_t n)
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

int send_frame(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen)
{
	uint32_t h[2] = { alen + blen, type };
	struct iovec v[3] = { { h, sizeof(h) }, { (void *)a, alen }, { (void *)b, blen } };

	return write_all(fd, v, 3);
}

int dial(void)
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

const char *host(void)
{
	const char *h = getenv("SIM_HOST");

	return h ? h : "";
}

/*
 * question_on sends a question and reads the answer behind its errno into out, at
 * most max bytes; the caller holds the lock. It returns the answer's length or
 * -1 with errno.
 */
int question_on(int fd, uint32_t type, const void *a, size_t alen, const void *b, size_t blen, void *out, size_t max)
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

int connected(void)
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

int question(uint32_t type, const void *a, size_t alen, void *out, size_t max)
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
