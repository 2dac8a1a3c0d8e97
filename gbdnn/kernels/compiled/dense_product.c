/* The product of a matrix Y and dense weights W, both C-ordered, for some rows of Y.

    Z[i, :] = min(max(start[i, :] + Y[i, :] W, low), high)

A tile computes six rows for some cache lines of columns, with all sums in registers: a line of W is
loaded once for six multiply-adds, and a number of Y once for all lines. The last line begins so
early that it ends with the row; if there are fewer columns than a line holds, it has a mask. Rows of
W are padded to an odd number of lines, since lines a power of two apart would map to the same cache
sets. Each sum adds its terms in order, so its bits do not depend on the tile. */

#include "kernels.h"

enum {
    ROWS = 6,
    WIDEST = PAIR_LINES == 4 ? 4 : 1,  // cache lines of a tile
};

/* Compute `rows` rows from row i on, and `count` columns: more than `lines - 1` cache lines and at most
   `lines`, or at most one if `partial`. Return whether a sum is not finite. The compiler knows
   `lines`, `rows` and `partial`. */
INLINED bool tile(const struct dense D, int64_t i, int64_t column, int64_t count, const int lines,
                  const int rows, const bool partial)
{
    const real *W = D.W + column, *start = D.start + i * D.start_stride + column, *Y[ROWS];
    real *Z = D.Z + i * D.z_stride + column;
    int64_t at[WIDEST];
    line s[ROWS][WIDEST];
#pragma unroll
    for (int r = 0; r < rows; r++)
        Y[r] = D.Y + (D.ids ? D.ids[i + r] : i + r) * D.stride;
    const some_lanes mask = lanes_below(count);
#pragma unroll
    for (int k = 0; k < lines; k++)
        at[k] = k < lines - 1 || partial ? k * LANES : count - LANES;
#pragma unroll
    for (int r = 0; r < rows; r++)
#pragma unroll
        for (int k = 0; k < lines; k++) {
            const real *from = start + r * D.start_stride + at[k];
            s[r][k] = partial ? load_some(from, mask) : load(from);
        }
    for (int64_t e = 0; e < D.nrows; e++) {
        line w[WIDEST];
#pragma unroll
        for (int k = 0; k < lines; k++)
            w[k] = load(W + e * D.w_stride + at[k]);
#pragma unroll
        for (int r = 0; r < rows; r++) {
            const line y = Y[r][e];
#pragma unroll
            for (int k = 0; k < lines; k++)
                s[r][k] = fma_line(y, w[k], s[r][k]);
        }
    }
    bits_line faults = 0;
#pragma unroll
    for (int r = 0; r < rows; r++)
#pragma unroll
        for (int k = 0; k < lines; k++) {
            const line z = between(s[r][k], D.low, D.high);
            if (partial)
                store_some(Z + r * D.z_stride, z, mask);
            else
                store(Z + r * D.z_stride + at[k], z);
            faults |= infinite(s[r][k]);
        }
    return any(faults);
}

/* Compute `count` columns of rows `first` to `last` (exclusive). */
INLINED bool columns(const struct dense D, int64_t first, int64_t last, int64_t column,
                     int64_t count, const int lines, const bool partial)
{
    bool infinite = false;
    int64_t i = first;
    for (; last - i >= ROWS; i += ROWS)
        infinite |= tile(D, i, column, count, lines, ROWS, partial);
    for (; i < last; i++)
        infinite |= tile(D, i, column, count, lines, 1, partial);
    return infinite;
}

bool multiply_rows(const struct dense *dense, int64_t first, int64_t last)
{
    const struct dense D = *dense;
    bool infinite = false;
    for (int64_t c = 0; c < D.ncols; c += WIDEST * LANES) {
        const int64_t count = least(D.ncols - c, WIDEST * LANES);
        if (WIDEST == 4 && count > 3 * LANES)
            infinite |= columns(D, first, last, c, count, 4, false);
        else if (WIDEST == 4 && count > 2 * LANES)
            infinite |= columns(D, first, last, c, count, 3, false);
        else if (WIDEST == 4 && count > LANES)
            infinite |= columns(D, first, last, c, count, 2, false);
        else if (count == LANES)
            infinite |= columns(D, first, last, c, count, 1, false);
        else
            infinite |= columns(D, first, last, c, count, 1, true);
    }
    return infinite;
}

/* Compute ranges of rows. Return whether a sum is not finite. */
int64_t multiply(const struct dense *dense, const struct ranges *ranges)
{
    bool infinite = false;
    for (int64_t n = 0; n < ranges->most; n++) {
        const int64_t *range = next_range(ranges);
        if (!range)
            break;
        infinite |= multiply_rows(dense, range[0], range[1]);
    }
    return infinite;
}
