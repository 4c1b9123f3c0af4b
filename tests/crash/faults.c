/* Lets the N-th change that a process makes below one folder fail: loaded before libc.
 *
 * A change is a file opened for writing, bytes written to it, cut, handed to the disk, renamed,
 * made or removed, whoever makes it: Python, or the C++ of a library. `faults_begin` counts from 0;
 * at the change number `at` the process dies before it (KILL), dies after half of the bytes (TORN),
 * or is told ENOSPC or EIO, from then on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL, TORN, FAIL };
static char root[PATH_MAX];
static long count, at = -1;
static int mode, failure;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void faults_begin(const char *folder, long number, int how, int error) {
  snprintf(root, sizeof root, "%s/", folder);
  count = 0, at = number, mode = how, failure = error;
}

long faults_count(void) { return count; }

/* Whether this change fails; does not return if the process is to die before it. */
static int fails(int is_write) {
  pthread_mutex_lock(&lock);
  long number = count++;
  pthread_mutex_unlock(&lock);
  if (at < 0 || number < at) return 0;
  if (mode == FAIL) return errno = failure, 1;
  if (mode == TORN && is_write) return 1;
  _exit(9);
}

static int inside(int folder, const char *path) {
  char whole[PATH_MAX], link[64];
  if (!root[0] || !path) return 0;
  if (path[0] == '/') return !strncmp(path, root, strlen(root));
  if (folder == AT_FDCWD) {
    if (!getcwd(whole, sizeof whole)) return 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, whole, sizeof whole - 1);
    if (length < 0) return 0;
    whole[length] = 0;
  }
  strncat(whole, "/", sizeof whole - strlen(whole) - 1);
  strncat(whole, path, sizeof whole - strlen(whole) - 1);
  return !strncmp(whole, root, strlen(root));
}

static int inside_fd(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = root[0] ? readlink(link, path, sizeof path - 1) : -1;
  if (length < 0) return 0;
  path[length] = 0;
  strncat(path, "/", sizeof path - strlen(path) - 1);
  return !strncmp(path, root, strlen(root));
}

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND))
#define PERMISSIONS(flags) \
  mode_t permissions = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list more; \
    va_start(more, flags); \
    permissions = va_arg(more, mode_t); \
    va_end(more); \
  }
#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    PERMISSIONS(flags) \
    if (WRITES(flags) && inside(AT_FDCWD, path) && fails(0)) return -1; \
    return REAL(name)(path, flags, permissions); \
  }
#define OPENAT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    PERMISSIONS(flags) \
    if (WRITES(flags) && inside(folder, path) && fails(0)) return -1; \
    return REAL(name)(folder, path, flags, permissions); \
  }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

/* A torn write puts half of the bytes into the file; then there is no more process. */
ssize_t write(int fd, const void *data, size_t size) {
  if (inside_fd(fd) && fails(1)) {
    if (mode == FAIL) return -1;
    REAL(write)(fd, data, size / 2);
    _exit(9);
  }
  return REAL(write)(fd, data, size);
}

#define PWRITE(name) \
  ssize_t name(int fd, const void *data, size_t size, off64_t offset) { \
    if (inside_fd(fd) && fails(1)) { \
      if (mode == FAIL) return -1; \
      REAL(pwrite64)(fd, data, size / 2, offset); \
      _exit(9); \
    } \
    return REAL(pwrite64)(fd, data, size, offset); \
  }
PWRITE(pwrite) PWRITE(pwrite64)

#define WRITEV(name, parameters, arguments) \
  ssize_t name parameters { \
    if (inside_fd(fd) && fails(1)) { \
      if (mode == FAIL) return -1; \
      REAL(write)(fd, parts[0].iov_base, parts[0].iov_len / 2); \
      _exit(9); \
    } \
    return REAL(name) arguments; \
  }
WRITEV(writev, (int fd, const struct iovec *parts, int number), (fd, parts, number))
WRITEV(pwritev, (int fd, const struct iovec *parts, int number, off_t offset),
       (fd, parts, number, offset))
WRITEV(pwritev64, (int fd, const struct iovec *parts, int number, off64_t offset),
       (fd, parts, number, offset))

#define CHANGE(name, parameters, arguments, where) \
  int name parameters { \
    if (where && fails(0)) return -1; \
    return REAL(name) arguments; \
  }
CHANGE(fsync, (int fd), (fd), inside_fd(fd))
CHANGE(fdatasync, (int fd), (fd), inside_fd(fd))
CHANGE(ftruncate, (int fd, off_t size), (fd, size), inside_fd(fd))
CHANGE(ftruncate64, (int fd, off64_t size), (fd, size), inside_fd(fd))
CHANGE(rename, (const char *a, const char *b), (a, b), inside(AT_FDCWD, b))
CHANGE(renameat, (int i, const char *a, int j, const char *b), (i, a, j, b), inside(j, b))
CHANGE(renameat2, (int i, const char *a, int j, const char *b, unsigned flags), (i, a, j, b, flags),
       inside(j, b))
CHANGE(link, (const char *a, const char *b), (a, b), inside(AT_FDCWD, b))
CHANGE(mkdir, (const char *path, mode_t bits), (path, bits), inside(AT_FDCWD, path))
CHANGE(mkdirat, (int i, const char *path, mode_t bits), (i, path, bits), inside(i, path))
CHANGE(unlink, (const char *path), (path), inside(AT_FDCWD, path))
CHANGE(unlinkat, (int i, const char *path, int flags), (i, path, flags), inside(i, path))
CHANGE(rmdir, (const char *path), (path), inside(AT_FDCWD, path))
