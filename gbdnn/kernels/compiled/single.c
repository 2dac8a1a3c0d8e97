/* Compute neurons of a layer for a single input.

    z = b;  z += y[i] W(i, :) for every i with y[i] != 0;  y' = min(max(z, low), high)

W is stored by rows: activations equal to 0 are skipped, and the sums of different neurons are
independent. Each sum adds its edges in the same order as in a block, and skipped products are 0, so
the result has the same bits. */

#include "kernels.h"

enum { TOGETHER = 8 };  // dense rows
enum { EARLY = 2048 };  // edges between those that are computed and those that are fetched

typedef real four_reals __attribute__((ext_vector_type(4), aligned(sizeof(real))));

/* Return the column of an edge. `near` is known to the compiler. */
INLINED int64_t column(const void *columns, int64_t e, const bool near)
{
    return near ? ((const uint16_t *)columns)[e] : ((const uint32_t *)columns)[e];
}

/* Compute z += v W(i, :) for the edges `e` to `last` of a row, which are in fours without repeated
   columns. */
INLINED void add_row(const void *columns, const real *weights, int64_t step, int64_t e,
                     int64_t last, real v, real *restrict z, const bool near)
{
    for (; e < last; e += 4) {
        const int64_t j[4] = {column(columns, e, near), column(columns, e + 1, near),
                              column(columns, e + 2, near), column(columns, e + 3, near)};
        const four_reals w = *(const four_reals *)(weights + e * step);
        four_reals sums = {z[j[0]], z[j[1]], z[j[2]], z[j[3]]};
        sums = __builtin_elementwise_fma(w, (four_reals)(v), sums);
        for (int64_t k = 0; k < 4; k++)
            z[j[k]] = sums[k];
    }
}

/* Compute z += y W for the nonzero activations, whose `actives` numbers are in `active`. If the weights
   are `cold`, rows are fetched early, each as if it had as many edges as the mean. */
INLINED void add_rows(const struct layer W, const uint32_t *active, int64_t actives, const real *y,
                      real *restrict z, const bool near, const bool cold)
{
    const int64_t size = near ? sizeof(uint16_t) : sizeof(uint32_t);
    const int64_t mean = W.indptr[W.nrows] / most(1, W.nrows);
    const int64_t early = cold ? EARLY / (mean + 1) : 0;  // rows
    for (int64_t n = -early; n < actives; n++) {
        if (cold && n + early < actives) {
            const int64_t e = W.indptr[active[n + early]];
            for (int64_t at = 0; at <= mean * size; at += LINE)
                __builtin_prefetch((const char *)W.rows + e * size + at);
            for (int64_t at = 0; at <= mean * W.weight_step; at += LANES)
                __builtin_prefetch(W.weights + e * W.weight_step + at);
        }
        if (cold && n < 0)
            continue;
        const int64_t i = active[n];
        add_row(W.rows, W.weights, W.weight_step, W.indptr[i], W.indptr[i + 1], y[i], z, near);
    }
}

/* The same with all weights of a row; sums are read and written once for some rows together. */
static void add_dense_rows(const struct layer W, const uint32_t *active, int64_t actives,
                           const real *y, real *restrict z)
{
    const int64_t last = W.first + W.ncols;
    int64_t n = 0;
    for (; n + TOGETHER <= actives; n += TOGETHER) {
        const real *rows[TOGETHER];
        real v[TOGETHER];
        for (int64_t k = 0; k < TOGETHER; k++) {
            rows[k] = W.weights + active[n + k] * W.width;
            v[k] = y[active[n + k]];
        }
        for (int64_t j = W.first; j < last; j++) {
            real sum = z[j];
            for (int64_t k = 0; k < TOGETHER; k++)
                sum = __builtin_elementwise_fma(rows[k][j], v[k], sum);
            z[j] = sum;
        }
    }
    for (; n < actives; n++) {
        const real v = y[active[n]], *row = W.weights + active[n] * W.width;
        for (int64_t j = W.first; j < last; j++)
            z[j] = __builtin_elementwise_fma(row[j], v, z[j]);
    }
}

/* Write the numbers of the nonzero activations, and return how many there are. */
int64_t find_active(const real *y, int64_t nrows, uint32_t *restrict active)
{
    int64_t actives = 0;
    for (int64_t i = 0; i < nrows; i++) {  // a branch would often be mispredicted
        active[actives] = i;
        actives += y[i] != 0;
    }
    return actives;
}

bool any_infinite(const real *z, int64_t count)
{
    bits found = 0;
    for (int64_t j = 0; j < count; j++)
        found |= z[j] - z[j] != 0;
    return found;
}

bool compute_single(const struct layer *layer, const uint32_t *active, int64_t actives, const real *y,
                    real *restrict z, bool cold)
{
    const struct layer W = *layer;
    const real low = W.limits[0], high = W.limits[1];
    const int64_t last = W.first + W.ncols;
    for (int64_t j = W.first; j < last; j++)
        z[j] = W.bias[j * W.bias_step];
    if (W.dense)
        add_dense_rows(W, active, actives, y, z);
    else if (W.width <= NEAR && cold)
        add_rows(W, active, actives, y, z, true, true);
    else if (W.width <= NEAR)
        add_rows(W, active, actives, y, z, true, false);
    else if (cold)
        add_rows(W, active, actives, y, z, false, true);
    else
        add_rows(W, active, actives, y, z, false, false);
    const bool infinite = any_infinite(z + W.first, W.ncols);
    for (int64_t j = W.first; j < last; j++) {  // as `between`
        const real limited = low > z[j] ? low : z[j];
        z[j] = (high < limited ? high : limited) + 0;
    }
    return infinite;
}
