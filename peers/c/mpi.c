/* MPICH or Open MPI, two ranks over TCP. Both spin while they wait, and share memory between ranks
 * of one host unless they are told not to.
 *
 *             docs                   best
 * one-way     MPI_Send to MPI_Recv   windows of persistent requests
 * round-trip  MPI_Send and MPI_Recv  the answer's receive is posted before
 * bandwidth   MPI_Send to MPI_Recv   two payloads under way
 *
 * The program itself becomes the launcher, which starts it again as each rank. The near end is rank
 * 0, which has the launcher's stdin and stdout. */
#include "peer.h"
#include <limits.h>
#include <mpi.h>

#if defined WANT_MPICH && !defined MPICH_VERSION
#error this mpicc is not the one of MPICH
#endif
#if defined WANT_OPEN_MPI && !defined OPEN_MPI
#error this mpicc is not the one of Open MPI
#endif

#ifdef WANT_MPICH
#define NAME "mpich"
#define RANK_VARIABLE "PMI_RANK"
#else
#define NAME "openmpi"
#define RANK_VARIABLE "OMPI_COMM_WORLD_RANK"
#endif

enum {
    TAG_MESSAGE = 1,
    TAG_ORDER,
    TAG_DONE,
    /* Messages of a window. Open MPI is slower with 64 and more, MPICH the same. */
    WINDOW = 16,
    PAYLOADS = 2,
    /* Time after which a rank is ended that does not leave MPI_Finalize. */
    FINALIZE_S = 2
};

static int rank, other, window;
static pid_t far_process;
static unsigned char *messages;
static MPI_Request *requests;
static uint64_t next;

/* ---- Start. */

static void print_version(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    char *number = text + strcspn(text, "0123456789");
    printf(NAME " %.*s\n", (int)strspn(number, "0123456789."), number);
    fflush(stdout);
}

/* Returns if there is no launcher. */
static void become_launcher(char **words)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        fail("the program's file is not known");
    self[length] = 0;
#ifdef WANT_MPICH
    /* For each of the network layers that MPICH may have been built with. */
    setenv("MPIR_CVAR_NOLOCAL", "1", 1);
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    setenv("FI_PROVIDER", "tcp", 1);
    char *command[] = {"mpiexec.mpich", "-n", "2", self, "--rank", words[1], words[2], words[3],
                       words[4], words[5], NULL};
#else
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char *command[] = {"mpirun.openmpi", "-q", "-n", "2", "--oversubscribe", "--bind-to", "none",
                       "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca",
                       "btl_tcp_if_include", "lo", self, "--rank", words[1], words[2], words[3],
                       words[4], words[5], NULL};
#endif
    execvp(command[0], command);
    fail("%s: %s", command[0], strerror(errno));
}

static void refuse(const char *reason)
{
    fprintf(stderr, "peer-%s: %s\n", setting.name, reason);
    exit(STATUS_NO_BENCH);
}

/* ---- Slices, at both ends. */

static void send_one(unsigned char *message)
{
    MPI_Send(message, (int)setting.bytes, MPI_BYTE, other, TAG_MESSAGE, MPI_COMM_WORLD);
}

static void receive_one(unsigned char *message)
{
    MPI_Recv(message, (int)setting.bytes, MPI_BYTE, other, TAG_MESSAGE, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
}

static void make_window(void)
{
    window = !setting.best ? 1 : setting.bench == BANDWIDTH ? PAYLOADS : WINDOW;
    messages = memory((size_t)window * setting.bytes);
    requests = memory((size_t)window * sizeof *requests);
    for (int at = 0; at < window; at++) {
        unsigned char *message = messages + (size_t)at * setting.bytes;
        if (rank == 0)
            MPI_Send_init(message, (int)setting.bytes, MPI_BYTE, other, TAG_MESSAGE, MPI_COMM_WORLD,
                          &requests[at]);
        else
            MPI_Recv_init(message, (int)setting.bytes, MPI_BYTE, other, TAG_MESSAGE, MPI_COMM_WORLD,
                          &requests[at]);
    }
}

static void windows(uint64_t first, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        int part = count - done < (uint64_t)window ? (int)(count - done) : window;
        for (int at = 0; rank == 0 && at < part; at++)
            stamp(messages + (size_t)at * setting.bytes, setting.bytes, first + done + (uint64_t)at);
        MPI_Startall(part, requests);
        MPI_Waitall(part, requests, MPI_STATUSES_IGNORE);
        for (int at = 0; rank == 1 && at < part; at++)
            verify(messages + (size_t)at * setting.bytes, setting.bytes,
                   first + done + (uint64_t)at);
        done += (uint64_t)part;
    }
}

static void one_by_one(uint64_t first, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++) {
        if (rank == 0) {
            stamp(messages, setting.bytes, first + at);
            send_one(messages);
        } else {
            receive_one(messages);
            verify(messages, setting.bytes, first + at);
        }
    }
}

static void ask(uint64_t first, uint64_t count, uint64_t *samples_ns)
{
    unsigned char *answer = setting.best ? messages + setting.bytes : messages;
    for (uint64_t at = 0; at < count; at++) {
        MPI_Request request = MPI_REQUEST_NULL;
        stamp(messages, setting.bytes, first + at);
        uint64_t started_ns = now_ns();
        if (setting.best) {
            MPI_Irecv(answer, (int)setting.bytes, MPI_BYTE, other, TAG_MESSAGE, MPI_COMM_WORLD,
                      &request);
            send_one(messages);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            send_one(messages);
            receive_one(answer);
        }
        samples_ns[at] = now_ns() - started_ns;
        verify(answer, setting.bytes, first + at);
    }
}

static void answer(uint64_t first, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++) {
        receive_one(messages);
        verify(messages, setting.bytes, first + at);
        send_one(messages);
    }
}

/* ---- The two ends. */

/* Between slices the far end sleeps: a spinning one would disturb what is measured in turns. */
static void serve(void)
{
    sigset_t wake;
    int received;
    uint64_t order[2];
    sigemptyset(&wake);
    sigaddset(&wake, SIGUSR1);
    for (;;) {
        sigwait(&wake, &received);
        MPI_Recv(order, 2, MPI_UINT64_T, other, TAG_ORDER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (order[1] == 0)
            return;
        if (setting.bench == ROUND_TRIP)
            answer(order[0], order[1]);
        else if (setting.best)
            windows(order[0], order[1]);
        else
            one_by_one(order[0], order[1]);
        MPI_Send(order, 1, MPI_UINT64_T, other, TAG_DONE, MPI_COMM_WORLD);
    }
}

static void give_order(uint64_t count)
{
    uint64_t order[2] = {next, count};
    if (kill(far_process, SIGUSR1))
        fail("the far end is gone");
    MPI_Send(order, 2, MPI_UINT64_T, other, TAG_ORDER, MPI_COMM_WORLD);
}

static void slice(uint64_t count, int is_printed)
{
    uint64_t done, *samples_ns = NULL;
    if (setting.bench == ROUND_TRIP)
        samples_ns = memory(count * sizeof *samples_ns);
    give_order(count);
    uint64_t started_ns = now_ns();
    if (samples_ns)
        ask(next, count, samples_ns);
    else if (setting.best)
        windows(next, count);
    else
        one_by_one(next, count);
    MPI_Recv(&done, 1, MPI_UINT64_T, other, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    uint64_t took_ns = now_ns() - started_ns;
    next += count;
    if (is_printed)
        print_slice(took_ns, count, samples_ns);
    free(samples_ns);
}

static void finalized_late(int signal)
{
    (void)signal;
    _exit(0);
}

static void run_rank(void)
{
    sigset_t wake;
    const char *word = getenv(RANK_VARIABLE);
    if (!word)
        fail("there is no " RANK_VARIABLE " in the environment");
    /* Before MPI starts threads: they are pinned too, and leave the signal to `serve`. */
    pin(atoi(word) == 0 ? setting.near_core : setting.far_core);
    sigemptyset(&wake);
    sigaddset(&wake, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wake, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    make_window();
    int process = (int)getpid();
    if (rank == 1) {
        broken = NOTHING;
        MPI_Send(&process, 1, MPI_INT, other, TAG_DONE, MPI_COMM_WORLD);
        serve();
    } else {
        uint64_t count;
        MPI_Recv(&process, 1, MPI_INT, other, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        far_process = process;
        slice(1, 0);
        print_version();
        while (next_count(&count))
            slice(count, 1);
        give_order(0);
    }
    signal(SIGALRM, finalized_late);
    alarm(FINALIZE_S);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        print_version();
        return 0;
    }
    int is_rank = argc > 1 && !strcmp(argv[1], "--rank");
    parse(NAME, is_rank, argc, argv);
    if (setting.bench == CALLS)
        refuse("MPI has no calls");
    if (setting.bench == IDLE)
        refuse("MPI opens no further connections between two ranks");
    if (setting.bytes > INT_MAX)
        fail("a message has at most %d bytes", INT_MAX);
    if (is_rank)
        run_rank();
    else
        become_launcher(argv);
    return 0;
}
