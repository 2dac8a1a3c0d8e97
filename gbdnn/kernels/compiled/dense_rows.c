/* Copies between dense feature arrays and blocks.

A block has one row per neuron, a feature array one row per input. The copies transpose squares in
registers, along the rows of the feature array, which are read or written as streams: loops over a
square's rows are unrolled, since what has a variable index lies in memory, which takes twice the
time. The last square of a row, or of a block, begins so early that it ends with it. If there are
fewer inputs or neurons than a square has, it is read and written in part.

NumPy's large arrays begin 16 bytes after a cache line, and accesses that touch two lines take twice
the time. Squares therefore begin with a line if all rows of the array do so at the same column. */

#include "kernels.h"

enum { SQUARE = LANES * PAIR_LINES / 4 };  // numbers in a row of a square

typedef real row __attribute__((ext_vector_type(SQUARE)));
typedef bool some __attribute__((ext_vector_type(SQUARE)));
typedef uint8_t flags __attribute__((ext_vector_type(SQUARE)));
typedef __typeof__((row)0 > (row)0) integers;  // signed, as large as the numbers
typedef row row_anywhere __attribute__((aligned(sizeof(real))));
typedef flags flags_anywhere __attribute__((aligned(1)));

/* ------------------------------------------------------------------------------------------------
   Squares
   --------------------------------------------------------------------------------------------- */

typedef float floats __attribute__((ext_vector_type(4 * PAIR_LINES)));
typedef double doubles __attribute__((ext_vector_type(2 * PAIR_LINES)));

#if PAIR_LINES == 4
#define MERGE_FLOATS(a, b, n)                                                                      \
    __builtin_shufflevector(a, b, n, n + 16, n + 1, n + 17, n + 4, n + 20, n + 5, n + 21, n + 8,   \
                            n + 24, n + 9, n + 25, n + 12, n + 28, n + 13, n + 29)
#define MERGE_DOUBLES(a, b, n)                                                                     \
    __builtin_shufflevector(a, b, n, n + 8, n + 2, n + 10, n + 4, n + 12, n + 6, n + 14)
#define EVERY_OTHER(a, b, n)                                                                       \
    __builtin_shufflevector(a, b, n, n + 1, n + 4, n + 5, n + 8, n + 9, n + 12, n + 13)
#else
#define MERGE_FLOATS(a, b, n)                                                                      \
    __builtin_shufflevector(a, b, n, n + 8, n + 1, n + 9, n + 4, n + 12, n + 5, n + 13)
#define MERGE_DOUBLES(a, b, n) __builtin_shufflevector(a, b, n, n + 4, n + 2, n + 6)
#define EVERY_OTHER(a, b, n) __builtin_shufflevector(a, b, n, n + 1, n + 4, n + 5)
#endif

/* Merge numbers a and b of each 16 bytes: the lower half of them, and the upper half. */

INLINED void merge_floats(row *a, row *b)
{
    const floats x = (floats)*a, y = (floats)*b;
    *a = (row)MERGE_FLOATS(x, y, 0);
    *b = (row)MERGE_FLOATS(x, y, 2);
}

INLINED void merge_doubles(row *a, row *b)
{
    const doubles x = (doubles)*a, y = (doubles)*b;
    *a = (row)MERGE_DOUBLES(x, y, 0);
    *b = (row)MERGE_DOUBLES(x, y, 1);
}

/* Join the even groups of 16 bytes of a and b, and the odd ones. */
INLINED void join_groups(row *a, row *b)
{
    const doubles x = (doubles)*a, y = (doubles)*b;
    *a = (row)EVERY_OTHER(x, y, 0);
    *b = (row)EVERY_OTHER(x, y, 2);
}

/* Exchange rows and columns of a square; each step is one instruction per row. */
INLINED void transpose(row *s)
{
    const int size = 16 / sizeof(real);  // of a square within 16 bytes
    for (int k = 0; size == 4 && k < SQUARE; k += 2)
        merge_floats(s + k, s + k + 1);
    for (int k = 0; k < SQUARE; k += size)
        for (int n = 0; n < size / 2; n++)
            merge_doubles(s + k + n, s + k + n + size / 2);
    // Row `size * g + n` has column n of each group of columns, after the exchange of 1 and 2.
    for (int k = 0; size == 4 && k < SQUARE; k += 4) {
        const row second = s[k + 1];
        s[k + 1] = s[k + 2];
        s[k + 2] = second;
    }
#pragma unroll
    for (int step = size; step < SQUARE; step *= 2)
#pragma unroll
        for (int k = 0; k < SQUARE; k++)
            if (!(k & step))
                join_groups(s + k, s + k + step);
}

/* How a row of an array is divided into squares. */

/* Columns before a row where its first square begins: it then begins with a cache line, or a half. */
INLINED int64_t columns_before(const real *row, int64_t row_stride)
{
    return row_stride % SQUARE == 0 ? (int64_t)((uintptr_t)row / sizeof(real) % SQUARE) : 0;
}

/* Where a square begins that is to begin at k, in a row or block of `count` numbers. */
INLINED int64_t within(int64_t k, int64_t count)
{
    return most(0, least(k, count - SQUARE));
}

/* ------------------------------------------------------------------------------------------------
   Rows of an array to a block
   --------------------------------------------------------------------------------------------- */

/* Lanes below `count`. */
INLINED some first_lanes(int64_t count)
{
    integers lane;
    for (int k = 0; k < SQUARE; k++)
        lane[k] = k;
    return __builtin_convertvector(lane < (integers)(count < SQUARE ? count : SQUARE), some);
}

/* See `from_dense`; arrays have contiguous rows. `whole`: squares have all rows and columns. */
INLINED integers read_squares(const real *X, int64_t row_stride, const int64_t *ids, int64_t count,
                              const int64_t *positions, real *Y, int64_t stride, int64_t nrows,
                              const bool whole)
{
    const some lanes = first_lanes(nrows);
    const integers magnitude = (integers)((bits)~0 >> 1);
    integers largest = 0;
    for (int64_t r0 = 0; r0 < count; r0 += SQUARE) {
        const int64_t r = within(r0, count);
        const real *from[SQUARE];
        for (int k = 0; k < SQUARE; k++) {
            const int64_t q = whole || k < count ? r + k : 0;
            from[k] = X + (ids ? ids[q] : q) * row_stride;
        }
        for (int64_t c0 = -columns_before(from[0], row_stride); c0 < nrows; c0 += SQUARE) {
            const int64_t c = within(c0, nrows);
            row s[SQUARE];
            for (int k = 0; k < SQUARE; k++) {
                s[k] = whole ? *(const row_anywhere *)(from[k] + c)
                             : __builtin_masked_load(lanes, from[k] + c, (row)0);
                if (!whole && k >= count)
                    s[k] = 0;
                largest = __builtin_elementwise_max(largest, (integers)s[k] & magnitude);
            }
            transpose(s);
#pragma unroll
            for (int k = 0; k < SQUARE; k++)
                if (whole || k < nrows) {
                    const int64_t at = positions ? positions[c + k] : c + k;
                    *(row_anywhere *)(Y + at * stride + r) = s[k];
                }
        }
    }
    return largest;
}

/* The same for an array whose columns are `column_stride` numbers apart. */
static int64_t read_numbers(const real *X, int64_t row_stride, int64_t column_stride,
                            const int64_t *ids, int64_t count, const int64_t *positions, real *Y,
                            int64_t stride, int64_t nrows)
{
    bits largest = 0;
    for (int64_t c = 0; c < nrows; c++) {
        real *y = Y + (positions ? positions[c] : c) * stride;
        for (int64_t q = 0; q < count; q++) {
            const real *x = X + (ids ? ids[q] : q) * row_stride + c * column_stride;
            const bits magnitude = *(const bits *)x & (bits)~0 >> 1;
            largest = magnitude > largest ? magnitude : largest;
            y[q] = *x;
        }
    }
    return (int64_t)largest;
}

/* Y[positions[c], q] = X[ids[q], c] for `count` inputs; return the bits of the largest |X|.

   Bits of magnitudes sort as the numbers, NaN last. Strides are in numbers. Without `ids` or
   `positions` they are 0, 1, 2, ... Inputs that pad the last cache line are set to 0. */
int64_t from_dense(const real *X, int64_t row_stride, int64_t column_stride, const int64_t *ids,
                   int64_t count, const int64_t *positions, real *Y, int64_t stride, int64_t nrows)
{
    int64_t largest;
    if (column_stride != 1)
        largest = read_numbers(X, row_stride, column_stride, ids, count, positions, Y, stride,
                               nrows);
    else if (least(count, nrows) < SQUARE)
        largest = __builtin_reduce_max(
            read_squares(X, row_stride, ids, count, positions, Y, stride, nrows, false));
    else
        largest = __builtin_reduce_max(
            read_squares(X, row_stride, ids, count, positions, Y, stride, nrows, true));
    for (int64_t c = 0; count % LANES && c < nrows; c++)
        for (int64_t q = count; q < whole_lines(count); q++)
            Y[(positions ? positions[c] : c) * stride + q] = 0;
    return largest;
}

/* ------------------------------------------------------------------------------------------------
   A block to rows of an array
   --------------------------------------------------------------------------------------------- */

/* See `to_dense`. */
INLINED void write_squares(const real *Y, int64_t stride, int64_t ncols, const int64_t *ids,
                           int64_t count, real *X, int64_t row_stride, uint8_t *present,
                           const bool whole)
{
    const some lanes = first_lanes(ncols);
    for (int64_t r0 = 0; r0 < count; r0 += SQUARE) {
        const int64_t r = within(r0, count);
        const int64_t before = columns_before(X + ids[r] * row_stride, row_stride);
        for (int64_t c0 = -before; c0 < ncols; c0 += SQUARE) {
            const int64_t c = within(c0, ncols);
            row s[SQUARE];
            for (int k = 0; k < SQUARE; k++) {
                const int64_t at = whole || k < ncols ? c + k : 0;
                s[k] = *(const row_anywhere *)(Y + at * stride + r);
            }
            transpose(s);
#pragma unroll
            for (int k = 0; k < SQUARE; k++) {
                if (!whole && k >= count)
                    break;
                real *x = X + ids[r + k] * row_stride + c;
                uint8_t *flag = present ? present + ids[r + k] * ncols + c : 0;
                const flags nonzero = __builtin_convertvector((s[k] != 0) & 1, flags);
                if (whole) {
                    *(row_anywhere *)x = s[k];
                    if (present)
                        *(flags_anywhere *)flag = nonzero;
                } else {
                    __builtin_masked_store(lanes, s[k], x);
                    for (int n = 0; present && n < least(ncols, SQUARE); n++)
                        flag[n] = nonzero[n];
                }
            }
        }
    }
}

/* X[ids[q], c] = Y[c, q] for `count` inputs; return the number of nonzero values.

   `present`, contiguous and of the shape of X, is set to 1 where the value is not 0, else to 0. It
   may be null; nothing is counted then. */
int64_t to_dense(const real *Y, int64_t stride, int64_t ncols, const int64_t *ids, int64_t count,
                 real *X, int64_t row_stride, uint8_t *present)
{
    if (least(count, ncols) < SQUARE)
        write_squares(Y, stride, ncols, ids, count, X, row_stride, present, false);
    else
        write_squares(Y, stride, ncols, ids, count, X, row_stride, present, true);
    int64_t entries = 0;
    for (int64_t q = 0; present && q < count; q++) {
        const uint8_t *flag = present + ids[q] * ncols;
        uint32_t nonzero = 0;
        for (int64_t c = 0; c < ncols; c++)
            nonzero += flag[c];
        entries += nonzero;
    }
    return entries;
}
