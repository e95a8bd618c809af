/* Preloaded into a peer. It stops the monotonic clock for as long as the test requires, as on a suspended machine, while
 * CLOCK_BOOTTIME and CLOCK_REALTIME advance. The test controls it through a shared file of two numbers (nanoseconds):
 * how far the clock is behind, and the time at which it stands (0: it runs). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shared;

__attribute__((constructor)) static void share(void) {
  const char *path = getenv("HELD_BACK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    void *at = mmap(0, 2 * sizeof(long long), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
      shared = at;
  }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  long result = syscall(SYS_clock_gettime, clock, time);
  int monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE;
  if (result == 0 && monotonic && shared) {
    long long now = time->tv_sec * 1000000000LL + time->tv_nsec;
    long long stands = shared[1];
    now = (stands && stands < now ? stands : now) - shared[0];
    time->tv_sec = now / 1000000000LL;
    time->tv_nsec = now % 1000000000LL;
  }
  return (int)result;
}
