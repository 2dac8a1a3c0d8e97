"""`gbdnn.torch.infer`: inference by PyTorch's products of a sparse and a dense matrix.

Columns are inputs, as in the papers that used cuSPARSE:

    Z  = W^T Y                     CSR times dense
    Z += b                         on every neuron, or where an edge comes from an activation
    Y' = min(max(Z, 0), clip)

Inputs whose activations are all zero are dropped after each layer, if at least a tenth are.

J. Wang, Z. Huang, L. Kong et al., "Performance of Training Sparse Deep Neural Networks on GPUs",
HPEC 2019.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gbdnn.arrays.checks import as_bytes, as_dtype, rows_within
from gbdnn.arrays.matrices import as_features, as_matrix
from gbdnn.arrays.sources import as_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.plan import MEMORY
from gbdnn.errors import ArgumentError
from gbdnn.kernels.kernel import starts_at_bias
from gbdnn.kernels.overflow import may_overflow, non_finite
from gbdnn.model.network import as_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer
    from gbdnn.model.network import Network

__all__ = ["infer"]

_DROPPED = 0.1  # share of dead inputs from which the others are moved


def infer(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    *,
    device: Any = "cpu",
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
    memory: int | str = MEMORY,
) -> gb.Matrix:
    """Return the activations of a sparse network's last layer, computed by PyTorch.

    Use it for a GPU; on a CPU, `gbdnn.infer` is faster. The result is that of `gbdnn.infer` but for
    rounding. Inputs are not modified.

    Parameters
    ----------
    layers, features
        As for `gbdnn.infer`; the weights of all layers are copied to the device.
    device : torch.device or str, default "cpu"
        Such as "cuda".
    bias, bias_rule, clip, last_activation, dtype : optional
        As for `gbdnn.infer`.
    memory : int or str, default "512MiB"
        Bytes of the activations on the device, or with a unit; inputs are computed in batches that
        fit.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new sparse Matrix without stored zeros.

    Raises
    ------
    ArgumentError
        PyTorch has no such device, or `memory` does not hold one input; otherwise as for
        `gbdnn.infer`.
    NonFiniteError
        ``Y W + b`` overflowed or became NaN; the message names the layer.

    Examples
    --------
    >>> import numpy as np, gbdnn.torch
    >>> W, X = np.array([[0.5, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 3.0]])
    >>> gbdnn.torch.infer([W, W], X, bias=-0.25, clip=2).to_dense(fill_value=0).tolist()
    [[0.125, 0.0], [0.75, 0.0]]
    """
    try:
        on = torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as err:
        raise ArgumentError(f"device={device!r} is not available: {err}") from err
    budget = as_bytes(memory)
    net = as_network(
        layers, features=features, bias=bias, bias_rule=bias_rule, clip=clip,
        last_activation=last_activation, dtype=dtype,
    )  # fmt: skip
    features = as_features(features, "features")
    if not len(net):
        return as_matrix(features, what="features", dtype=dtype and as_dtype(dtype))
    X = as_source(features, net.infos[0].dtype, net.infos[0].shape)
    infos, parts = net.infos, list[SparseRows]()
    widest = max(max(info.shape) for info in infos)
    row = 4 * widest * X.dtype.itemsize  # Z, Y and two temporary arrays
    step = rows_within(budget, row, f"inputs x {widest} neurons", least=1, most=max(1, X.nrows))
    with torch.inference_mode():
        weights = [_Weights(layer, on) for layer in net]
        checked = may_overflow(infos, X.largest)
        # Dead inputs can be dropped where no later layer revives them.
        last = max((k for k, info in enumerate(infos) if info.revives), default=-1)
        for start in range(0, X.nrows, step):
            stop = min(start + step, X.nrows)
            rows = X.dense_rows(start, stop) if X.dense_rows else X.sparse_rows(start, stop).dense()
            ids = torch.arange(start, stop, device=on)
            Y = torch.as_tensor(np.ascontiguousarray(rows), device=on).T.contiguous()
            for k, W in enumerate(weights):
                Z = W.applied(Y)
                if checked[k] and not bool(Z.isfinite().all()):
                    raise non_finite(k, infos[k])
                Y = W.activated(Z)
                if k >= last:
                    Y, ids = _without_dead(Y, ids)
            parts.append(_rows(Y, ids))
    return SparseRows.stacked(parts, X.nrows, net.shape[1], X.dtype).matrix()


class _Weights:
    """Transposed weights of a layer, in CSR, with its bias, on a device."""

    def __init__(self, layer: Layer, device: torch.device) -> None:
        arrays = layer.W.ss.export("csc", sort=True)
        pointers, rows = (arrays[name].astype(np.int64) for name in ("indptr", "row_indices"))
        values = np.broadcast_to(arrays["values"], rows.shape).copy()

        def matrix(of: np.ndarray) -> torch.Tensor:
            tensors = (torch.as_tensor(each, device=device) for each in (pointers, rows, of))
            size = layer.shape[::-1]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
                return torch.sparse_csr_tensor(*tensors, size=size, check_invariants=False)

        self._layer, self._matrix = layer, matrix(values)
        self._pattern = None if starts_at_bias(layer.info) else matrix(np.ones_like(values))
        b = np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,))
        self._bias = torch.as_tensor(b.copy(), device=device).unsqueeze(1)

    def applied(self, Y: torch.Tensor) -> torch.Tensor:
        """Return ``W^T Y + b``."""
        Z = self._matrix @ Y
        if self._pattern is None:
            return Z.add_(self._bias)
        # Rule `entries`: where an edge comes from an activation, even if the sum is 0.
        return Z.add_(self._bias * (self._pattern @ (Y != 0).to(Y.dtype) > 0))

    def activated(self, Z: torch.Tensor) -> torch.Tensor:
        """Return ``min(max(Z, 0), clip)``, or without the maximum."""
        low = 0.0 if self._layer.activation == "relu" else None
        return Z if low is None and self._layer.clip is None else Z.clamp_(low, self._layer.clip)


def _without_dead(Y: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    alive = (Y != 0).any(0)
    if int(alive.sum()) > (1 - _DROPPED) * len(ids):
        return Y, ids
    return Y[:, alive], ids[alive]


def _rows(Y: torch.Tensor, ids: torch.Tensor) -> SparseRows:
    """Return inputs, the columns of Y, as sparse rows."""
    rows = SparseRows.from_array(Y.T.cpu().numpy())
    return rows.with_ids(ids.cpu().numpy())
