/* Compute a layer for a block of inputs.

    Z[j] = min(max(b[j] + sum over edges e of w[e] Y[rows[e]], low), high)

A block is C-ordered with one row per neuron. Rows are aligned to cache lines, and `stride` is an odd
number of lines, since rows a power of two apart would map to the same cache sets.

A tile computes some neurons for some cache lines of inputs, with all sums in registers. An edge
costs a load and a multiply-add per register. A multiply-add takes four cycles, and two begin per
cycle, so about eight independent sums hide its latency. A tile of inputs passes through all neurons
before the next one, so that its activations stay in the caches. Which rows its neurons read makes
three kinds of tile:

    SAME  the same rows, loaded once for all neurons: 1.3 times as fast as one neuron at a time in
          the challenge's networks
    OWN   rows of their own, equally many: 1.1 to 1.2 times for tiles of one or two lines
    ALL   every row, which needs no row numbers: 1.3 times for nearly dense layers

Rows read in random order come from the second-level cache. If neurons have enough edges in each
panel of rows, the edges are sorted by panel, so that a tile's part of a panel stays in the
first-level cache (in training, in the second-level one). All neurons process the edges of one panel
before the next, and sums are stored in between, which does not change their bits.

A dense layer computes six or twelve neurons together and reaches the speed of a BLAS. Its result has
the same bits as a sparse layer with the same weights. */

#include "kernels.h"

enum reads { SAME, OWN, ALL };

enum {
    FAR_ROWS = 256,  // without AVX-512, tiles of two lines are faster for more rows than this, ...
    MANY_EDGES = 20,  // ... with as many edges per neuron
    GROUP_BYTES = 1 << 17,  // of dense weights that stay in the second-level cache
};

/* Compute `neurons` neurons from j on for `lines` cache lines of inputs. Their edges, `edges` each,
   begin at `first`. Sums start at the bias if this panel `begins`, else at the values in Z, and the
   limits are applied if it `ends`. All numbers of type int and `reads` are known to the compiler. */
INLINED void tile(const struct layer W, const struct strip x, int64_t j, int64_t first,
                  int64_t edges, bool begins, bool ends, const int lines, const int neurons,
                  const enum reads reads)
{
    const int64_t step = reads == ALL ? 1 : W.weight_step;
    const real *w = W.weights + first * step;
    const uint32_t *rows = W.rows + first;
    line s[12][4];
    for (int n = 0; n < neurons; n++)
        for (int k = 0; k < lines; k++) {
            const real *z = x.Z + W.places[j + n] * x.stride + k * LANES;
            s[n][k] = begins ? (line)W.bias[(j + n) * W.bias_step] : load(z);
        }
    for (int64_t e = 0; e < edges; e++) {
        line y[4];
        for (int n = 0; n < neurons; n++) {
            const line weight = w[n * edges * step];
            const int64_t row = reads == ALL ? e : rows[reads == OWN ? n * edges : 0];
            for (int k = 0; k < lines; k++) {
                if (n == 0 || reads == OWN)
                    y[k] = load(x.Y + row * x.stride + k * LANES);
                s[n][k] = fma_line(weight, y[k], s[n][k]);
            }
        }
        w += step;
        rows++;
    }
    for (int n = 0; n < neurons; n++)
        for (int k = 0; k < lines; k++) {
            const int64_t at = W.places[j + n] * x.stride + k * LANES;
            if (ends && W.masked) {
                store(x.Z + at, inside(load(x.mask + at), W.limits[0], W.limits[1], s[n][k]));
            } else if (ends) {
                const line z = between(s[n][k], W.limits[0], W.limits[1]);
                store(x.Z + at, z);
                if (W.counted)
                    *(bits_line_anywhere *)(x.live + k * LANES) -= (bits_line)(z != 0);  // true is -1
                if (W.checked)
                    *(bits_line_anywhere *)(x.overflow + k * LANES) |= infinite(s[n][k]);
            } else {
                store(x.Z + at, s[n][k]);
            }
        }
}
