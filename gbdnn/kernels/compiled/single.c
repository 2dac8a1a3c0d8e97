/* Compute neurons of a layer for a single input.

    z = b;  z += y[i] W(i, :) for every i with y[i] != 0;  y' = min(max(z, low), high)

W is stored by rows: activations equal to 0 are skipped, and the sums of different neurons are
independent. Each sum adds its edges in the same order as in a block, and skipped products are 0, so
the result has the same bits. */

#include <string.h>

#include "kernels.h"

/* Read the columns of four edges, which takes one load or two. */
INLINED void four_columns(const void *columns, int64_t e, const bool near, int64_t j[4])
{
    uint64_t found[2];
    if (near)
        memcpy(found, (const uint16_t *)columns + e, 8);
    else
        memcpy(found, (const uint32_t *)columns + e, 16);
    for (int k = 0; k < 4; k++)
        j[k] = near ? found[0] >> 16 * k & UINT16_MAX : found[k / 2] >> 32 * (k % 2) & UINT32_MAX;
}

/* Compute z += v W(i, :). A row has no repeated columns. `near` is known to the compiler. */
INLINED void add_row(const struct layer W, int64_t i, real v, real *restrict z, const bool near)
{
    const int64_t last = W.indptr[i + 1];
    int64_t e = W.indptr[i];
    for (; e + 4 <= last; e += 4) {
        const real *w = W.weights + e * W.weight_step;  // at least four numbers
        int64_t j[4];
        real sums[4];
        four_columns(W.rows, e, near, j);
        for (int k = 0; k < 4; k++)
            sums[k] = __builtin_elementwise_fma(w[k], v, z[j[k]]);
        for (int k = 0; k < 4; k++)
            z[j[k]] = sums[k];
    }
    for (; e < last; e++) {
        const int64_t j = near ? ((const uint16_t *)W.rows)[e] : W.rows[e];
        z[j] = __builtin_elementwise_fma(W.weights[e * W.weight_step], v, z[j]);
    }
}

/* Compute z = b + y W for the nonzero activations, whose `alive` numbers are in `living`. */
static void add_rows(const struct layer W, const uint32_t *living, int64_t alive, const real *y,
                     real *restrict z)
{
    for (int64_t j = 0; j < W.ncols; j++)
        z[j] = W.bias[j * W.bias_step];
    for (int64_t n = 0; n < alive; n++) {
        const int64_t i = living[n];
        const real v = y[i];
        if (W.dense)
            for (int64_t j = 0; j < W.ncols; j++)
                z[j] = __builtin_elementwise_fma(W.weights[i * W.ncols + j], v, z[j]);
        else if (W.ncols <= NEAR)
            add_row(W, i, v, z, true);
        else
            add_row(W, i, v, z, false);
    }
}

/* Write the numbers of the nonzero activations, and return how many there are. */
int64_t count_living(const real *y, int64_t nrows, uint32_t *restrict living)
{
    int64_t alive = 0;
    for (int64_t i = 0; i < nrows; i++) {  // a branch would often be mispredicted
        living[alive] = i;
        alive += y[i] != 0;
    }
    return alive;
}

bool any_infinite(const real *z, int64_t count)
{
    bits found = 0;
    for (int64_t j = 0; j < count; j++)
        found |= z[j] - z[j] != 0;
    return found;
}

bool compute_single(const struct layer *W, const uint32_t *living, int64_t alive, const real *y,
                    real *restrict z)
{
    const real low = W->limits[0], high = W->limits[1];
    add_rows(*W, living, alive, y, z);
    const bool infinite = any_infinite(z, W->ncols);
    for (int64_t j = 0; j < W->ncols; j++) {  // as `between`
        const real sum = z[j] + 0, limited = low > sum ? low : sum;
        z[j] = high < limited ? high : limited;
    }
    return infinite;
}
