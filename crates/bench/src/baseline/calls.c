/* One rank of a collective call, as harness/ranks.rs commands it. Arguments: control port, operation,
 * bytes of a rank's vector, request (blocking, nonblocking or persistent), wait (wait, or yield: look
 * and give the core away). Elements are those of harness/calls.rs. */
#define _GNU_SOURCE
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#if defined WANT_MPICH && !defined MPICH_VERSION
#error this mpicc is not the one of MPICH
#endif
#if defined WANT_OPEN_MPI && !defined OPEN_MPI
#error this mpicc is not the one of Open MPI
#endif
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Open MPI 4 has persistent collectives as an extension. */
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

enum { BARRIER, BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, SCAN };
static const char *const OPERATIONS[] = {"barrier",    "broadcast",  "reduce", "all-reduce",
                                         "all-gather", "all-to-all", "scan"};
enum { PERIOD = 4093, CALLS = 997 };

static int rank, ranks, operation, yields, persistent, blocking;
static int len; /* elements of a rank's vector */
static double *in, *out;
static MPI_Request standing;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *why)
{
    fprintf(stderr, "error: rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *vector(size_t count)
{
    double *memory = calloc(count ? count : 1, sizeof *memory);
    if (!memory)
        fail("no memory");
    return memory;
}

static double given(int of, uint64_t call)
{
    return of + 3.0 * (double)(call % CALLS);
}

static void fill(uint64_t call)
{
    if (operation == BARRIER || (operation == BROADCAST && rank > 0))
        return;
    double add = given(rank, call);
    for (int index = 0; index < len; index++)
        in[index] = index % PERIOD + add;
}

/* Returns whether elements are `(start + index) % PERIOD * scale + add`. */
static int are(const double *elements, int start, int count, double scale, double add)
{
    int wrong = 0;
    for (int index = 0; index < count; index++)
        wrong += elements[index] != (start + index) % PERIOD * scale + add;
    return wrong == 0;
}

static int is_sum(int count, uint64_t call)
{
    double add = 0;
    for (int of = 0; of < count; of++)
        add += given(of, call);
    return are(out, 0, len, count, add);
}

static int is_right(uint64_t call)
{
    int each = len / ranks, right = 1;
    switch (operation) {
    case BROADCAST:
        return are(rank ? out : in, 0, len, 1, given(0, call));
    case REDUCE:
        return rank > 0 || is_sum(ranks, call);
    case ALL_REDUCE:
        return is_sum(ranks, call);
    case SCAN:
        return is_sum(rank + 1, call);
    case ALL_GATHER:
        for (int of = 0; of < ranks; of++)
            right &= are(out + (size_t)of * len, 0, len, 1, given(of, call));
        return right;
    case ALL_TO_ALL:
        for (int of = 0; of < ranks; of++)
            right &= are(out + (size_t)of * each, rank * each, each, 1, given(of, call));
        return right;
    default:
        return 1;
    }
}

static void finish(MPI_Request *request)
{
    int done = 0;
    if (!yields) {
        MPI_Wait(request, MPI_STATUS_IGNORE);
        return;
    }
    for (MPI_Test(request, &done, MPI_STATUS_IGNORE); !done;
         MPI_Test(request, &done, MPI_STATUS_IGNORE))
        sched_yield();
}

/* Calls the operation by a function whose arguments before the last ones are the same for all ways. */
#define EACH(BARRIER_, BROADCAST_, REDUCE_, ALL_REDUCE_, GATHER_, TO_ALL_, SCAN_, ...)             \
    switch (operation) {                                                                           \
    case BARRIER:                                                                                  \
        BARRIER_(MPI_COMM_WORLD __VA_ARGS__);                                                      \
        break;                                                                                     \
    case BROADCAST:                                                                                \
        BROADCAST_(rank ? out : in, len, MPI_DOUBLE, 0, MPI_COMM_WORLD __VA_ARGS__);               \
        break;                                                                                     \
    case REDUCE:                                                                                   \
        REDUCE_(in, out, len, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD __VA_ARGS__);                 \
        break;                                                                                     \
    case ALL_REDUCE:                                                                               \
        ALL_REDUCE_(in, out, len, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD __VA_ARGS__);                \
        break;                                                                                     \
    case ALL_GATHER:                                                                               \
        GATHER_(in, len, MPI_DOUBLE, out, len, MPI_DOUBLE, MPI_COMM_WORLD __VA_ARGS__);            \
        break;                                                                                     \
    case ALL_TO_ALL:                                                                               \
        TO_ALL_(in, len / ranks, MPI_DOUBLE, out, len / ranks, MPI_DOUBLE,                         \
                MPI_COMM_WORLD __VA_ARGS__);                                                       \
        break;                                                                                     \
    default:                                                                                       \
        SCAN_(in, out, len, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD __VA_ARGS__);                      \
    }
#define COMMA ,

static void call_blocking(void)
{
    EACH(MPI_Barrier, MPI_Bcast, MPI_Reduce, MPI_Allreduce, MPI_Allgather, MPI_Alltoall, MPI_Scan, )
}

static void begin(MPI_Request *request)
{
    EACH(MPI_Ibarrier, MPI_Ibcast, MPI_Ireduce, MPI_Iallreduce, MPI_Iallgather, MPI_Ialltoall,
         MPI_Iscan, COMMA request)
}

static void prepare(MPI_Request *request)
{
    EACH(INIT(Barrier), INIT(Bcast), INIT(Reduce), INIT(Allreduce), INIT(Allgather),
         INIT(Alltoall), INIT(Scan), COMMA MPI_INFO_NULL COMMA request)
}

static void call(void)
{
    MPI_Request request;
    if (blocking) {
        call_blocking();
    } else if (persistent) {
        MPI_Start(&standing);
        finish(&standing);
    } else {
        begin(&request);
        finish(&request);
    }
}

static void meet(void)
{
    MPI_Request request;
    if (!yields) {
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    finish(&request);
}

static void run(uint64_t first, uint64_t calls, uint64_t times_ns[2])
{
    if (calls == 1) {
        fill(first);
        meet();
        times_ns[0] = now_ns();
        call();
        times_ns[1] = now_ns();
        if (!is_right(first))
            fail("a result is wrong");
        return;
    }
    meet();
    times_ns[0] = now_ns();
    for (uint64_t number = first; number < first + calls; number++) {
        fill(number);
        call();
        if (!is_right(number))
            fail("a result is wrong");
    }
    times_ns[1] = now_ns();
}

static void pin(void)
{
    cpu_set_t given_set, set;
    if (sched_getaffinity(0, sizeof given_set, &given_set))
        return;
    int at = rank % CPU_COUNT(&given_set);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &given_set) || at--)
            continue;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        /* A container may forbid pinning; figures are then noisier, not wrong. */
        sched_setaffinity(0, sizeof set, &set);
        return;
    }
}

static void put(int control, const void *words, size_t bytes)
{
    if (send(control, words, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        _exit(1);
}

static int report(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int control = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (control < 0 || connect(control, (void *)&address, sizeof address))
        fail("the control port does not answer");
    setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint64_t hello[3] = {(uint64_t)rank, (uint64_t)getpid(), 0};
    put(control, hello, sizeof hello);
    return control;
}

static void bye(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 6)
        fail("wrong arguments");
    pin();
    while (operation < SCAN && strcmp(argv[2], OPERATIONS[operation]))
        operation++;
    size_t bytes = strtoull(argv[3], NULL, 10);
    blocking = !strcmp(argv[4], "blocking");
    persistent = !strcmp(argv[4], "persistent");
    yields = !strcmp(argv[5], "yield");
    len = (int)(bytes / sizeof *in);
    in = vector((size_t)len);
    out = vector((size_t)len * (operation == ALL_GATHER ? (size_t)ranks : 1));
    if (persistent)
        prepare(&standing);
    meet();
    int control = report(atoi(argv[1]));
    uint64_t order[2], next = 0;
    while (recv(control, order, sizeof order, MSG_WAITALL) == sizeof order && order[0]) {
        for (uint64_t at = 0; at < order[0]; at++, next += order[1]) {
            uint64_t times_ns[2];
            run(next, order[1], times_ns);
            put(control, times_ns, sizeof times_ns);
        }
    }
    /* Ranks that poll busily sometimes never leave MPI_Finalize. */
    signal(SIGALRM, bye);
    alarm(2);
    MPI_Finalize();
    return 0;
}
