/* One rank of a collective call. Arguments: control port, operation, bytes of a rank's vector, request
 * (blocking, nonblocking or persistent), wait (wait, or yield: look and give the core away). Elements are
 * those of harness/calls.rs. */
enum { BARRIER, BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, SCAN };
static const char *const OPERATIONS[] = {"barrier",    "broadcast",  "reduce", "all-reduce",
                                         "all-gather", "all-to-all", "scan"};
enum { PERIOD = 4093, CALLS = 997 };

static int operation;
static int len; /* elements of a rank's vector */
static double *in, *out;
static MPI_Request standing;

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

int main(int argc, char **argv)
{
    begin_rank(&argc, &argv, 6);
    while (operation < SCAN && strcmp(argv[2], OPERATIONS[operation]))
        operation++;
    size_t bytes = strtoull(argv[3], NULL, 10);
    len = (int)(bytes / sizeof *in);
    in = vector((size_t)len);
    out = vector((size_t)len * (operation == ALL_GATHER ? (size_t)ranks : 1));
    if (persistent)
        prepare(&standing);
    serve(atoi(argv[1]));
    return 0;
}
