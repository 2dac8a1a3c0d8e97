/* A program for ThreadSanitizer: the kernels of GraphBLAS on one thread and on four, in slices of 30 us,
   with equal answers. A stand-in has GraphBLAS's functions that these kernels call, for dense,
   column-wise matrices with a mark at each entry. races.py compiles and runs it. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"
#include "numbers.h"

enum { NEURONS = 24, DEPTH = 12, EDGES = 4, INPUTS = 480, PARTS = 20, ROWS = INPUTS / PARTS };

struct GB_Matrix_opaque { int64_t nrows, ncols; real *x; bool *has; };  // full: `has` is null
struct GB_Vector_opaque { int64_t entries; };

static struct GB_BinaryOp_opaque { int at; } plus, min;
static struct GB_IndexUnaryOp_opaque { int at; } greater;

static void *must(size_t size) { return calloc(1, size + 1); }

static int new_matrix(GrB_Matrix *A, GrB_Type type, GrB_Index nrows, GrB_Index ncols)
{
    *A = must(sizeof **A);
    **A = (struct GB_Matrix_opaque){nrows, ncols, must(nrows * ncols * sizeof(real)), must(nrows * ncols)};
    return 0;
}

static int free_matrix(GrB_Matrix *A)
{
    if (*A)
        free((*A)->x), free((*A)->has);
    free(*A);
    *A = 0;
    return 0;
}

static int count_entries(GrB_Index *nvals, GrB_Matrix A)
{
    *nvals = 0;
    for (int64_t k = 0; k < A->nrows * A->ncols; k++)
        *nvals += !A->has || A->has[k];
    return 0;
}

static int multiply_matrices(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_Semiring op, GrB_Matrix A, GrB_Matrix B, GrB_Descriptor desc)
{
    for (int64_t j = 0; j < B->ncols; j++)
        for (int64_t k = 0; k < B->nrows; k++)
            for (int64_t i = 0; i < A->nrows && B->has[j * B->nrows + k]; i++)
                if (!A->has || A->has[k * A->nrows + i]) {
                    C->x[j * C->nrows + i] += A->x[k * A->nrows + i] * B->x[j * B->nrows + k];
                    if (C->has)
                        C->has[j * C->nrows + i] = 1;
                }
    return 0;
}

static int select_entries(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_IndexUnaryOp op, GrB_Matrix A, real y, GrB_Descriptor desc)
{
    for (int64_t k = 0; k < A->nrows * A->ncols; k++)
        C->has[k] = A->has[k] && A->x[k] > y;
    return 0;
}

static int apply_operator(GrB_Matrix C, GrB_Matrix mask, GrB_BinaryOp accum, GrB_BinaryOp op, GrB_Matrix A, real y, GrB_Descriptor desc)
{
    for (int64_t k = 0; k < A->nrows * A->ncols; k++)
        C->x[k] = op == &plus ? A->x[k] + y : A->x[k] < y ? A->x[k] : y;
    return 0;
}

static int import_arrays(GrB_Matrix *A, GrB_Type type, GrB_Index nrows, GrB_Index ncols, const GrB_Index *Ap, const GrB_Index *Aj, const real *Ax, GrB_Index p, GrB_Index j, GrB_Index x, int format)
{
    new_matrix(A, type, nrows, ncols);
    for (GrB_Index i = 0; i < nrows; i++)
        for (GrB_Index e = Ap[i]; e < Ap[i + 1]; e++)
            (*A)->x[Aj[e] * nrows + i] = Ax[e], (*A)->has[Aj[e] * nrows + i] = 1;
    return 0;
}

static int unpack_rows(GrB_Matrix A, GrB_Index **Ap, GrB_Index **Aj, void **Ax, GrB_Index *p, GrB_Index *j, GrB_Index *x, _Bool *iso, _Bool *jumbled, GrB_Descriptor desc)
{
    const int64_t all = A->nrows * A->ncols;
    GrB_Index *indptr = must((A->nrows + 1) * 8), *columns = must(all * 8), e = 0;
    real *values = must(all * sizeof *values);
    for (int64_t i = 0; i < A->nrows; indptr[++i] = e)
        for (int64_t k = i; k < all; k += A->nrows)
            if (A->has[k])
                columns[e] = k / A->nrows, values[e++] = A->x[k];
    *Ap = indptr, *Aj = columns, *Ax = values, *iso = 0;
    return 0;
}

static int pack_rows(GrB_Matrix A, GrB_Index **Ap, GrB_Index **Aj, void **Ax, GrB_Index p, GrB_Index j, GrB_Index x, _Bool iso, _Bool jumbled, GrB_Descriptor desc)
{
    for (int64_t i = 0; i < A->nrows; i++)
        for (GrB_Index e = (*Ap)[i]; e < (*Ap)[i + 1]; e++)
            A->x[(*Aj)[e] * A->nrows + i] = ((real *)*Ax)[e], A->has[(*Aj)[e] * A->nrows + i] = 1;
    free(*Ap), free(*Aj), free(*Ax);
    *Ap = *Aj = 0, *Ax = 0;
    return 0;
}

static int pack_full(GrB_Matrix A, void **Ax, GrB_Index size, _Bool iso, GrB_Descriptor desc)
{
    free(A->x), free(A->has);
    A->x = *Ax, A->has = 0, *Ax = 0;
    return 0;
}

static int unpack_full(GrB_Matrix A, void **Ax, GrB_Index *size, _Bool *iso, GrB_Descriptor desc)
{
    *Ax = A->x, A->x = 0;
    return 0;
}

static int new_vector(GrB_Vector *v, GrB_Type type, GrB_Index size) { return *v = must(sizeof **v), 0; }
static int free_vector(GrB_Vector *v) { return free(*v), 0; }
static int count_of_vector(GrB_Index *nvals, GrB_Vector v) { return *nvals = v->entries, 0; }
static int do_nothing(GxB_Context context) { return 0; }
static void *allocate(GrB_Index size) { return must(size); }

static int reduce_rows(GrB_Vector w, GrB_Vector mask, GrB_BinaryOp accum, GrB_Monoid op, GrB_Matrix A, GrB_Descriptor desc)
{
    for (int64_t i = 0; i < A->nrows; i++) {
        bool some = 0;
        for (int64_t j = 0; j < A->ncols; j++)
            some |= A->has[j * A->nrows + i];
        w->entries += some;
    }
    return 0;
}

static const struct graphblas functions = {
    .mxm = multiply_matrices, .select = select_entries, .apply = apply_operator, .reduce = reduce_rows,
    .Matrix_new = new_matrix, .Matrix_free = free_matrix, .Matrix_nvals = count_entries,
    .import_rows = import_arrays, .unpack_rows = unpack_rows, .pack_rows = pack_rows,
    .pack_full = pack_full, .unpack_full = unpack_full, .Vector_new = new_vector,
    .Vector_free = free_vector, .Vector_nvals = count_of_vector, .engage = do_nothing,
    .disengage = do_nothing, .allocate = allocate, .release = free, .plus = &plus, .min = &min,
    .valuegt = &greater,
};

static struct loop_layer layers[DEPTH];
static GrB_Index indptr[INPUTS + 1], columns[INPUTS * NEURONS];
static real values[INPUTS * NEURONS];

static void make_problem(void)
{
    for (int k = 0; k < DEPTH; k++) {
        layers[k] = (struct loop_layer){.ncols = NEURONS, .edges = NEURONS * EDGES, .relu = 1, .clipped = 1,
                                        .b = -0.12, .clip = 1, .droppable = 1, .degree = EDGES};
        new_matrix(&layers[k].W, 0, NEURONS, NEURONS);
        for (int e = 0; e < NEURONS * EDGES; e++) {
            const int at = e / EDGES * NEURONS + draw() % NEURONS;
            layers[k].W->has[at] = 1, layers[k].W->x[at] = 0.45;
        }
    }
    for (int i = 0; i < INPUTS; i++) {
        GrB_Index e = indptr[i];
        for (int j = 0; j < NEURONS; j++)
            if (draw() % 12 < i % 4)
                columns[e] = j, values[e++] = 1;
        indptr[i + 1] = e;
    }
}

/* Compute all parts, and join those that have ended after each call; return the entries. */
static int64_t answer(const struct threads *threads, bool full, bool writes, real *Y)
{
    static const struct contexts none;
    struct row_part parts[PARTS] = {0};
    int64_t state[STATES] = {0}, ids[INPUTS], counts[PARTS][DEPTH][5] = {0}, entries = 0;
    uint8_t *present = must(INPUTS * NEURONS);
    bool taken[PARTS] = {0};
    for (int k = 0; k < DEPTH; k++)
        layers[k].limit = full ? 0 : 1e9;
    for (int n = 0; n < PARTS; n++)
        parts[n] = (struct row_part){.start = n * ROWS, .nrows = ROWS, .layer = -1, .counts = counts[n][0]};
    for (int i = 0; i < INPUTS; i++)
        ids[i] = i;
    struct loop_run run = {
        .layers = layers, .last = DEPTH, .width = full ? 16 : 0, .indptr = indptr, .columns = columns,
        .values = values, .value_step = 1, .ncols = NEURONS, .parts = parts, .count = PARTS,
        .contexts = &none, .slice = 30000, .drops = 1, .counted = 1, .most = 1e9, .room = 600,
        .state = state, .edge_cost = 1, .move_cost = 1, .answer = writes ? Y : 0, .present = present,
        .ids = ids,
    };
    memset(Y, 0, INPUTS * NEURONS * sizeof *Y);
    for (int left = PARTS; left;) {
        int64_t which[PARTS], rows[PARTS + 1] = {0}, starts[PARTS + 1] = {0}, count = 0;
        if (!compute_parts(&run, threads) || state[FAILED])
            return -1;
        for (int n = 0; n < PARTS; n++)
            if (parts[n].ended && !taken[n]) {
                taken[n] = 1, left--, entries += parts[n].entries;
                if (!parts[n].Y)
                    continue;
                rows[count + 1] = rows[count] + ROWS;
                starts[count + 1] = starts[count] + parts[n].entries;
                which[count++] = n;
            }
        GrB_Index *joined = must((rows[count] + 1) * 8), *at = must(starts[count] * 8);
        real *x = must(starts[count] * sizeof *x);
        memset(state, 0, sizeof state);
        struct joining job = {parts, which, rows, starts, count, joined, at, x, &none, state};
        if (!join_parts(&job, threads) || state[FAILED])
            return -1;
        memset(state, 0, sizeof state);
        for (int64_t r = 0; r < rows[count]; r++)
            for (GrB_Index e = joined[r]; e < joined[r + 1]; e++)
                Y[(which[r / ROWS] * ROWS + r % ROWS) * NEURONS + at[e]] = x[e];
        free(joined), free(at), free(x);
    }
    free_parts(parts, PARTS);
    free(present);
    return entries;
}

static struct team *team;

static void *help(void *number)
{
    assist(team, (int64_t)number);
    return 0;
}

int main(void)
{
    static real a[INPUTS * NEURONS], b[INPUTS * NEURONS];
    team = (struct team *)open_team();
    struct threads alone = {.count = 1}, four = {.count = 4, .team = team};
    use_graphblas(&functions);
    for (int64_t k = 1; k < 4; k++) {
        pthread_t thread;
        pthread_create(&thread, 0, help, (void *)k);
    }
    for (int round = 0; round < 30; round++) {
        make_problem();
        for (int how = 0; how < 3; how++) {
            const int64_t x = answer(&alone, how, how == 2, a), y = answer(&four, how, how == 2, b);
            if (x <= 0 || x != y || memcmp(a, b, sizeof a)) {
                printf("round %d: %ld and %ld entries, different\n", round, (long)x, (long)y);
                return 1;
            }
            add_to_sum(a, INPUTS * NEURONS);
        }
    }
    printf("equal answers, %llx\n", (unsigned long long)sum);
    return 0;
}
