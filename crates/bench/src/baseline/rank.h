/* What all ranks of an MPI have in common: they do what harness/ranks.rs orders. The program behind this
 * defines the functions that are declared here, and main. */
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

static void fill(uint64_t call);
static void call(void);
static int is_right(uint64_t call);

static int rank, ranks, yields, persistent, blocking;

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

static void begin_rank(int *argc, char ***argv, int expected)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (*argc != expected)
        fail("wrong arguments");
    pin();
    blocking = !strcmp((*argv)[expected - 2], "blocking");
    persistent = !strcmp((*argv)[expected - 2], "persistent");
    yields = !strcmp((*argv)[expected - 1], "yield");
}

/* Does what is ordered, until the end is. */
static void serve(int port)
{
    meet();
    int control = report(port);
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
}

