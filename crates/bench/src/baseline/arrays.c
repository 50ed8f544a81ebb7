/* One rank of a transfer of a matrix: MPI_Alltoallw with subarray types, or, with -DSCALAPACK, Cpdgemr2d.
 * Arguments: control port, rows, columns, first receiver, then rows of a block, processes of a column of the
 * grid, columns of a block and processes of a row, for the senders and for the receivers, request (blocking
 * or persistent), wait. Elements are those of harness/transfers.rs; call 0 makes the plan. */
enum { CALLS = 997 };

/* A block-cyclic layout over ranks from `first` on, row by row of the grid. */
typedef struct {
    int row_block, grid_rows, column_block, grid_columns, first;
} layout;

/* The rows and columns that a rank stores. */
typedef struct {
    int rows, columns;
    int *row_indices, *column_indices;
    double *data;
} part;

static int rows, columns;
static layout from, to;
static part given, wanted;

static int is_in(layout of, int process)
{
    return process >= of.first && process < of.first + of.grid_rows * of.grid_columns;
}

static int *indices(int extent, int block, int count, int at, int *found)
{
    int *list = calloc((size_t)extent + 1, sizeof *list);
    if (!list)
        fail("no memory");
    *found = 0;
    for (int index = 0; index < extent; index++)
        if (index / block % count == at)
            list[(*found)++] = index;
    return list;
}

static part part_of(layout of, int process)
{
    part made = {0};
    if (!is_in(of, process))
        return made;
    int at = process - of.first;
    made.row_indices =
        indices(rows, of.row_block, of.grid_rows, at / of.grid_columns, &made.rows);
    made.column_indices =
        indices(columns, of.column_block, of.grid_columns, at % of.grid_columns, &made.columns);
    return made;
}

static double added(int row, uint64_t call)
{
    return (double)row * columns + (double)rows * columns * (double)(call % CALLS);
}

static void fill(uint64_t call)
{
    for (int row = 0; row < given.rows; row++) {
        double *elements = given.data + (size_t)row * (size_t)given.columns;
        double add = added(given.row_indices[row], call);
        for (int column = 0; column < given.columns; column++)
            elements[column] = add + given.column_indices[column];
    }
}

static int is_right(uint64_t call)
{
    int wrong = 0;
#ifdef SCALAPACK
    /* The BLACS leave sends pending, which go on only inside of a call. */
    meet();
#endif
    for (int row = 0; call && row < wanted.rows; row++) {
        double *elements = wanted.data + (size_t)row * (size_t)wanted.columns;
        double add = added(wanted.row_indices[row], call);
        for (int column = 0; column < wanted.columns; column++)
            wrong += elements[column] != add + wanted.column_indices[column];
    }
    return wrong == 0;
}

#ifdef SCALAPACK
/* Its matrices are stored column by column: ours are its transposed ones. */
void Cblacs_get(int, int, int *);
void Cblacs_gridmap(int *, int *, int, int, int);
void Cpdgemr2d(int, int, double *, int, int, int *, double *, int, int, int *, int);

static int of_sender[9], of_receiver[9], all;

static int grid(layout of)
{
    int context, *map = calloc((size_t)(of.grid_rows * of.grid_columns), sizeof *map);
    if (!map)
        fail("no memory");
    Cblacs_get(0, 0, &context);
    for (int row = 0; row < of.grid_rows; row++)
        for (int column = 0; column < of.grid_columns; column++)
            map[column + row * of.grid_columns] = of.first + row * of.grid_columns + column;
    Cblacs_gridmap(&context, map, of.grid_columns, of.grid_columns, of.grid_rows);
    free(map);
    return context;
}

static void describe(layout of, const part *stored, int descriptor[9])
{
    int context = grid(of), stride = stored->columns ? stored->columns : 1;
    int made[9] = {1, is_in(of, rank) ? context : -1, columns, rows, of.column_block, of.row_block,
                   0, 0, stride};
    memcpy(descriptor, made, sizeof made);
}

static void plan(void)
{
    describe(from, &given, of_sender);
    describe(to, &wanted, of_receiver);
    all = grid((layout){1, 1, 1, ranks, 0});
}

static void move(void)
{
    Cpdgemr2d(columns, rows, given.data, 1, 1, of_sender, wanted.data, 1, 1, of_receiver, all);
}
#else
static int *sends, *receives, *nowhere;
static MPI_Datatype *sent, *received;
static MPI_Request standing;

/* Returns where the indices that two ranks have in common begin in a list, and how many there are. */
static int common(const int *list, int count, const int *other, int others, int *start)
{
    int found = 0;
    for (int at = 0, there = 0; at < count; at++) {
        while (there < others && other[there] < list[at])
            there++;
        if (there == others || other[there] != list[at])
            continue;
        if (!found)
            *start = at;
        else if (at != *start + found)
            fail("this is no subarray");
        found++;
    }
    return found;
}

static int subarray(const part *stored, const part *other, MPI_Datatype *type)
{
    int extents[2] = {stored->rows, stored->columns}, starts[2] = {0, 0};
    int sizes[2] = {common(stored->row_indices, stored->rows, other->row_indices, other->rows, starts),
                    common(stored->column_indices, stored->columns, other->column_indices,
                           other->columns, starts + 1)};
    *type = MPI_DOUBLE;
    if (!sizes[0] || !sizes[1])
        return 0;
    MPI_Type_create_subarray(2, extents, sizes, starts, MPI_ORDER_C, MPI_DOUBLE, type);
    MPI_Type_commit(type);
    return 1;
}

static void plan(void)
{
    for (int peer = 0; peer < ranks; peer++) {
        part theirs = part_of(to, peer);
        sends[peer] = subarray(&given, &theirs, sent + peer);
        free(theirs.row_indices), free(theirs.column_indices);
        theirs = part_of(from, peer);
        receives[peer] = subarray(&wanted, &theirs, received + peer);
        free(theirs.row_indices), free(theirs.column_indices);
    }
    if (persistent)
        INIT(Alltoallw)(given.data, sends, nowhere, sent, wanted.data, receives, nowhere, received,
                        MPI_COMM_WORLD, MPI_INFO_NULL, &standing);
}

static void move(void)
{
    if (persistent) {
        MPI_Start(&standing);
        finish(&standing);
        return;
    }
    MPI_Alltoallw(given.data, sends, nowhere, sent, wanted.data, receives, nowhere, received,
                  MPI_COMM_WORLD);
}
#endif

static void call(void)
{
    static int planned;
    if (planned)
        move();
    else
        plan();
    planned = 1;
}

static layout layout_of(char **words, int first)
{
    return (layout){atoi(words[0]), atoi(words[1]), atoi(words[2]), atoi(words[3]), first};
}

int main(int argc, char **argv)
{
    begin_rank(&argc, &argv, 15);
    rows = atoi(argv[2]);
    columns = atoi(argv[3]);
    from = layout_of(argv + 5, 0);
    to = layout_of(argv + 9, atoi(argv[4]));
    given = part_of(from, rank);
    given.data = vector((size_t)given.rows * (size_t)given.columns);
    wanted = part_of(to, rank);
    wanted.data = vector((size_t)wanted.rows * (size_t)wanted.columns);
#ifndef SCALAPACK
    sends = calloc((size_t)ranks * 3, sizeof *sends);
    sent = calloc((size_t)ranks * 2, sizeof *sent);
    if (!sends || !sent)
        fail("no memory");
    receives = sends + ranks;
    nowhere = receives + ranks;
    received = sent + ranks;
#endif
    serve(atoi(argv[1]));
    return 0;
}
