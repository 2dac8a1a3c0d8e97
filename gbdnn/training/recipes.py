"""Training recipes of several steps: FSSL, fine-tuned structured sparsity learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gbdnn.arrays.checks import whole_number
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.training.adjustments import GroupLasso
from gbdnn.training.adjustments import input_dropout as input_dropout_of
from gbdnn.training.compaction import compact
from gbdnn.training.optimizers import SGD, require_optimizer
from gbdnn.training.train import train

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network
    from gbdnn.training.optimizers import AnyOptimizer
    from gbdnn.training.run import TrainingRun

__all__ = ["StructuredRun", "fssl"]


class StructuredRun(NamedTuple):
    """Result of `fssl`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=1)
    >>> run = gbdnn.training.fssl(net, np.eye(8), np.arange(8) % 2, strength=0.02, epochs=3)
    >>> run.network.edges <= net.edges, run.inputs.size <= 8
    (True, True)
    """

    learned: TrainingRun
    """Structure learning run: the original neurons, many without weights."""

    fine_tuned: TrainingRun
    """Fine-tuning run of the compact network."""

    inputs: np.ndarray
    """Indices of the inputs that the compact network uses, int64."""

    @property
    def network(self) -> Network:
        """The fine-tuned compact network."""
        return self.fine_tuned.network


def fssl(
    net: Network | Iterable[Layer],
    X: MatrixLike,
    y: Any,
    *,
    strength: float,
    epochs: int = 30,
    fine_tuning_epochs: int = 20,
    every: int = 4,
    optimizer: AnyOptimizer | None = None,
    fine_tuning_optimizer: AnyOptimizer | None = None,
    input_dropout: float = 0.0,
    fine_tuning_dropout: float | None = None,
    **options: Any,
) -> StructuredRun:
    """Learn a compact network structure and fine-tune it (FSSL).

    1. Structure learning: `train` with `GroupLasso` sets all weights of some neurons to 0.
    2. Compaction: `compact` removes these neurons.
    3. Fine-tuning: `train` without the penalty, on the remaining edges.

    By default, the learning rate decays to 0 in each of the two trainings.

    Parameters
    ----------
    net : Network or list of Layer
        Initial network, dense (``erdos_renyi(sizes, density=1)``) or sparse.
    X, y : MatrixLike and array_like
        As in `train`.
    strength : float
        Strength of the group lasso; larger values leave fewer neurons.
    epochs, fine_tuning_epochs : int, default 30 and 20
        Epochs of the two trainings.
    every : int, default 4
        Steps between two proximal steps.
    optimizer : SGD or Adam, default SGD(0.05, momentum=0.9)
    fine_tuning_optimizer : SGD or Adam, optional
        Default: `optimizer`.
    input_dropout, fine_tuning_dropout : float, default 0.0 and `input_dropout`
        Fractions for `InputDropout` in the two trainings. Dropout makes gradients noisy, which
        keeps groups from staying at 0; prefer it in fine-tuning only.
    **options
        Further options of `train` for both trainings: sample_weight, batch_size, validation,
        schedule, seed, nthreads, callback, loss.

    Returns
    -------
    StructuredRun
        With `.network` and the runs of both trainings.

    Raises
    ------
    ArgumentError
        A layer has lost all its weights.
    GbdnnError
        As in `train`.

    Notes
    -----
    [1]_ does not specify groups and schedule; the groups and the threshold are those of SSL [2]_,
    which reduces 784-500-300-10 to 434-174-78-10.

    References
    ----------
    .. [1] J. Wang et al., "Performance of Training Sparse Deep Neural Networks on GPUs", HPEC 2019.
    .. [2] W. Wen, C. Wu, Y. Wang, Y. Chen, H. Li, "Learning Structured Sparsity in Deep Neural
       Networks", NeurIPS 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import gbdnn
    >>> X, y = load_digits(return_X_y=True)
    >>> net = gbdnn.training.erdos_renyi([64, 100, 10], density=1)
    >>> run = gbdnn.training.fssl(
    ...     net, X / 16, y, strength=0.02, batch_size=32, epochs=10, fine_tuning_epochs=5
    ... )
    >>> run.network.edges < 0.5 * net.edges
    True
    >>> run.network.infos[0].ncols < 50
    True
    """
    for name in sorted({"adjustments", "checkpoint", "patience"} & options.keys()):
        raise ArgumentTypeError(f"fssl does not support {name}=; use train")
    whole_number(fine_tuning_epochs, "fine_tuning_epochs", least=0)
    if fine_tuning_optimizer is not None:
        require_optimizer(fine_tuning_optimizer, "fine_tuning_optimizer")
    dropout = input_dropout_of(input_dropout)
    later = dropout
    if fine_tuning_dropout is not None:
        later = input_dropout_of(fine_tuning_dropout, "fine_tuning_dropout")
    optimizer = SGD() if optimizer is None else optimizer
    learned = train(
        net, X, y, epochs=epochs, optimizer=optimizer,
        adjustments=(GroupLasso(strength, every), *dropout), **options,
    )  # fmt: skip
    small = compact(learned.network).network
    for k, info in enumerate(small.infos):
        if not info.edges:
            raise ArgumentError(
                f"strength={strength:g} removed all weights of layer {k}; pass a smaller strength"
            )
    fine_tuned = train(
        small, X, y, epochs=fine_tuning_epochs, optimizer=fine_tuning_optimizer or optimizer,
        adjustments=later, **options,
    )  # fmt: skip
    return StructuredRun(learned, fine_tuned, compact(small, inputs=True).inputs)
