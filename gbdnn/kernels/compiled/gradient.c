/* Gradients of a layer's weights and biases, of some of its columns.

    g[e] = sum over inputs q of Y[rows[e], q] D[j, q]            dW<W.S> = Y^T D
    b[j] = sum over inputs q of D[j, q]

The sums of several edges stay in registers for all inputs of a block, so that each value of D is
loaded once for all of them. A sparse layer is processed one neuron at a time, four edges at a time.
In a dense layer, three neurons read the same four rows.

The order of additions depends on neither threads nor blocks, only on the vectors in which inputs
are added first: whole cache lines in a sparse layer, registers in a dense one. */

#include "kernels.h"

/* A register: a cache line with AVX-512, else half of one. */
enum { PART = LANES * PAIR_LINES / 4, LINE_PARTS = LANES / PART };
typedef real part __attribute__((ext_vector_type(PART)));
typedef part part_anywhere __attribute__((aligned(sizeof(real))));

/* The reductions begin with 32 bytes. */
enum { HALF = LANES / 2 };
typedef real half __attribute__((ext_vector_type(HALF)));
typedef real four __attribute__((ext_vector_type(4)));
typedef four four_anywhere __attribute__((aligned(sizeof(real))));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
typedef double double4 __attribute__((ext_vector_type(4)));

enum { ROWS = 64 };  // of Y that fit the first-level cache

INLINED part load_part(const real *from) { return *(const part_anywhere *)from; }

/* The upper half of a line added to the lower one. */
INLINED half fold(const part *s, const int parts)
{
    const union { part whole; half halves[sizeof(part) / sizeof(half)]; } x = {
        parts == 2 ? s[0] + s[1] : s[0]};
    return sizeof(part) > sizeof(half) ? x.halves[0] + x.halves[sizeof(part) / sizeof(half) - 1]
                                       : x.halves[0];
}

/* The sum of the numbers of a vector, by halves. */
INLINED real sum_of(half x)
{
    real s[HALF];
    for (int k = 0; k < HALF; k++)
        s[k] = x[k];
    for (int n = HALF / 2; n > 0; n /= 2)
        for (int k = 0; k < n; k++)
            s[k] += s[k + n];
    return s[0];
}

/* Sums of neighbours in each 16 bytes of two vectors. */
INLINED float8 float_pairs(float8 a, float8 b)
{
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

INLINED double4 double_pairs(double4 a, double4 b)
{
    return __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
}

/* The sums of four vectors. Neighbours are added first: numbers cross a boundary of 16 bytes only
   in the last step, where that costs one instruction. */
INLINED float4 sums_of_floats(float8 a, float8 b, float8 c, float8 d)
{
    const float8 s = float_pairs(float_pairs(a, b), float_pairs(c, d));
    return s.lo + s.hi;
}

INLINED double4 sums_of_doubles(double4 a, double4 b, double4 c, double4 d)
{
    const double4 s = double_pairs(a, b), t = double_pairs(c, d);
    return __builtin_shufflevector(s, t, 0, 1, 4, 5) + __builtin_shufflevector(s, t, 2, 3, 6, 7);
}

/* g[m * step + n] = sum over inputs q of y[n][q] d[m][q], or += that sum if `add`, for each edge n
   of each neuron m. Vectors of `parts` registers are added first. */
INLINED void dots(const real *const *y, const real *const *d, int64_t inputs, const int edges,
                  const int neurons, const int parts, real *g, int64_t step, bool add)
{
    part s[3][4][2];
    for (int m = 0; m < neurons; m++)
        for (int n = 0; n < edges; n++)
            for (int p = 0; p < parts; p++)
                s[m][n][p] = 0;
    for (int64_t q = 0; q < inputs; q += parts * PART) {
        part u[3][2];
        for (int m = 0; m < neurons; m++)
            for (int p = 0; p < parts; p++)
                u[m][p] = load_part(d[m] + q + p * PART);
        for (int n = 0; n < edges; n++)
            for (int p = 0; p < parts; p++) {
                const part v = load_part(y[n] + q + p * PART);
                for (int m = 0; m < neurons; m++)
                    s[m][n][p] = __builtin_elementwise_fma(v, u[m][p], s[m][n][p]);
            }
    }
    for (int m = 0; m < neurons; m++, g += step) {
        half h[4];
        for (int n = 0; n < edges; n++)
            h[n] = fold(s[m][n], parts);
        if (edges == 4) {
            const four sums = _Generic((real)0, float: sums_of_floats, double: sums_of_doubles)(
                h[0], h[1], h[2], h[3]);
            *(four_anywhere *)g = add ? *(four_anywhere *)g + sums : sums;
        }
        for (int n = 0; n < edges && edges != 4; n++)
            g[n] = add ? g[n] + sum_of(h[n]) : sum_of(h[n]);
    }
}

/* Gradients of `edges` edges of a neuron, whose row of D is d. */
INLINED void some_edges(const real *Y, const real *d, int64_t stride, int64_t inputs,
                        const uint32_t *rows, const int edges, real *g, bool add)
{
    const real *y[4];
    for (int n = 0; n < edges; n++)
        y[n] = Y + rows[n] * stride;
    dots(y, &d, inputs, edges, 1, LINE_PARTS, g, 0, add);
}

/* The columns of thread `thread` in one panel of a sparse layer. */
static void sparse_columns(const struct edges W, int64_t panel, const real *Y, const real *D,
                           int64_t stride, int64_t inputs, int64_t thread, bool add)
{
    const int64_t *indptr = W.indptr + panel * W.ncols;
    for (int64_t j = W.cuts[thread]; j < W.cuts[thread + 1]; j++) {
        const real *d = D + W.places[j] * stride;
        int64_t e = indptr[j];
        const int64_t end = indptr[j + 1];
        for (; end - e >= 4; e += 4)
            some_edges(Y, d, stride, inputs, W.rows + e, 4, W.gradient + e, add);
        if (end - e >= 2) {
            some_edges(Y, d, stride, inputs, W.rows + e, 2, W.gradient + e, add);
            e += 2;
        }
        if (e < end)
            some_edges(Y, d, stride, inputs, W.rows + e, 1, W.gradient + e, add);
    }
}

/* Gradients of `edges` rows of a dense layer, from row i on, in `neurons` columns from j on. */
INLINED void some_columns(const struct edges W, const real *Y, const real *D, int64_t stride,
                          int64_t inputs, int64_t i, const int edges, int64_t j, const int neurons,
                          bool add)
{
    const real *y[4], *d[3];
    for (int n = 0; n < edges; n++)
        y[n] = Y + (i + n) * stride;
    for (int m = 0; m < neurons; m++)
        d[m] = D + W.places[j + m] * stride;
    dots(y, d, inputs, edges, neurons, 1, W.gradient + j * W.nrows + i, W.nrows, add);
}

/* The columns of thread `thread` in a dense layer. A group of rows is processed for all columns. */
static void dense_columns(const struct edges W, const real *Y, const real *D, int64_t stride,
                          int64_t inputs, int64_t thread, bool add)
{
    const int64_t first = W.cuts[thread], last = W.cuts[thread + 1];
    const int64_t quads = W.nrows / 4 * 4, threes = first + (last - first) / 3 * 3;
    for (int64_t group = 0; group < quads; group += ROWS) {
        const int64_t end = least(group + ROWS, quads);
        for (int64_t j = first; j < threes; j += 3)
            for (int64_t i = group; i < end; i += 4)
                some_columns(W, Y, D, stride, inputs, i, 4, j, 3, add);
        for (int64_t j = threes; j < last; j++)
            for (int64_t i = group; i < end; i += 4)
                some_columns(W, Y, D, stride, inputs, i, 4, j, 1, add);
    }
    for (int64_t j = first; j < last; j++)
        for (int64_t i = quads; i < W.nrows; i++)
            some_columns(W, Y, D, stride, inputs, i, 1, j, 1, add);
}

static real sum_of_row(const real *d, int64_t inputs)
{
    part s[LINE_PARTS] = {0};
    for (int64_t q = 0; q < inputs; q += LANES)
        for (int p = 0; p < LINE_PARTS; p++)
            s[p] += load_part(d + q + p * PART);
    return sum_of(fold(s, LINE_PARTS));
}

/* Whether no magnitude is NaN or too large. Bits of magnitudes sort as the values, NaN last. */
static bool within_reason(const real *values, int64_t count)
{
    const union { real value; bits bits; } limit = {sizeof(real) == 4 ? 1e30 : 1e290};
    const bits *x = (const bits *)values, any_but_sign = (bits)-1 >> 1;
    bits largest = 0;
    for (int64_t e = 0; e < count; e++)
        largest = (x[e] & any_but_sign) > largest ? x[e] & any_but_sign : largest;
    return largest <= limit.bits;
}

bool compute_gradient(const struct steps *job, int64_t k, int64_t thread, int64_t lines)
{
    const struct edges W = job->edges[k];
    const int64_t first = W.cuts[thread], last = W.cuts[thread + 1], stride = job->stride;
    for (int64_t line = 0; line < lines; line += job->group_lines) {
        const int64_t group = line / job->group_lines;
        const real *Y = block_of(job, job->Y, group, k), *D = block_of(job, job->D, group, k + 1);
        const int64_t inputs = least(lines - line, job->group_lines) * LANES;
        const bool add = line > 0;
        for (int64_t j = first; j < last; j++) {
            const real sum = sum_of_row(D + W.places[j] * stride, inputs);
            W.bias_gradient[j] = add ? W.bias_gradient[j] + sum : sum;
        }
        if (W.dense)
            dense_columns(W, Y, D, stride, inputs, thread, add);
        for (int64_t panel = 0; panel < W.panels && !W.dense; panel++)
            sparse_columns(W, panel, Y, D, stride, inputs, thread, add);
    }
    bool is_valid = within_reason(W.bias_gradient + first, last - first);
    for (int64_t panel = 0; panel < W.panels; panel++) {
        const int64_t *indptr = W.indptr + panel * W.ncols;
        is_valid &= within_reason(W.gradient + indptr[first], indptr[last] - indptr[first]);
    }
    return is_valid;
}
