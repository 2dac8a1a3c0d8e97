"""The challenge problem that a benchmark runs, from its options.

Other programs read the problem from a folder, each in its own process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import options  # noqa: TC002 -- typer reads the annotations
import typer

if TYPE_CHECKING:
    from pathlib import Path

    import scipy.sparse as sp

    from gbdnn.challenge import Problem

INPUTS = 60_000


@dataclass(frozen=True)
class Choice:
    """The options of a challenge problem."""

    neurons: Annotated[int, typer.Option(help="1024, 4096, 16384 or 65536.")] = 1024
    layers: options.Count = 120
    inputs: options.Inputs = None
    data: options.Data = None
    images: options.Images = None
    seed: options.Seed = 0

    def build(self, **other: Any) -> Problem:
        """Return the problem, or that of other options; exit if they are invalid."""
        from gbdnn import challenge
        from gbdnn.challenge.problems import training_images
        from gbdnn.errors import GbdnnError

        at = replace(self, **other)
        data, images, inputs = at.data, at.images, at.inputs
        if data is not None and images is None:
            images = training_images(data) or training_images(data.parent)
        if inputs is None and (data is None or images is not None):
            inputs = INPUTS
        sizes = {"images": images, "inputs": inputs}
        try:
            if data is None:
                return challenge.generate(at.neurons, at.layers, seed=at.seed, **sizes)
            return challenge.load(data, at.neurons, at.layers, **sizes)
        except GbdnnError as err:
            raise SystemExit(str(err)) from err


def known_weights(data: Path | None, neurons: int, layers: int) -> Path | None:
    """Return a folder if it has the official weights of a network, otherwise None."""
    return data if data and any(data.rglob(f"n{neurons}-l{layers}.tsv*")) else None


def true_categories(problem: Problem) -> tuple[np.ndarray, str]:
    """Return the reference categories and their source."""
    from gbdnn.challenge.scipy_check import scipy_categories

    if problem.truth is not None:
        return problem.truth, "the official categories"
    return scipy_categories(problem.network, problem.features), "SciPy in FP64"


def merging(deduplicate: bool) -> dict[str, Any]:
    """Return the option of `infer`: its default, or deduplicate=False."""
    return {} if deduplicate else {"deduplicate": False}


def save(problem: Problem, folder: Path) -> None:
    """Write the problem into `folder`, for `load`."""
    import gbdnn

    gbdnn.save(problem.network, folder / "network")
    gbdnn.io.write_features(problem.features, folder / "features")


def load(folder: Path) -> Problem:
    """Return the problem that `save` wrote."""
    import gbdnn
    from gbdnn.challenge import Problem

    # A large network would be read from the store in each call.
    network = gbdnn.load(folder / "network", lazy=False)
    features = gbdnn.io.read_features(folder / "features")
    return Problem(name=folder.name, network=network, features=features)


def csr(matrix: Any) -> sp.csr_array:
    """Return a GraphBLAS matrix as SciPy's, in FP32 with 32-bit indices."""
    import graphblas as gb
    import scipy.sparse as sp

    A = gb.io.to_scipy_sparse(matrix)
    arrays = A.data.astype(np.float32), A.indices.astype(np.int32), A.indptr.astype(np.int32)
    return sp.csr_array(arrays, shape=A.shape)
