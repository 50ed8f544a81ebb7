/* The parts that the programs of C have in common: arguments, cores, messages, and the words on
 * stdin and stdout. `src/lib.rs` is the same for those of Rust, and describes the words. */
#ifndef PEER_H
#define PEER_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum bench { ONE_WAY, ROUND_TRIP, CALLS, BANDWIDTH, IDLE, BENCHES };

static const char *const BENCH_NAMES[BENCHES] = {"one-way", "round-trip", "calls", "bandwidth",
                                                 "idle"};

enum {
    STATUS_FAILED = 1,
    STATUS_USAGE = 2,
    STATUS_NO_BENCH = 3,
    /* Calls under way at a time. */
    IN_FLIGHT = 256,
    MESSAGE_BYTES_MIN = 8,
    /* Number of the message that PEER_BREAK corrupts: in the first slice of three or more. */
    BROKEN_SEQUENCE = 2
};

/* Number bits of a message of eight bytes; the check byte takes the others. */
#define NUMBER_MASK ((UINT64_C(1) << 56) - 1)

struct setting {
    const char *name;
    enum bench bench;
    size_t bytes;
    int near_core, far_core; /* -1: not pinned */
    int best;
};

enum broken { NOTHING, ORDER, CHECK_BYTE };

static struct setting setting;
static enum broken broken;

static inline void fail(const char *cause, ...)
{
    va_list values;
    va_start(values, cause);
    fprintf(stderr, "peer-%s: ", setting.name);
    vfprintf(stderr, cause, values);
    fputc('\n', stderr);
    _exit(STATUS_FAILED);
}

static inline uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline void *memory(size_t bytes)
{
    void *block = aligned_alloc(4096, (bytes + 4096) & ~(size_t)4095);
    if (!block)
        fail("no memory for %zu bytes", bytes);
    memset(block, 0x5a, bytes);
    return block;
}

/* ---- Messages: number first, check byte last, as crates/bench/src/message.rs has them. */

static inline unsigned char check_byte(uint64_t sequence)
{
    return (unsigned char)((sequence * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static inline void stamp(unsigned char *message, size_t bytes, uint64_t sequence)
{
    if (__builtin_expect(broken != NOTHING && sequence == BROKEN_SEQUENCE, 0))
        sequence += broken == ORDER;
    memcpy(message, &sequence, 8);
    message[bytes - 1] = check_byte(sequence);
    if (__builtin_expect(broken == CHECK_BYTE && sequence == BROKEN_SEQUENCE, 0))
        message[bytes - 1] ^= 1;
}

static inline uint64_t number_of(const unsigned char *message, size_t bytes)
{
    uint64_t number;
    memcpy(&number, message, 8);
    return bytes == 8 ? number & NUMBER_MASK : number;
}

static inline void verify(const unsigned char *message, size_t bytes, uint64_t sequence)
{
    if (bytes != setting.bytes)
        fail("message %llu has %zu bytes", (unsigned long long)sequence, bytes);
    uint64_t number = number_of(message, bytes);
    if (number != sequence)
        fail("message %llu carries number %llu", (unsigned long long)sequence,
             (unsigned long long)number);
    if (message[bytes - 1] != check_byte(sequence))
        fail("message %llu carries a wrong check byte", (unsigned long long)sequence);
}

/* ---- Arguments and cores. */

static inline int core_of(const char *text)
{
    return strcmp(text, "-") ? atoi(text) : -1;
}

static inline void usage(void)
{
    fprintf(stderr,
            "usage: peer-%s one-way|round-trip|calls|bandwidth|idle BYTES NEAR FAR docs|best\n"
            "       peer-%s --version\n"
            "NEAR, FAR: core of each end, or - for any\n",
            setting.name, setting.name);
    exit(STATUS_USAGE);
}

/* Takes the five arguments that stand after the first `skipped`. */
static inline void parse(const char *name, int skipped, int argc, char **argv)
{
    setting.name = name;
    if (argc != skipped + 6)
        usage();
    argv += skipped;
    setting.bench = BENCHES;
    for (int bench = 0; bench < BENCHES; bench++)
        if (!strcmp(argv[1], BENCH_NAMES[bench]))
            setting.bench = (enum bench)bench;
    setting.bytes = strtoull(argv[2], NULL, 10);
    setting.near_core = core_of(argv[3]);
    setting.far_core = core_of(argv[4]);
    setting.best = !strcmp(argv[5], "best");
    if (setting.bench == BENCHES || (!setting.best && strcmp(argv[5], "docs")))
        usage();
    /* The size of `idle` is its number of connections, for information only. */
    if (setting.bench != IDLE && setting.bytes < MESSAGE_BYTES_MIN)
        fail("a message has at least %d bytes", MESSAGE_BYTES_MIN);
    const char *word = getenv("PEER_BREAK");
    broken = !word ? NOTHING : !strcmp(word, "order") ? ORDER : CHECK_BYTE;
}

/* Called before any thread is started, so that all are on the core. */
static inline void pin(int core)
{
    cpu_set_t set;
    if (core < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("core %d: %s", core, strerror(errno));
}

/* ---- Words on stdin and stdout. */

/* Reads the length of the next slice; returns 0 at the end of stdin. */
static inline int next_count(uint64_t *count)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        return 0;
    char *end;
    *count = strtoull(line, &end, 10);
    if (end == line || *count == 0)
        fail("not a number of messages: %.20s", line);
    return 1;
}

static inline int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Prints a slice; `samples_ns` has one time a message, or is null. */
static inline void print_slice(uint64_t ns, uint64_t count, uint64_t *samples_ns)
{
    printf("{\"seconds\":%.9f,\"count\":%llu,", (double)ns / 1e9, (unsigned long long)count);
    if (samples_ns) {
        qsort(samples_ns, count, sizeof *samples_ns, ascending);
        printf("\"p50_us\":%.3f,\"p99_us\":%.3f}\n", (double)samples_ns[count * 50 / 100] / 1e3,
               (double)samples_ns[count * 99 / 100] / 1e3);
    } else {
        printf("\"p50_us\":null,\"p99_us\":null}\n");
    }
    fflush(stdout);
}

static inline void print_idle(uint64_t count, int64_t bytes)
{
    printf("{\"count\":%llu,\"bytes\":%lld}\n", (unsigned long long)count, (long long)bytes);
    fflush(stdout);
}

/* ---- Counters of processes. */

static inline int64_t resident_bytes(pid_t process)
{
    char line[256];
    int64_t kib = -1;
    snprintf(line, sizeof line, "/proc/%d/status", (int)process);
    FILE *status = fopen(line, "r");
    while (status && kib < 0 && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmRSS:", 6))
            kib = strtoll(line + 6, NULL, 10);
    if (status)
        fclose(status);
    if (kib < 0)
        fail("the resident memory of process %d is not known", (int)process);
    return kib * 1024;
}

static inline uint64_t open_files(pid_t process)
{
    char path[64];
    uint64_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *files = opendir(path);
    while (files && readdir(files))
        count++;
    if (files)
        closedir(files);
    return count;
}

static inline void allow_open_files(void)
{
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

#endif
