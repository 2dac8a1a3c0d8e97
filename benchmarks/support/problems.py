"""The problem that a benchmark runs, built from options and passed on as plain arrays.

Programs read the problem from files, each in its own process, as NumPy and SciPy arrays. The files
are memory-mapped, so processes share them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import scipy.sparse as sp

    from gbdnn.challenge import Problem

INPUTS = 60_000

Neurons = Annotated[int, typer.Option(help="1024, 4096, 16384 or 65536.")]
Layers = Annotated[int, typer.Option(min=1)]
Inputs = Annotated[
    int | None,
    typer.Option(min=1, help="Default: 60,000, or all official images without MNIST."),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Official weights; default: a generated network."),
]
Images = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="IDX file, or folder with MNIST's training images; default: those next to the "
        "official weights, the official images, or digits.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the generated network.")]
Deduplicate = Annotated[bool, typer.Option(help="Compute equal inputs only once.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results.")]
Threads = Annotated[
    list[str] | None,
    typer.Option("--nthreads", metavar="N", help="Threads; several by comma or repetition."),
]
Interpreters = Annotated[
    list[str] | None,
    typer.Option(
        "--python", metavar="NAME=PATH", help="Interpreter of a program; may be repeated."
    ),
]
Batches = Annotated[
    list[str] | None,
    typer.Option(
        "--batch", metavar="N", help="Batch sizes for peers; several by comma or repetition."
    ),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="auto, fused, full or sparse; several by comma or repetition."
    ),
]


@dataclass(frozen=True)
class Arrays:
    """A challenge problem in FP32 as SciPy arrays.

    Attributes
    ----------
    weights : list of csr_array, each of shape (neurons before, neurons)
        ``W[i, j]`` is the edge from neuron i to neuron j.
    bias : list of float32
        One per layer, <= 0.
    clip : float32
        Upper limit of the activations.
    features : csr_array, shape (inputs, neurons)
        The inputs.
    """

    weights: list[sp.csr_array]
    bias: list[np.float32]
    clip: np.float32
    features: sp.csr_array


def build(
    neurons: int,
    layers: int,
    inputs: int | None,
    data: Path | None = None,
    images: Path | None = None,
    seed: int = 0,
) -> Problem:
    """Return the problem given by the options; exit if they are invalid."""
    from gbdnn import challenge
    from gbdnn.challenge.problems import training_images
    from gbdnn.errors import GbdnnError

    if data is not None and images is None:
        images = training_images(data) or training_images(data.parent)
    if inputs is None and (data is None or images is not None):
        inputs = INPUTS
    try:
        if data is None:
            return challenge.generated(neurons, layers, images=images, inputs=inputs, seed=seed)
        return challenge.official(data, neurons, layers, images=images, inputs=inputs)
    except GbdnnError as err:
        raise SystemExit(str(err)) from err


def true_categories(problem: Problem) -> tuple[np.ndarray, str]:
    """Return the reference categories and their source."""
    from gbdnn.challenge.scipy_check import scipy_categories

    if problem.truth is not None:
        return problem.truth, "the official categories"
    return scipy_categories(problem.network, problem.features), "SciPy in FP64"


def thread_counts(asked: list[str] | None, default: list[int]) -> list[int]:
    """Return the thread counts of ``--nthreads 1,2 --nthreads 4``, each once, in order."""
    return numbers(asked, "--nthreads", default)


def numbers(asked: list[str] | None, option: str, default: list[int]) -> list[int]:
    """Return the integers of an option, by comma or repetition, each once, in order."""
    try:
        found = [int(word) for item in asked or [] for word in item.split(",")]
    except ValueError as err:
        raise typer.BadParameter(f"{option}: {err}") from err
    if any(number < 1 for number in found):
        raise typer.BadParameter(f"{option} is at least 1")
    return list(dict.fromkeys(found or default))


def words(asked: list[str] | None, default: list[str]) -> list[str]:
    """Return the words of an option, by comma or repetition, each once, in order."""
    return list(dict.fromkeys(word for item in asked or default for word in item.split(",")))


def names(asked: list[str] | None, default: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the words of an option; exit if one is not among the known names."""
    found = words(asked, list(default))
    for each in found:
        if each not in known:
            raise typer.BadParameter(f"{each!r} is none of {', '.join(known)}")
    return found


def interpreters(asked: list[str] | None, known: Iterable[str]) -> dict[str, str]:
    """Return the interpreter of each program in an option."""
    found = dict(each.partition("=")[::2] for each in asked or [])
    for name, path in found.items():
        if name not in known or shutil.which(path) is None:
            raise typer.BadParameter(f"--python {name}={path} is not as deepsparse=venv/bin/python")
    return found


def merging(deduplicate: bool) -> dict[str, Any]:
    """Return the option of `infer`: its default, or deduplicate=False."""
    return {} if deduplicate else {"deduplicate": False}


def arrays(problem: Problem) -> Arrays:
    """Return the problem as SciPy arrays, mapped from files that are already deleted."""
    with tempfile.TemporaryDirectory() as name:
        save(problem, Path(name))
        return load(Path(name))


def save(problem: Problem, folder: Path) -> None:
    """Write the problem's arrays into `folder`, for `load`."""
    net = problem.network
    indices = _new(folder / "indices.npy", net.edges, np.int32)
    values = _new(folder / "values.npy", net.edges, np.float32)
    starts, at = [], 0
    for layer in net:
        found = layer.weights.ss.export("csr", sort=True)
        stop = at + layer.edges
        indices[at:stop] = found["col_indices"]
        values[at:stop] = found["values"]  # one value for all edges, or one per edge
        starts.append(found["indptr"].astype(np.int32))
        at = stop
    indices.flush()
    values.flush()
    np.save(folder / "starts.npy", np.concatenate(starts))
    X = problem.features.ss.export("csr", sort=True)
    columns = X["col_indices"].astype(np.int32)
    np.save(folder / "X_indptr.npy", X["indptr"].astype(np.int32))
    np.save(folder / "X_indices.npy", columns)
    np.save(folder / "X_values.npy", np.resize(X["values"].astype(np.float32), columns.shape))
    facts = {
        "shapes": [layer.shape for layer in net],
        "bias": [_number(layer.bias) for layer in net],
        "clip": net[0].clip,
    }
    (folder / "problem.json").write_text(json.dumps(facts))


def load(folder: Path, inputs: int | None = None) -> Arrays:
    """Return the problem that `save` wrote, or its first `inputs` inputs."""

    def mapped(name: str) -> np.ndarray:
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))

    facts = json.loads((folder / "problem.json").read_text())
    indices, values, starts = mapped("indices"), mapped("values"), mapped("starts")
    weights, at, row = [], 0, 0
    for nrows, ncols in facts["shapes"]:
        indptr = starts[row : row + nrows + 1]
        stop = at + int(indptr[-1])
        weights.append(_csr(values[at:stop], indices[at:stop], indptr, (nrows, ncols)))
        at, row = stop, row + nrows + 1
    indptr = mapped("X_indptr")
    shape = (len(indptr) - 1, facts["shapes"][0][0])
    X = _csr(mapped("X_values"), mapped("X_indices"), indptr, shape)
    bias = [np.float32(b) for b in facts["bias"]]
    return Arrays(weights, bias, np.float32(facts["clip"]), X if inputs is None else X[:inputs])


def _csr(
    values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    import scipy.sparse as sp

    A = sp.csr_array(shape, dtype=np.float32)
    A.data, A.indices, A.indptr = values, indices, indptr  # without copies
    return A


def _new(file: Path, size: int, dtype: type) -> np.memmap:
    return np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(size,))


def _number(bias: float | np.ndarray) -> float:
    if isinstance(bias, np.ndarray):
        raise SystemExit("the programs that are compared take one bias per layer")
    return bias
