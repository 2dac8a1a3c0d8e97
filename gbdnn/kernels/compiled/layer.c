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

INLINED void store_lines(real *to, const line *s, const int lines)
{
#pragma unroll
    for (int k = 0; k < lines; k++)
        store(to + k * LANES, s[k]);
}

/* Apply a layer's limits, or its mask, to the sums s of a neuron, and store them. */
INLINED void finish(const struct layer W, const struct strip x, int64_t place, line *s,
                    const int lines)
{
    const real low = W.limits[0], high = W.limits[1];
    line z[4];
#pragma unroll
    for (int k = 0; k < lines; k++)
        z[k] = W.masked ? inside(load(x.mask + place + k * LANES), low, high, s[k])
                        : between(s[k], low, high);
    store_lines(x.Z + place, z, lines);
    if (W.counted) {
#pragma unroll
        for (int k = 0; k < lines; k++)
            *(bits_line_anywhere *)(x.alive + k * LANES) -= (bits_line)(z[k] != 0);  // true is -1
    }
    if (W.checked) {
#pragma unroll
        for (int k = 0; k < lines; k++)
            *(bits_line_anywhere *)(x.overflow + k * LANES) |= infinite(s[k]);
    }
}

/* Order in which the four lines of a row are read: 1.02 to 1.05 times as fast as that of addresses,
   after which caches would prefetch the lines behind, which other tiles need much later. */
static const int ORDER[4] = {2, 0, 3, 1};

/* Compute `neurons` neurons from j on for `lines` cache lines of inputs. Their edges, `edges` each,
   begin at `first`. Sums start at the bias if this panel `begins`, else at the values in Z, and the
   limits are applied if it `ends`. `lines`, `neurons` and `reads` are constants. */
INLINED void tile(const struct layer W, const struct strip x, int64_t j, int64_t first,
                  int64_t edges, bool begins, bool ends, const int lines, const int neurons,
                  const enum reads reads)
{
    const int64_t step = reads == ALL ? 1 : W.weight_step;
    const real *w = W.weights + first * step;
    const uint32_t *rows = reads == ALL ? 0 : (const uint32_t *)W.rows + first;
    line s[12][4];
#pragma unroll
    for (int n = 0; n < neurons; n++) {
        const line bias = W.bias[(j + n) * W.bias_step];
        const real *z = x.Z + W.places[j + n] * x.stride;
#pragma unroll
        for (int k = 0; k < lines; k++)
            s[n][k] = begins ? bias : load(z + k * LANES);
    }
    for (int64_t e = 0; e < edges; e++) {
        line y[4];
#pragma unroll
        for (int n = 0; n < neurons; n++) {
            const line weight = w[n * edges * step];
            const int64_t row = reads == ALL ? e : rows[reads == OWN ? e + n * edges : e];
#pragma unroll
            for (int i = 0; i < lines; i++) {
                const int k = lines == 4 ? ORDER[i] : i;
                if (n == 0 || reads == OWN)
                    y[k] = load(x.Y + row * x.stride + k * LANES);
                s[n][k] = fma_line(weight, y[k], s[n][k]);
            }
        }
        w += step;
    }
#pragma unroll
    for (int n = 0; n < neurons; n++) {
        const int64_t place = W.places[j + n] * x.stride;
        if (ends)
            finish(W, x, place, s[n], lines);
        else
            store_lines(x.Z + place, s[n], lines);
    }
}

/* Compute the neurons of a panel for `lines` cache lines of inputs. */
INLINED void sweep_panel(const struct layer W, const struct strip x, int64_t panel,
                         const int lines)
{
    const bool begins = panel == 0, ends = panel == W.panels - 1;
    const int64_t *indptr = W.indptr + panel * W.ncols;
    for (int64_t j = 0; j < W.ncols; j++) {
        const int64_t edges = indptr[j + 1] - indptr[j];
        if (edges || begins || ends)
            tile(W, x, j, indptr[j], edges, begins, ends, lines, 1, OWN);
    }
}

/* Compute all neurons for `lines` cache lines of inputs. */
INLINED void sweep(const struct layer W, const struct strip x, const int lines)
{
    // Neurons of tiles of 4, 2, 1 lines: 1, 2, 4, or with AVX-512 2, 4, 8.
    const int several = lines < 2 * PAIR_LINES ? 2 * PAIR_LINES / lines : 1;
    const bool in_pairs = lines <= PAIR_LINES, by_degree = several > 1 && !W.paired;
    for (int64_t j = 0; j < W.ncols;) {
        const int64_t first = W.indptr[j], edges = W.indptr[j + 1] - first, last = j + several;
        // Columns ascend by degree: the first and the last show whether all have as many edges.
        if (in_pairs && W.pairs[j]) {
            tile(W, x, j, first, edges, true, true, lines, 2, SAME);
            j += 2;
        } else if (by_degree && last <= W.ncols && W.indptr[last] - W.indptr[last - 1] == edges) {
            tile(W, x, j, first, edges, true, true, lines, several, OWN);
            j += several;
        } else {
            tile(W, x, j, first, edges, true, true, lines, 1, OWN);
            j += 1;
        }
    }
}

/* Compute neurons `first` to `last` (exclusive) of a dense layer, `several` at a time. */
INLINED void sweep_dense(const struct layer W, const struct strip x, int64_t first, int64_t last,
                         const int lines, const int several)
{
    for (int64_t j = first; j < last;) {
        const int64_t edge = j * W.nrows;
        if (last - j >= several) {
            tile(W, x, j, edge, W.nrows, true, true, lines, several, ALL);
            j += several;
        } else if (last - j >= 2) {
            tile(W, x, j, edge, W.nrows, true, true, lines, 2, ALL);
            j += 2;
        } else {
            tile(W, x, j, edge, W.nrows, true, true, lines, 1, ALL);
            j += 1;
        }
    }
}

/* Each width has functions of its own, so that none shares the registers of another one. */

APART void sweep_panel4(const struct layer *W, const struct strip *x, int64_t panel)
{
    sweep_panel(*W, *x, panel, 4);
}

APART void sweep_panel2(const struct layer *W, const struct strip *x, int64_t panel)
{
    sweep_panel(*W, *x, panel, 2);
}

APART void sweep_panel1(const struct layer *W, const struct strip *x, int64_t panel)
{
    sweep_panel(*W, *x, panel, 1);
}

APART void sweep4(const struct layer *W, const struct strip *x) { sweep(*W, *x, 4); }
APART void sweep2(const struct layer *W, const struct strip *x) { sweep(*W, *x, 2); }
APART void sweep1(const struct layer *W, const struct strip *x) { sweep(*W, *x, 1); }

/* Tiles of one line have 6 neurons, or 12 with AVX-512; wide ones have 6. */

APART void sweep_dense1(const struct layer *W, const struct strip *x, int64_t first, int64_t last)
{
    sweep_dense(*W, *x, first, last, 1, 3 * PAIR_LINES);
}

APART void sweep_dense4(const struct layer *W, const struct strip *x, int64_t first, int64_t last)
{
    sweep_dense(*W, *x, first, last, 4, 6);
}

/* The inputs of a block from t on. */
static struct strip part(const struct strip block, int64_t t)
{
    struct strip x = block;
    x.Y += t, x.Z += t;
    x.mask = x.mask ? x.mask + t : 0;
    x.alive = x.alive ? x.alive + t : 0;
    x.overflow = x.overflow ? x.overflow + t : 0;
    return x;
}

/* Compute a dense layer. Weights are read in groups that stay in the second-level cache for all
   tiles of the block. */
static void compute_dense(const struct layer *W, const struct strip block, int64_t inputs)
{
    const int64_t rows = most(1, W->nrows);
    const int64_t fitting = GROUP_BYTES / (DENSE_GROUP * (int64_t)sizeof(real) * rows);
    const int64_t group = most(1, fitting) * DENSE_GROUP;
    for (int64_t first = 0; first < W->ncols; first += group) {
        const int64_t last = least(W->ncols, first + group);
        for (int64_t t = 0; t < inputs;) {
            const struct strip x = part(block, t);
            if (PAIR_LINES == 4 && inputs - t >= 4 * LANES) {
                sweep_dense4(W, &x, first, last);
                t += 4 * LANES;
            } else {
                sweep_dense1(W, &x, first, last);
                t += LANES;
            }
        }
    }
}

/* Compute one tile of `lines` cache lines of inputs. */
static void compute_tile(const struct layer *W, const struct strip x, int64_t lines)
{
    if (W->panels == 1) {
        (lines == 4 ? sweep4 : lines == 2 ? sweep2 : sweep1)(W, &x);
        return;
    }
    for (int64_t panel = 0; panel < W->panels; panel++)
        (lines == 4 ? sweep_panel4 : lines == 2 ? sweep_panel2 : sweep_panel1)(W, &x, panel);
}

/* Compute all neurons of a layer for `inputs` inputs, rounded up to whole cache lines. `alive` and
   `overflow` are set to 0 first, if the layer asks for them. */
void compute_layer(const struct layer *W, const struct strip block, int64_t inputs)
{
    const int64_t whole = whole_lines(inputs);
    for (int64_t q = 0; W->counted && q < whole; q++)
        block.alive[q] = 0;
    for (int64_t q = 0; W->checked && q < whole; q++)
        block.overflow[q] = 0;
    if (W->dense) {
        compute_dense(W, block, whole);
        return;
    }
    const bool many = W->edges >= MANY_EDGES * W->ncols && W->nrows > FAR_ROWS;
    const int64_t widest = W->paired || (many && W->panels == 1) ? PAIR_LINES : 4;
    for (int64_t t = 0; t < whole;) {
        const int64_t left = least(widest, (whole - t) / LANES);
        const int64_t lines = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        compute_tile(W, part(block, t), lines);
        t += lines * LANES;
    }
}
