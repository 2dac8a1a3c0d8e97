/* Compute neurons of a layer for a single input.

    z = b;  z += y[i] W(i, :) for every i with y[i] != 0;  y' = min(max(z, low), high)

W is stored by rows: activations equal to 0 are skipped, and the sums of different neurons are
independent. Each sum adds its edges in the same order as in a block, and skipped products are 0, so
the result has the same bits. */

#include <string.h>

#include "kernels.h"

typedef real four_reals __attribute__((ext_vector_type(4), aligned(sizeof(real))));

/* Read the columns of four edges, which takes one load or two. */
INLINED void four_columns(const void *columns, int64_t e, const bool near, int64_t j[4])
{
    uint64_t a, b;
    if (near) {
        memcpy(&a, (const uint16_t *)columns + e, 8);
        j[0] = a & UINT16_MAX;
        j[1] = a >> 16 & UINT16_MAX;
        j[2] = a >> 32 & UINT16_MAX;
        j[3] = a >> 48;
    } else {
        memcpy(&a, (const uint32_t *)columns + e, 8);
        memcpy(&b, (const uint32_t *)columns + e + 2, 8);
        j[0] = a & UINT32_MAX;
        j[1] = a >> 32;
        j[2] = b & UINT32_MAX;
        j[3] = b >> 32;
    }
}

/* Compute z += v W(i, :) for the edges `e` to `last` of a row, which has no repeated columns. `near`
   is known to the compiler. */
INLINED void add_row(const void *columns, const real *weights, int64_t step, int64_t e,
                     int64_t last, real v, real *restrict z, const bool near)
{
    for (; e + 4 <= last; e += 4) {
        const four_reals w = *(const four_reals *)(weights + e * step);
        int64_t j[4];
        four_columns(columns, e, near, j);
        const real a = __builtin_elementwise_fma(w[0], v, z[j[0]]);
        const real b = __builtin_elementwise_fma(w[1], v, z[j[1]]);
        const real c = __builtin_elementwise_fma(w[2], v, z[j[2]]);
        const real d = __builtin_elementwise_fma(w[3], v, z[j[3]]);
        z[j[0]] = a;
        z[j[1]] = b;
        z[j[2]] = c;
        z[j[3]] = d;
    }
    for (; e < last; e++) {
        const int64_t j = near ? ((const uint16_t *)columns)[e] : ((const uint32_t *)columns)[e];
        z[j] = __builtin_elementwise_fma(weights[e * step], v, z[j]);
    }
}

/* Compute z += y W for the nonzero activations, whose `actives` numbers are in `active`. */
INLINED void add_rows(const struct layer W, const uint32_t *active, int64_t actives, const real *y,
                      real *restrict z, const bool near)
{
    for (int64_t n = 0; n < actives; n++) {
        const int64_t i = active[n];
        add_row(W.rows, W.weights, W.weight_step, W.indptr[i], W.indptr[i + 1], y[i], z, near);
    }
}

static void add_dense_rows(const struct layer W, const uint32_t *active, int64_t actives,
                           const real *y, real *restrict z)
{
    for (int64_t n = 0; n < actives; n++) {
        const real v = y[active[n]], *row = W.weights + active[n] * W.ncols;
        for (int64_t j = 0; j < W.ncols; j++)
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
                    real *restrict z)
{
    const struct layer W = *layer;
    const real low = W.limits[0], high = W.limits[1];
    for (int64_t j = 0; j < W.ncols; j++)
        z[j] = W.bias[j * W.bias_step];
    if (W.dense)
        add_dense_rows(W, active, actives, y, z);
    else if (W.ncols <= NEAR)
        add_rows(W, active, actives, y, z, true);
    else
        add_rows(W, active, actives, y, z, false);
    const bool infinite = any_infinite(z, W.ncols);
    for (int64_t j = 0; j < W.ncols; j++) {  // as `between`
        const real limited = low > z[j] ? low : z[j];
        z[j] = (high < limited ? high : limited) + 0;
    }
    return infinite;
}
