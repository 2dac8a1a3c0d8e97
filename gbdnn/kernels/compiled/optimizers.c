/* Updates of some columns of a layer's weights, and of their biases. */

#include "kernels.h"

#include <tgmath.h>

/* Weights or biases from `begin` to `end`. */
struct weights {
    real *w, *first, *second;  // moments
    const real *g;
    int64_t begin, end;
    real decay;
    real factor;  // of the gradient
};

/* With d = factor g + decay w: v = momentum v + d;  w -= lr v, or lr (d + momentum v). */
static void sgd(const struct weights x, const real *rates, const real *constants, bool nesterov)
{
    real *restrict w = x.w, *restrict v = x.first;
    const real *restrict g = x.g;
    const real lr = rates[0], momentum = constants[0];
    for (int64_t e = x.begin; e < x.end; e++) {
        const real d = x.factor * g[e] + x.decay * w[e];
        real u = momentum * v[e] + d;
        u = fabs(u) > TINY ? u : 0;
        v[e] = u;
        w[e] -= lr * (nesterov ? d + momentum * u : u);
    }
}

/* m, v: running means of d = factor g and of d^2.

    w -= lr (c1 m / (c2 sqrt(v) + eps) + decay w) */
static void adam(const struct weights x, const real *rates, const real *constants)
{
    real *restrict w = x.w, *restrict m = x.first, *restrict v = x.second;
    const real *restrict g = x.g;
    const real lr = rates[0], c1 = rates[1], c2 = rates[2];
    const real beta1 = constants[0], beta2 = constants[1], eps = constants[2];
    for (int64_t e = x.begin; e < x.end; e++) {
        const real d = x.factor * g[e];
        real a = beta1 * m[e] + (1 - beta1) * d;
        real b = beta2 * v[e] + (1 - beta2) * d * d;
        a = fabs(a) > TINY ? a : 0;
        b = b > TINY ? b : 0;
        m[e] = a;
        v[e] = b;
        w[e] = w[e] - lr * x.decay * w[e] - lr * c1 * a / (c2 * sqrt(b) + eps);
    }
}

void update(const struct steps *job, int64_t k, int64_t thread, const real *rates, real factor)
{
    const struct edges W = job->edges[k];
    const int64_t first = W.cuts[thread], last = W.cuts[thread + 1];
    for (int64_t panel = 0; panel <= W.panels; panel++) {
        const int64_t *indptr = W.indptr + panel * W.ncols;
        const real decay = job->constants[3];
        struct weights x = {W.bias, W.bias_first, W.bias_second, W.bias_gradient,
                            first, last, 0, factor};
        if (panel < W.panels)
            x = (struct weights){W.weights, W.first, W.second, W.gradient,
                                 indptr[first], indptr[last], decay, factor};
        if (job->optimizer == ADAM)
            adam(x, rates, job->constants);
        else
            sgd(x, rates, job->constants, job->optimizer == NESTEROV);
    }
}

/* squares[j] = sum of the squared gradients of column j. */
void add_squares(const struct edges *layer, int64_t thread)
{
    const struct edges W = *layer;
    for (int64_t j = W.cuts[thread]; j < W.cuts[thread + 1]; j++) {
        double total = (double)W.bias_gradient[j] * (double)W.bias_gradient[j];
        for (int64_t panel = 0; panel < W.panels; panel++) {
            const int64_t *indptr = W.indptr + panel * W.ncols;
            for (int64_t e = indptr[j]; e < indptr[j + 1]; e++)
                total += (double)W.gradient[e] * (double)W.gradient[e];
        }
        W.squares[j] = total;
    }
}

/* The norm of all gradients. Every thread adds the columns in the same order. */
double norm(const struct steps *job)
{
    double total = 0;
    for (int64_t k = 0; k < job->layers; k++)
        for (int64_t j = 0; j < job->edges[k].ncols; j++)
            total += job->edges[k].squares[j];
    return sqrt(total);
}

/* Copy a thread's part of W to W^T, edge by edge in the order of W^T. */
void refresh(const struct edges *layer, int64_t thread, int64_t threads)
{
    enum { ROWS = 16 };  // of W, whose cache lines are read together
    const struct edges W = *layer;
    const real *restrict w = W.weights;
    real *restrict transposed = W.transposed;
    if (W.dense) {
        const int64_t last = W.nrows * (thread + 1) / threads;
        for (int64_t group = W.nrows * thread / threads; group < last; group += ROWS)
            for (int64_t j = 0; j < W.ncols; j++)
                for (int64_t i = group; i < least(group + ROWS, last); i++)
                    transposed[i * W.ncols + j] = w[j * W.nrows + i];
        return;
    }
    const int64_t last = W.edges * (thread + 1) / threads;
    for (int64_t e = W.edges * thread / threads; e < last; e++)
        transposed[e] = w[W.transposed_edges[e]];
}
