"""A kernel in one file: dense products in NumPy, for the recipe of the pages."""

from gbdnn.engine.plan import BLOCK_KERNELS
from gbdnn.kernels.full import activate, start
from gbdnn.kernels.full_chain import FullChain
from gbdnn.kernels.kernel import BlockKernel
from gbdnn.kernels.reorder import reordered


class ToyKernel(BlockKernel):
    name = "toy"

    def cost(self, info, inputs, entries):
        return 0.1 * inputs * info.nrows * info.ncols

    def prepare(self, layer, rows, columns, *, wide=False):
        if rows is None:
            return layer.W.to_dense(fill_value=0), layer.bias
        W, b = reordered(layer, rows, columns)
        return W.matrix(transposed=True).to_dense(fill_value=0), b

    def chain(self, layers):
        return FullChain(layers, self)

    def advance(self, Y, Z, layer, weights, *, check=None):
        W, b = weights
        start(Z, b)
        Z.array[:] += W.T @ Y.array
        if check is not None:
            check(Z.filled)
        activate(Z, layer)


BLOCK_KERNELS["toy"] = ToyKernel()
