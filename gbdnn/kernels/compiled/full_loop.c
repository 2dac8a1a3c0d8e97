/* The full kernel: a layer on a dense block of inputs, in place.

    Z  = b                         initialise with the bias
    Z += Y W                       mxm, plus_times into Z; SuiteSparse's kernel saxpy5
    Y' = min(max(Z, 0), clip)      one pass over the same memory

Y and Z are full and column-wise, W is sparse and column-wise. Initialising with the bias is the bias
rule `all`. It also gives the rule `entries` if neurons that no edge reaches become 0: under a ReLU
and a bias <= 0, or with bias 0. ReLU and clip are not GraphBLAS's: its max and min on a full matrix
take 4.0 ns an element each, a loop in C 0.24 ns for both (Zen 1, one thread, version 9.4.5).

The inputs of a part form a block of panels that fit the caches: a panel has all of its inputs at
neuron 0, then at neuron 1, and so on. The product works in place and runs at the machine's limit if
the inputs of a neuron start on a cache line, and do not compete for the same cache sets: the width of
a panel is an odd multiple of 16.

Dead inputs cost a fraction of every layer, moving the others costs a pass over the block. By the
ski-rental rule, a block is compacted when the wasted work exceeds the cost of compaction, which is at
most twice as expensive as compacting at the best moment. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

#ifdef _WIN32  // without aligned memory that GraphBLAS can free
#define aligned_alloc(alignment, size) malloc(size)
#endif

/* Inputs `first` to `first + count` of a block before or after a layer. */
struct panel {
    real *at;
    int64_t first, count, width;
};

static struct panel panel(const struct loop_run *run, const struct row_part *part, real *block,
                          int64_t first, int64_t nrows)
{
    const int64_t count = least(run->width, part->count - first);
    return (struct panel){block + first * nrows, first, count, (count + 15) / 32 * 32 + 16};
}

/* ------------------------------------------------------------------------------------------------
   A layer
   --------------------------------------------------------------------------------------------- */

/* Lend memory to a matrix, and take it back. */
static GrB_Info lend(void **memory, int64_t width, int64_t nrows, GrB_Matrix *A)
{
    return GrB.Matrix_new(A, GrB.type, width, nrows)
        ?: GrB.pack_full(*A, memory, width * nrows * sizeof(real), 0, 0);
}

static void take_back(void **memory, GrB_Matrix *A)
{
    GrB_Index size;
    _Bool iso;
    if (!*memory)
        GrB.unpack_full(*A, memory, &size, &iso, 0);
    GrB.Matrix_free(A);
}

/* Z += Y W */
static GrB_Info multiply_panel(real *Y, real *Z, int64_t width, int64_t nrows, const struct loop_layer *layer)
{
    void *y = Y, *z = Z;
    GrB_Matrix of_Y = 0, of_Z = 0;
    const GrB_Info info =
        lend(&y, width, nrows, &of_Y)
        ?: lend(&z, width, layer->ncols, &of_Z)
        ?: GrB.mxm(of_Z, 0, GrB.plus, GrB.plus_times, of_Y, layer->W, 0);
    take_back(&y, &of_Y);
    take_back(&z, &of_Z);
    if (z == Z)
        return info;
    GrB.release(z);
    return NOT_IN_PLACE;
}

/* Z = b; Z += Y W; Y' = min(max(Z, 0), clip) for a panel. Count the entries of each input. */
static GrB_Info compute(const struct loop_layer *layer, struct panel Y, real *Z, int64_t nrows,
                        int64_t *degrees)
{
    const real low = layer->relu ? 0 : -INFINITY, high = layer->clipped ? layer->clip : INFINITY;
    const int64_t width = Y.width;
    bits nonzero[width];
    // Z = b
    for (int64_t n = 0; n < layer->ncols; n++)
        for (int64_t i = 0; i < width; i++)
            Z[n * width + i] = layer->biases ? layer->biases[n] : layer->b;
    // Z += Y W
    GrB_Info info = layer->edges ? multiply_panel(Y.at, Z, width, nrows, layer) : 0;
    for (int64_t n = 0; n < layer->ncols && layer->checked && !info; n++)
        info = any_infinite(Z + n * width, Y.count) ? NOT_FINITE : 0;
    if (info)
        return info;
    // Y' = min(max(Z, 0), clip)
    memset(nonzero, 0, sizeof nonzero);
    for (int64_t n = 0; n < layer->ncols; n++)
        for (int64_t i = 0; i < width; i++) {
            real z = Z[n * width + i];
            z = z > low ? z : low;
            z = z < high ? z : high;
            Z[n * width + i] = z;
            nonzero[i] += z != 0;
        }
    for (int64_t i = 0; i < Y.count; i++)
        degrees[i] = nonzero[i];
    return 0;
}

/* Keep the inputs with entries, without gaps. */
static void compact(const struct loop_run *run, struct row_part *part, int64_t nrows)
{
    const int64_t before = part->count;
    int64_t kept = 0, *from = part->degrees;  // which this replaces
    for (int64_t i = 0; i < before; i++)
        if (part->degrees[i]) {
            part->ids[kept] = part->ids[i];
            from[kept++] = i;
        }
    const struct row_part old = *part;
    part->count = kept;
    for (int64_t first = 0; first < kept; first += run->width) {
        const struct panel to = panel(run, part, part->other, first, nrows);
        const real *at[to.width];
        int64_t stride[to.width];
        for (int64_t i = 0; i < to.width; i++) {  // the padding repeats the first input
            const int64_t q = from[first + (i < to.count ? i : 0)];
            const struct panel Y = panel(run, &old, part->block, q / run->width * run->width, nrows);
            at[i] = Y.at + q - Y.first;
            stride[i] = Y.width;
        }
        for (int64_t n = 0; n < nrows; n++)
            for (int64_t i = 0; i < to.width; i++)
                to.at[n * to.width + i] = at[i][n * stride[i]];
    }
    part->other = old.block;
    part->block = old.other;
    part->waste = 0;
}

GrB_Info advance_block(const struct loop_run *run, struct row_part *part, int64_t counts[3])
{
    const struct loop_layer *layer = run->layers + part->layer - run->first;
    const int64_t nrows = neurons(run, part), *multiplicity = run->multiplicity;
    part->waste += run->edge_cost * layer->edges * (part->count - part->alive);
    if (part->waste > run->move_cost * nrows * part->alive)
        compact(run, part, nrows);
    for (int64_t first = 0; first < part->count; first += run->width) {
        const struct panel Y = panel(run, part, part->block, first, nrows);
        const GrB_Info info = compute(layer, Y, part->other + first * layer->ncols, nrows, part->degrees + first);
        if (info == NOT_IN_PLACE)
            part->other = 0;  // the first product of all, which is of the first panel, has freed it
        if (info)
            return info;
    }
    real *const block = part->other;
    part->other = part->block;
    part->block = block;
    for (int64_t i = 0; i < part->count; i++) {
        counts[0] += part->degrees[i] != 0;
        counts[1] += part->degrees[i] && multiplicity ? multiplicity[part->start + part->ids[i]] : 0;
        counts[2] += part->degrees[i];
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------
   Rows to blocks and back
   --------------------------------------------------------------------------------------------- */

GrB_Info read_block(const struct loop_run *run, struct row_part *part)
{
    int64_t most_neurons = run->ncols;
    for (int64_t k = 0; k < run->last - run->first; k++)
        most_neurons = most(most_neurons, run->layers[k].ncols);
    struct rows rows = {(GrB_Index *)run->indptr, (GrB_Index *)run->columns, (real *)run->values, run->value_step};
    int64_t start = part->start;
    const int64_t size = (part->nrows + 32) * most_neurons * sizeof(real);
    part->block = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
    part->other = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
    part->ids = malloc(part->nrows * sizeof(int64_t));
    part->degrees = malloc(part->nrows * sizeof(int64_t));
    part->count = part->nrows;
    if (!part->block || !part->other || !part->ids || !part->degrees)
        return OUT_OF_MEMORY;
    if (run->X) {
        const GrB_Info info = copy_rows(run->X, part->start, part->nrows, run->ncols, &rows);
        if (info)
            return info;
        start = 0;
    }
    for (int64_t i = 0; i < part->count; i++)
        part->ids[i] = i;
    for (int64_t first = 0; first < part->count; first += run->width) {
        const struct panel Y = panel(run, part, part->block, first, run->ncols);
        if (run->dense) {
            memset(Y.at, 0, Y.width * run->ncols * sizeof(real));
            from_dense(run->dense + (start + first) * run->row_stride, run->row_stride, run->column_stride, 0,
                       Y.count, 0, Y.at, Y.width, run->ncols);
        } else {
            fill((int64_t *)rows.indptr, (int64_t *)rows.columns, rows.values, rows.value_step, start + first,
                 Y.count, 0, Y.at, Y.width, run->ncols);
        }
    }
    if (run->X)
        release_rows(&rows);
    return 0;
}

/* Copy a block to rows of the answer. */
static void write_answer(const struct loop_run *run, const struct row_part *part, int64_t ncols)
{
    for (int64_t i = 0; i < part->count; i++)
        part->ids[i] = run->ids[part->start + part->ids[i]];
    for (int64_t first = 0; first < part->count; first += run->width) {
        const struct panel Y = panel(run, part, part->block, first, ncols);
        to_dense(Y.at, Y.width, ncols, part->ids + first, Y.count, run->answer, ncols, run->present);
    }
}

/* Copy a block to a matrix, whose rows are those of the part. */
static GrB_Info write_matrix(const struct loop_run *run, struct row_part *part, int64_t ncols)
{
    const GrB_Index size = part->entries + 1;
    const GrB_Index sizes[] = {(part->nrows + 1) * sizeof(GrB_Index), size * sizeof(GrB_Index), size * sizeof(real)};
    GrB_Index *indptr = GrB.allocate(sizes[0]), *columns = GrB.allocate(sizes[1]);
    void *values = GrB.allocate(sizes[2]);
    GrB_Info info = indptr && columns && values ? 0 : OUT_OF_MEMORY;
    if (!info) {
        memset(indptr, 0, sizes[0]);
        for (int64_t i = 0; i < part->count; i++)
            indptr[part->ids[i] + 1] = part->degrees[i];
        for (int64_t i = 0; i < part->nrows; i++)
            indptr[i + 1] += indptr[i];
        for (int64_t i = 0; i < part->count; i++)
            part->degrees[i] = indptr[part->ids[i]];
        for (int64_t first = 0; first < part->count; first += run->width) {
            const struct panel Y = panel(run, part, part->block, first, ncols);
            extract(Y.at, Y.width, ncols, 0, Y.count, part->degrees + first, (int64_t *)columns, values);
        }
        info = GrB.Matrix_new(&part->Y, GrB.type, part->nrows, ncols)
            ?: GrB.pack_rows(part->Y, &indptr, &columns, &values, sizes[0], sizes[1], sizes[2], 0, 0, 0);
    }
    GrB.release(indptr);
    GrB.release(columns);
    GrB.release(values);
    return info;
}

GrB_Info leave_block(const struct loop_run *run, struct row_part *part)
{
    const int64_t ncols = neurons(run, part);
    GrB_Info info = 0;
    if (run->answer && part->layer == run->last)
        write_answer(run, part, ncols);
    else
        info = write_matrix(run, part, ncols);
    free_block(part);
    return info;
}

void free_block(struct row_part *part)
{
    free(part->block);
    free(part->other);
    free(part->ids);
    free(part->degrees);
    part->block = part->other = 0;
    part->ids = part->degrees = 0;
}
