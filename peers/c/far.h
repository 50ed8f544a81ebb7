/* The far end as a child of the near end, with a pipe each way. An order is a first number and a
 * number of messages; the far end answers that it is ready, and later that all were right. */
#ifndef FAR_H
#define FAR_H
#include "peer.h"
#include <sys/wait.h>

struct order {
    uint64_t first, count;
};

static pid_t far_process;
static int to_other = -1, from_other = -1;

static inline int take(void *bytes, size_t count)
{
    size_t taken = 0;
    while (taken < count) {
        ssize_t more = read(from_other, (char *)bytes + taken, count - taken);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return 0;
        taken += (size_t)more;
    }
    return 1;
}

static inline void put(const void *bytes, size_t count)
{
    if (write(to_other, bytes, count) != (ssize_t)count)
        fail("the other end is gone");
}

/* The far end has told its cause on stderr. The near end may wait for it in a library's call. */
static inline void far_ended(int signal)
{
    (void)signal;
    _exit(STATUS_FAILED);
}

/* Splits the process; returns whether this one is the far end. Both are pinned. */
static inline int split(void)
{
    int orders[2], answers[2];
    pid_t near_process = getpid();
    if (pipe(orders) || pipe(answers))
        fail("pipe: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, far_ended);
    far_process = fork();
    if (far_process < 0)
        fail("fork: %s", strerror(errno));
    int is_far = far_process == 0;
    if (is_far) {
        signal(SIGCHLD, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The near end may have died before this. */
        if (getppid() != near_process)
            _exit(STATUS_FAILED);
        broken = NOTHING;
    }
    to_other = is_far ? answers[1] : orders[1];
    from_other = is_far ? orders[0] : answers[0];
    close(is_far ? orders[1] : orders[0]);
    close(is_far ? answers[0] : answers[1]);
    pin(is_far ? setting.far_core : setting.near_core);
    allow_open_files();
    return is_far;
}

/* Gives the far end an order; returns when it is ready for the messages. */
static inline void give_order(uint64_t first, uint64_t count)
{
    char ready;
    struct order order = {first, count};
    put(&order, sizeof order);
    if (!take(&ready, 1))
        pause();
}

/* Waits until the far end has verified the last message of the order. */
static inline void await_far(void)
{
    char done;
    if (!take(&done, 1))
        pause();
}

/* Takes the next order; the far end ends when there is none. */
static inline struct order take_order(void)
{
    struct order order;
    if (!take(&order, sizeof order))
        _exit(0);
    put("r", 1);
    return order;
}

static inline void order_done(void)
{
    put("d", 1);
}

/* Ends both ends. */
static inline void end_far(void)
{
    signal(SIGCHLD, SIG_DFL);
    close(to_other);
    int status = 0;
    if (waitpid(far_process, &status, 0) != far_process || status != 0)
        fail("the far end failed");
}

#endif
