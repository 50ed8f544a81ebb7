/* Round trips of one message between two ranks; rank 0 prints each in nanoseconds.
 * Arguments: bytes of a message, round trips. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef MPICH_VERSION
#error this mpicc is not the one of MPICH
#endif

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The answer carries the next number. */
static void check(const char *message, uint64_t expected)
{
    uint64_t number;
    memcpy(&number, message, sizeof number);
    if (number != expected) {
        fprintf(stderr, "message %llu carries %llu\n", (unsigned long long)expected,
                (unsigned long long)number);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3 || ranks != 2 || atoi(argv[1]) < (int)sizeof(uint64_t))
        MPI_Abort(MPI_COMM_WORLD, 2);
    int bytes = atoi(argv[1]), peer = 1 - rank;
    uint64_t count = strtoull(argv[2], NULL, 10);
    char *message = calloc(1, (size_t)bytes);
    uint64_t *samples_ns = calloc((size_t)count + 1, sizeof *samples_ns);
    if (!message || !samples_ns)
        MPI_Abort(MPI_COMM_WORLD, 3);

    for (uint64_t sequence = 0; sequence < count; sequence++) {
        uint64_t answer = sequence + 1;
        if (rank == 0) {
            memcpy(message, &sequence, sizeof sequence);
            uint64_t started_ns = now_ns();
            MPI_Send(message, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
            MPI_Recv(message, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            samples_ns[sequence] = now_ns() - started_ns;
            check(message, answer);
        } else {
            MPI_Recv(message, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(message, sequence);
            memcpy(message, &answer, sizeof answer);
            MPI_Send(message, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        }
    }
    for (uint64_t index = 0; rank == 0 && index < count; index++)
        printf("%llu\n", (unsigned long long)samples_ns[index]);
    MPI_Finalize();
    return 0;
}
