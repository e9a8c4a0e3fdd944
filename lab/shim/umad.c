// SPDX-License-Identifier: Apache-2.0
/* Open ports: registration, and MADs sent and received. */
#include "shim.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* an open umad file */
struct file {
	int fd;
	uint32_t id;
	pthread_mutex_t rd, wr;
	uint8_t *pending;	/* a received packet that did not fit yet */
	uint32_t pending_len;
	struct file *next;
};

static struct file *files;

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
