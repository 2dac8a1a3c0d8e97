/* The product of a graph matrix A and a full matrix Y, one row of A at a time.

    Z[i, :] = min(max(start[i, :] + sum over edges e of w[e] Y[columns[e], :], low), high)

All edges of a row are processed for up to four cache lines of features at a time, with the sums in
registers. The last line begins so early that it ends with the row; if there are fewer features than
a line holds, it has a mask. Rows of Y are scattered in memory and exceed the caches, so the rows of
later edges are prefetched, across the ends of rows of A, too. Arrays need no alignment. Each
feature has its own vector lane and adds its edges in order, one multiply-add each, so its result
does not depend on its position or on the number of features. */

#include "kernels.h"

enum {
    AHEAD = 8,  // edges
    MOST_LINES = 4,  // cache lines of sums in registers
};

/* A row of A, with pointers to some of its features. */
struct row {
    int64_t begin, end;  // its edges
    int64_t final;  // the last edge whose row of Y may be prefetched
    const real *start, *Y;
    real *Z;
};

/* Compute `count` features: more than `lines - 1` cache lines and at most `lines`, or at most one
   if `partial`. Return whether a sum is not finite. The compiler knows `lines` and `partial`. */
INLINED bool part(const struct product A, const struct row x, int64_t count, const int lines,
                  const bool partial)
{
    int64_t at[MOST_LINES];
    line s[MOST_LINES];
    bits_line faults = 0;
    const some_lanes mask = lanes_below(count);
#pragma unroll
    for (int k = 0; k < lines; k++) {
        at[k] = k < lines - 1 || partial ? k * LANES : count - LANES;
        s[k] = partial ? load_some(x.start, mask) : load(x.start + at[k]);
    }
    for (int64_t e = x.begin; e < x.end; e++) {
        const real *row = x.Y + (int64_t)A.columns[e] * A.stride;
        const real *later = x.Y + (int64_t)A.columns[least(e + AHEAD, x.final)] * A.stride;
        const line weight = A.weights[e * A.weight_step];
#pragma unroll
    for (int k = 0; k < lines; k++) {
            __builtin_prefetch(later + at[k]);
            s[k] = fma_line(weight, partial ? load_some(row, mask) : load(row + at[k]), s[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < lines; k++) {
        const line z = between(s[k], A.low, A.high);
        if (partial)
            store_some(x.Z, z, mask);
        else
            store(x.Z + at[k], z);
        faults |= infinite(s[k]);
    }
    return any(faults);
}

/* Compute features of a row, at most four cache lines. */
INLINED bool some_features(const struct product A, const struct row x, int64_t count)
{
    if (count > 3 * LANES)
        return part(A, x, count, 4, false);
    if (count > 2 * LANES)
        return part(A, x, count, 3, false);
    if (count > LANES)
        return part(A, x, count, 2, false);
    return part(A, x, count, 1, true);
}

/* Compute rows `first` to `last` (exclusive) of the product. Return whether a sum is not finite. */
static bool rows(const struct product A, int64_t first, int64_t last)
{
    bool infinite = false;
    for (int64_t i = first; i < last; i++) {
        const int64_t place = A.places ? A.places[i] : i;
        for (int64_t f = 0; f < A.features; f += MOST_LINES * LANES) {
            const struct row x = {
                .begin = A.indptr[i],
                .end = A.indptr[i + 1],
                .final = A.indptr[last] - 1,
                .start = A.start + place * A.start_stride + f,
                .Y = A.Y + f,
                .Z = A.Z + place * A.z_stride + f,
            };
            infinite |= some_features(A, x, least(A.features - f, MOST_LINES * LANES));
        }
    }
    return infinite;
}

/* The same, multiplied by dense weights; `block` has BLOCK_ROWS rows. */
static bool multiplied_rows(const struct product A, int64_t first, int64_t last, real *block)
{
    bool infinite = false;
    for (int64_t i = first; i < last; i += BLOCK_ROWS) {
        const int64_t count = least(BLOCK_ROWS, last - i);
        const int64_t place = A.places ? A.places[i] : i;  // one row has a place
        struct product some = A;
        some.indptr += i, some.places = 0, some.Z = block;
        infinite |= rows(some, 0, count);
        struct dense W = *A.next;
        W.Y = block, W.start += place * W.start_stride, W.Z += place * W.z_stride;
        infinite |= multiply_rows(&W, 0, count);
    }
    return infinite;
}

/* Compute ranges of rows of the product, multiplied by dense weights if there are some. Return whether
   a sum is not finite. */
int64_t gather(const struct product *product, const struct ranges *ranges, real *block)
{
    const struct product A = *product;
    bool infinite = false;
    for (int64_t n = 0; n < ranges->most; n++) {
        const int64_t *range = next_range(ranges);
        if (!range)
            break;
        infinite |= A.next ? multiplied_rows(A, range[0], range[1], block)
                           : rows(A, range[0], range[1]);
    }
    return infinite;
}
