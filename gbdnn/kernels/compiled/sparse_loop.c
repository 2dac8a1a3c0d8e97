/* The sparse kernel: LAGraph's loop over the layers, for a part of the rows; see loop.c.

Under a ReLU with one bias for the layer, as in the Sparse DNN Challenge:

    Z  = Y W                       mxm, plus_times
    Z  = Z(Z > -b)                 select, valuegt: ReLU, before the bias is added
    Z  = Z + b                     apply, plus: only to entries that survive
    Y' = min(Z, clip)              apply, min

x > -b and x + b > 0 agree for all finite floating-point numbers. LAGraph adds the bias first, as a
product with a diagonal matrix; so does this file if each neuron has its own bias. Y and W are
row-wise, and SuiteSparse multiplies them by Gustavson's method.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019. */

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

static const real LARGEST = sizeof(real) == 4 ? FLT_MAX : (real)DBL_MAX;

/* Z = b where Z has no entry: each row of B is `fill`. */
static GrB_Info fill_in(GrB_Matrix Z, GrB_Matrix fill, GrB_Index nrows, GrB_Index ncols)
{
    GrB_Matrix ones = 0, B = 0;
    const GrB_Info info =
        GrB.Matrix_new(&ones, GrB.type, nrows, 1)
        ?: GrB.assign(ones, 0, 0, 1, GrB.ALL, nrows, GrB.ALL, 1, 0)
        ?: GrB.Matrix_new(&B, GrB.type, nrows, ncols)
        ?: GrB.mxm(B, 0, 0, GrB.any_second, ones, fill, 0)
        ?: GrB.eWiseAdd(Z, 0, 0, GrB.first, Z, B, 0);
    GrB.Matrix_free(&ones);
    GrB.Matrix_free(&B);
    return info;
}

/* Return NOT_FINITE if a number of Z is not finite: neither NaN nor an infinity lies in the range. */
static GrB_Info require_finite(GrB_Matrix Z, GrB_Index nrows, GrB_Index ncols)
{
    GrB_Matrix finite = 0;
    GrB_Index all = 0, some = 0;
    const GrB_Info info =
        GrB.Matrix_new(&finite, GrB.type, nrows, ncols)
        ?: GrB.select(finite, 0, 0, GrB.valuele, Z, LARGEST, 0)
        ?: GrB.select(finite, 0, 0, GrB.valuege, finite, -LARGEST, 0)
        ?: GrB.Matrix_nvals(&some, finite)
        ?: GrB.Matrix_nvals(&all, Z);
    GrB.Matrix_free(&finite);
    return info ?: some == all ? 0 : NOT_FINITE;
}

/* Z = activations after a layer. */
static GrB_Info compute(const struct loop_layer *layer, GrB_Matrix Y, GrB_Matrix Z, GrB_Index nrows)
{
    const GrB_Matrix W = layer->W, D = layer->D, fill = layer->fill;
    const real b = layer->b, clip = layer->clip;
    // Z = Y W
    GrB_Info info = GrB.mxm(Z, 0, 0, GrB.plus_times, Y, W, 0);
    if (layer->relu && !D && !fill && !layer->checked) {
        // Z = Z(Z > -b)
        info = info ?: GrB.select(Z, 0, 0, GrB.valuegt, Z, -b, 0);
        // Z = Z + b
        if (b)
            info = info ?: GrB.apply(Z, 0, 0, GrB.plus, Z, b, 0);
    } else {
        // Z = Z + b where Z has an entry; a diagonal matrix scales columns in the (any, +) sense
        if (D)
            info = info ?: GrB.mxm(Z, 0, 0, GrB.any_plus, Z, D, 0);
        else if (b)
            info = info ?: GrB.apply(Z, 0, 0, GrB.plus, Z, b, 0);
        // Z = b where it has none (rule `all`)
        if (fill)
            info = info ?: fill_in(Z, fill, nrows, layer->ncols);
        if (layer->checked)
            info = info ?: require_finite(Z, nrows, layer->ncols);
        // Z = Z(Z > 0), or without the zeros
        info = info ?: GrB.select(Z, 0, 0, layer->relu ? GrB.valuegt : GrB.valuene, Z, 0, 0);
    }
    // Y' = min(Z, clip)
    if (layer->clipped)
        info = info ?: GrB.apply(Z, 0, 0, GrB.min, Z, clip, 0);
    return info;
}

/* Copy rows of arrays to a new matrix. */
static GrB_Info import(const struct loop_run *run, struct row_part *part)
{
    const GrB_Index *indptr = run->indptr + part->start, first = indptr[0];
    const GrB_Index nvals = indptr[part->nrows] - first;
    GrB_Index *Ap = malloc((part->nrows + 1) * sizeof *Ap);
    real *Ax = run->value_step ? 0 : malloc((nvals + 1) * sizeof *Ax);
    GrB_Info info = OUT_OF_MEMORY;
    if (Ap && (Ax || run->value_step)) {
        for (int64_t i = 0; i <= part->nrows; i++)
            Ap[i] = indptr[i] - first;
        for (GrB_Index k = 0; Ax && k < nvals; k++)
            Ax[k] = run->values[0];
        info = GrB.import_rows(&part->Y, GrB.type, part->nrows, run->ncols, Ap, run->columns + first,
                               Ax ? Ax : run->values + first, part->nrows + 1, nvals, nvals, GrB.CSR);
    }
    free(Ap);
    free(Ax);
    return info;
}

GrB_Info count_alive(const struct loop_run *run, const struct row_part *part, int64_t counts[2])
{
    GrB_Vector alive = 0;
    GrB_Index some = 0, *rows = 0;
    GrB_Info info =
        GrB.Vector_new(&alive, GrB.type, part->nrows)
        ?: GrB.reduce(alive, 0, 0, GrB.any, part->Y, 0)
        ?: GrB.Vector_nvals(&some, alive);
    counts[0] = some;
    if (!info && run->multiplicity) {
        rows = malloc((some + 1) * sizeof *rows);
        info = rows ? GrB.extractTuples(rows, 0, &some, alive) : OUT_OF_MEMORY;
        for (GrB_Index i = 0; !info && i < some; i++)
            counts[1] += run->multiplicity[part->start + rows[i]];
    }
    free(rows);
    GrB.Vector_free(&alive);
    return info;
}

GrB_Info read_rows(const struct loop_run *run, struct row_part *part)
{
    return run->X ? extract_rows(run->X, part->start, part->nrows, run->ncols, &part->Y) : import(run, part);
}

GrB_Info advance_rows(const struct loop_run *run, struct row_part *part, int64_t counts[3])
{
    const struct loop_layer *layer = run->layers + part->layer - run->first;
    GrB_Matrix Z = 0;
    GrB_Index entries = 0;
    const GrB_Info info = GrB.Matrix_new(&Z, GrB.type, part->nrows, layer->ncols)
        ?: compute(layer, part->Y, Z, part->nrows)
        ?: GrB.Matrix_nvals(&entries, Z);
    GrB.Matrix_free(&part->Y);
    part->Y = Z;
    counts[2] = entries;
    if (!info && (part->counts || (run->counted && layer->droppable)))
        return count_alive(run, part, counts);
    return info;
}
