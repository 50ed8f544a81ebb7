/* A farm: rank 0 gives tasks to the other ranks and prints the nanoseconds from the first task to
 * the last result. Arguments: bytes of a task, tasks, iterations of each task's loop, unanswered
 * tasks that a worker holds. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef MPICH_VERSION
#error this mpicc is not the one of MPICH
#endif

/* An unanswered task of a worker. Answers come in the order of the tasks, so that a slot's receive
 * gets the answer to the slot's task. */
struct slot {
    uint64_t number, answer;
    char *task;
    MPI_Request sent;
    int worker;
};

static int bytes;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *why, uint64_t number)
{
    fprintf(stderr, "error: task %llu: %s\n", (unsigned long long)number, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return memory;
}

static char check_byte(uint64_t number)
{
    return (char)(number * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static uint64_t answer_of(uint64_t number)
{
    return (number << 19 | number >> 45) ^ UINT64_C(0x6368756e6b706572);
}

/* The loop of harness/work.rs. */
static void iterate(uint64_t iterations)
{
    volatile uint64_t start = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t state = start;
    while (iterations--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    start = state;
}

/* Sends a task of number and check byte. Eight bytes have the check byte as the number's highest. */
static void give(struct slot *slot, uint64_t number)
{
    slot->number = number;
    memcpy(slot->task, &number, sizeof number);
    slot->task[bytes - 1] = check_byte(number);
    MPI_Isend(slot->task, bytes, MPI_BYTE, slot->worker, 0, MPI_COMM_WORLD, &slot->sent);
}

/* Returns the nanoseconds of `tasks` tasks, at most `count` unanswered. */
static uint64_t farm(struct slot *slots, MPI_Request *answers, int count, uint64_t tasks)
{
    int *done = allocate((size_t)count, sizeof *done);
    uint64_t next = 0, answered = 0, started_ns = now_ns();
    for (int index = 0; index < count && next < tasks; index++) {
        struct slot *slot = &slots[index];
        MPI_Irecv(&slot->answer, 8, MPI_BYTE, slot->worker, 0, MPI_COMM_WORLD, &answers[index]);
        give(slot, next++);
    }
    while (answered < tasks) {
        int ready;
        MPI_Waitsome(count, answers, &ready, done, MPI_STATUSES_IGNORE);
        for (int at = 0; at < ready; at++, answered++) {
            struct slot *slot = &slots[done[at]];
            if (slot->answer != answer_of(slot->number))
                fail("the answer is wrong", slot->number);
            MPI_Wait(&slot->sent, MPI_STATUS_IGNORE);
            if (next == tasks)
                continue;
            MPI_Irecv(&slot->answer, 8, MPI_BYTE, slot->worker, 0, MPI_COMM_WORLD,
                      &answers[done[at]]);
            give(slot, next++);
        }
    }
    uint64_t time_ns = now_ns() - started_ns;
    free(done);
    return time_ns;
}

static void farmer(int workers, uint64_t tasks, int prefetch)
{
    int count = workers * prefetch;
    struct slot *slots = allocate((size_t)count, sizeof *slots);
    MPI_Request *answers = allocate((size_t)count, sizeof *answers);
    for (int index = 0; index < count; index++) {
        slots[index].worker = 1 + index % workers;
        slots[index].task = allocate((size_t)bytes, 1);
        answers[index] = MPI_REQUEST_NULL;
    }
    /* Uncounted tasks, some for each worker: connections are made and buffers grow. */
    farm(slots, answers, count, tasks / 10 + (uint64_t)workers);
    printf("%llu\n", (unsigned long long)farm(slots, answers, count, tasks));
    for (int worker = 1; worker <= workers; worker++)
        MPI_Send(NULL, 0, MPI_BYTE, worker, 0, MPI_COMM_WORLD);
}

/* Works until an empty task comes. */
static void work(uint64_t iterations, int prefetch)
{
    char *task = allocate((size_t)bytes, 1);
    uint64_t *results = allocate((size_t)prefetch, sizeof *results);
    MPI_Request *sent = allocate((size_t)prefetch, sizeof *sent);
    for (int index = 0; index < prefetch; index++)
        sent[index] = MPI_REQUEST_NULL;
    for (int index = 0;; index = (index + 1) % prefetch) {
        MPI_Status status;
        int received;
        uint64_t number;
        MPI_Recv(task, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (received == 0)
            break;
        memcpy(&number, task, sizeof number);
        if (bytes == 8)
            number &= UINT64_MAX >> 8;
        if (received != bytes || task[bytes - 1] != check_byte(number))
            fail("wrong length or check byte", number);
        iterate(iterations);
        MPI_Wait(&sent[index], MPI_STATUS_IGNORE);
        results[index] = answer_of(number);
        MPI_Isend(&results[index], 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &sent[index]);
    }
    MPI_Waitall(prefetch, sent, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5 || ranks < 2 || atoi(argv[1]) < 8 || atoi(argv[4]) < 1)
        MPI_Abort(MPI_COMM_WORLD, 2);
    bytes = atoi(argv[1]);
    int prefetch = atoi(argv[4]);
    if (rank == 0)
        farmer(ranks - 1, strtoull(argv[2], NULL, 10), prefetch);
    else
        work(strtoull(argv[3], NULL, 10), prefetch);
    /* Without the barrier, 3 in 100 runs of MPICH 4.0 over UCX hung after the last message. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
