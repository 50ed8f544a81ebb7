/* A clock that stands still, preloaded into a program whose instructions are counted. Under callgrind real
 * time runs on, and timers would go off.
 *
 * The clock moves when the program sleeps until a timer, and nothing else wakes it: to that timer. Random
 * bytes are the same in each run, so that tables of hashes are, too. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>

/* Longest real sleep, in which other threads may run. */
#define SLEEP_MS 20

static _Atomic long long now_ns = 1000000000000;
static _Atomic unsigned drawn = 1;

int clock_gettime(clockid_t clock, struct timespec *at) {
    long long now = atomic_load(&now_ns);
    (void)clock;
    at->tv_sec = now / 1000000000;
    at->tv_nsec = now % 1000000000;
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout_ms) {
    int ready = epoll_pwait(epoll, events, count, timeout_ms > SLEEP_MS ? SLEEP_MS : timeout_ms, 0);
    if (ready == 0 && timeout_ms > 0)
        atomic_fetch_add(&now_ns, timeout_ms * 1000000ll);
    return ready;
}

ssize_t getrandom(void *into, size_t bytes, unsigned flags) {
    unsigned char *next = into;
    (void)flags;
    for (size_t left = bytes; left > 0; left--)
        *next++ = (unsigned char)(atomic_fetch_add(&drawn, 1) * 2654435761u >> 24);
    return (ssize_t)bytes;
}
