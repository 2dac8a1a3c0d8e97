/* The edges of a layer in the order in which neurons are computed.

Columns of W become adjacent if they have the same rows, so that they are computed in pairs. If
neurons have many edges, these are sorted by panels of rows instead. `weights` has a number per
edge; it is null if all edges have the same weight. */

#include "kernels.h"

/* Compute the mean row of each column, and a hash of its rows. */
void patterns(const int64_t *indptr, const int64_t *rows, int64_t ncols, double *mean,
              uint64_t *mark)
{
    for (int64_t j = 0; j < ncols; j++) {
        const int64_t count = indptr[j + 1] - indptr[j];
        int64_t total = 0;
        uint64_t marks = 0;
        for (int64_t e = indptr[j]; e < indptr[j + 1]; e++) {
            const uint64_t hashed = (uint64_t)rows[e] * 0x9E3779B97F4A7C15;
            total += rows[e];
            marks += hashed ^ hashed >> 29;
        }
        mean[j] = (double)total / most(1, count);
        mark[j] = marks;
    }
}

/* Whether two columns have the same rows; their edges begin at `first` and `second`. */
static bool same_rows(const uint32_t *rows, int64_t first, int64_t second, int64_t end)
{
    const int64_t count = end - second;
    bool same = second - first == count;
    for (int64_t e = 0; same && e < count; e++)
        same = rows[first + e] == rows[second + e];
    return same;
}

/* Reorder columns, and mark the first of each pair of consecutive columns with the same rows. */
void arrange(const int64_t *indptr, const int64_t *rows, const real *weights, const int64_t *order,
             int64_t ncols, uint8_t *pairs, int64_t *new_indptr, uint32_t *restrict new_rows,
             real *restrict new_weights)
{
    int64_t at = 0;
    bool free = false;  // whether a column before this one is in no pair
    new_indptr[0] = 0;
    for (int64_t j = 0; j < ncols; j++) {
        const int64_t first = indptr[order[j]], count = indptr[order[j] + 1] - first;
        for (int64_t e = 0; e < count; e++)
            new_rows[at + e] = rows[first + e];
        for (int64_t e = 0; weights && e < count; e++)
            new_weights[at + e] = weights[first + e];
        at += count;
        new_indptr[j + 1] = at;
        pairs[j] = 0;
        if (free && same_rows(new_rows, new_indptr[j - 1], new_indptr[j], at)) {
            pairs[j - 1] = 1;
            free = false;
        } else {
            free = true;
        }
    }
}

/* Sort edges by panel of `size` rows, then by column, then by row. Rows must ascend in a column.
   `cursors` is work space, a number per column. Column j of panel p begins at
   new_indptr[p * ncols + j]. */
void panels(const int64_t *indptr, const int64_t *rows, const real *weights, int64_t ncols,
            int64_t size, int64_t count, int64_t *restrict cursors, int64_t *restrict new_indptr,
            uint32_t *restrict new_rows, real *restrict new_weights)
{
    int64_t at = 0;
    for (int64_t j = 0; j < ncols; j++)
        cursors[j] = indptr[j];
    for (int64_t panel = 0; panel < count; panel++)
        for (int64_t j = 0; j < ncols; j++) {
            int64_t e = cursors[j];
            new_indptr[panel * ncols + j] = at;
            for (; e < indptr[j + 1] && rows[e] < (panel + 1) * size; e++) {
                new_rows[at] = rows[e];
                if (weights)
                    new_weights[at] = weights[e];
                at++;
            }
            cursors[j] = e;
        }
    new_indptr[count * ncols] = at;
}
