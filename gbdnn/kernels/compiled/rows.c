/* Copies between sparse rows and blocks, and equal sparse rows.

A block has one row per neuron. positions[c] is the row of neuron c in a block with reordered
neurons; without `positions`, it is row c. */

#include <string.h>

#include "kernels.h"

/* Copy `count` rows of a CSR matrix, starting at row `first`, into a block. `value_step` is 0 if
   all entries have the value values[0]. */
void fill(const int64_t *indptr, const int64_t *columns, const real *values, int64_t value_step,
          int64_t first, int64_t count, const int64_t *positions, real *restrict Y, int64_t stride,
          int64_t nrows)
{
    memset(Y, 0, nrows * stride * sizeof(real));
    for (int64_t q = 0; q < count; q++)
        for (int64_t e = indptr[first + q]; e < indptr[first + q + 1]; e++) {
            const int64_t i = positions ? positions[columns[e]] : columns[e];
            Y[i * stride + q] = values[e * value_step];
        }
}

/* Count the nonzero activations of each input of a block. */
void count(const real *Y, int64_t stride, int64_t nrows, int64_t inputs, int64_t *restrict counts)
{
    memset(counts, 0, inputs * sizeof(int64_t));
    for (int64_t i = 0; i < nrows; i++)
        for (int64_t q = 0; q < inputs; q++)
            counts[q] += Y[i * stride + q] != 0;
}

/* Write the nonzero activations of the first `inputs` inputs as sparse rows, ordered by column. The
   entries of input q begin at places[q], which is advanced to their end. */
void extract(const real *Y, int64_t stride, int64_t ncols, const int64_t *positions, int64_t inputs,
             int64_t *places, int64_t *restrict columns, real *restrict values)
{
    for (int64_t first = 0; first < inputs; first += LANES)
        for (int64_t c = 0; c < ncols; c++) {
            const real *row = Y + (positions ? positions[c] : c) * stride + first;
            const some_lanes nonzero = __builtin_convertvector(load(row) != 0, some_lanes);
            uint16_t left = 0;  // a bit for each nonzero activation
            memcpy(&left, &nonzero, sizeof nonzero);
            if (inputs - first < LANES)
                left &= (1 << (inputs - first)) - 1;
            for (; left; left &= left - 1) {
                const int q = __builtin_ctz(left);
                const int64_t e = places[first + q]++;
                columns[e] = c;
                values[e] = row[q];
            }
        }
}

/* Find the first row with the same bits as each row; return how many rows are the first of their kind.
   `table` has `size` places, a power of two above the number of rows, and is -1. */
int64_t first_equal(const int64_t *indptr, const int64_t *columns, const real *values, int64_t nrows,
                    int64_t *restrict table, int64_t size, int64_t *restrict first)
{
    int64_t distinct = 0;
    for (int64_t i = 0; i < nrows; i++) {
        const int64_t start = indptr[i], count = indptr[i + 1] - start;
        uint64_t mark = count;
        for (int64_t e = start; e < start + count; e++) {
            const uint64_t entry = (uint64_t)columns[e] * UINT64_C(0x9E3779B97F4A7C15) ^ ((const bits *)values)[e];
            mark += (entry ^ entry >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
        }
        for (uint64_t h = mark ^ mark >> 32;; h++) {
            int64_t *at = table + (h & (size - 1)), other = *at;
            if (other < 0) {
                *at = other = i;
                distinct++;
            }
            const int64_t begin = indptr[other];
            if (indptr[other + 1] - begin == count && !memcmp(columns + begin, columns + start, count * sizeof *columns)
                && !memcmp(values + begin, values + start, count * sizeof *values)) {
                first[i] = other;
                break;
            }
        }
    }
    return distinct;
}
