"""Challenge problems: a network, features, and the true categories if known."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.arrays.checks import as_flag, as_path, as_seed, whole_number
from gbdnn.errors import ArgumentError, FormatError, naming
from gbdnn.gallery import digits, features_from_images
from gbdnn.gallery.networks import CHALLENGE, radixnet
from gbdnn.io.array_files import read_idx
from gbdnn.io.challenge.layout import find_categories, find_features, find_layers
from gbdnn.io.challenge.network import iter_layers
from gbdnn.io.data import read_categories, read_features
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb
    import numpy as np

    Progress = Callable[[int, int], object]

_TRAINING = "train-images-idx3-ubyte.gz"


@dataclass(frozen=True, kw_only=True, repr=False)
class Problem:
    """Network, features, and true categories of a challenge problem.

    Attributes
    ----------
    name : str
        A description of the network and the features.
    network : Network
        The layers.
    features : Matrix, shape (inputs, neurons)
        The inputs.
    truth : ndarray of int64, optional
        0-based categories; None if they are not known.
    seed : int, optional
        The seed of a generated network.

    Examples
    --------
    >>> from gbdnn import challenge
    >>> problem = challenge.generate(1024, 6, inputs=100)
    >>> problem
    Problem(1024 neurons x 6 layers, generated (seed 0), on 100 inputs (scikit-learn's digits))
    >>> problem.inputs, problem.network.edges
    (100, 196608)
    """

    name: str
    network: Network
    features: gb.Matrix
    truth: np.ndarray | None = None
    seed: int | None = None

    def __repr__(self) -> str:
        return f"Problem({self.name})"

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return int(self.features.nrows)


def generate(
    neurons: int = 1024,
    layers: int = 120,
    *,
    images: str | os.PathLike[str] | None = None,
    inputs: int | None = None,
    seed: int | np.random.Generator = 0,
) -> Problem:
    """Generate a problem without downloads: a RadiX-Net, and features from images.

    Parameters
    ----------
    neurons, layers, seed
        As for `radixnet`.
    images : path-like, optional
        IDX file, or folder with MNIST's training images, from which the challenge's official inputs
        are derived. Default: scikit-learn's 1,797 digits.
    inputs : int, optional
        Number of inputs (default: one per image). If it exceeds the number of images, shifted
        images are added.

    Returns
    -------
    Problem
        Without `truth`; `run` computes it with SciPy.

    Examples
    --------
    >>> from gbdnn import challenge
    >>> problem = challenge.generate(1024, 6, inputs=100)
    >>> problem.inputs, len(problem.network), problem.truth is None
    (100, 6, True)
    """
    seed = as_seed(seed)
    network = radixnet(neurons, layers, seed=seed)
    features, called = _images(images, neurons, inputs)
    return Problem(
        name=f"{neurons} neurons x {layers} layers, generated (seed {seed}), on {called}",
        network=network,
        features=features,
        seed=seed,
    )


def load(
    directory: str | os.PathLike[str],
    neurons: int = 1024,
    layers: int = 120,
    *,
    images: str | os.PathLike[str] | None = None,
    inputs: int | None = None,
    truth: bool = True,
    progress: Progress | None = None,
) -> Problem:
    """Read a problem from official files.

    Parameters
    ----------
    directory : path-like
        Folder of the unpacked files: the root of the data set with ``DNN`` and ``MNIST``, or any
        folder with the files.
    neurons, layers : int
        Size of the network.
    images : path-like, optional
        Images to use instead of the official ones, as for `generate`. There is no official truth.
    inputs : int, optional
        Number of inputs to use, starting with the first (default: all).
    truth : bool, default True
        Whether to read the true categories.
    progress : callable, optional
        Called as ``progress(k, layers)`` after k layers.

    Returns
    -------
    Problem
        ``truth`` is set if requested and the images are the official ones.

    Raises
    ------
    MissingFileError, FormatError
        A file is missing or damaged.
    ArgumentError
        `inputs` exceeds the number of images.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import gbdnn
    >>> from gbdnn import challenge
    >>> folder = Path(tempfile.mkdtemp())
    >>> net = gbdnn.gallery.radixnet(1024, 2)  # in place of a download
    >>> X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits()[:50], 1024)
    >>> gbdnn.save(net, folder, "tsv")
    >>> gbdnn.io.write_features(X, folder / "sparse-images-1024.tsv")
    >>> true = gbdnn.categories(gbdnn.infer(net, X))
    >>> gbdnn.io.write_categories(true, folder / "neuron1024-l2-categories.tsv")
    >>> challenge.run(challenge.load(folder, 1024, 2)).check
    'PASSED'
    """
    as_flag(truth, "truth")
    if whole_number(neurons, "neurons") not in CHALLENGE:
        sizes = ", ".join(map(str, CHALLENGE))
        raise ArgumentError(f"neurons must be one of {sizes}, not {shown(neurons)}")
    known = None
    if images is not None:
        features, called = _images(images, neurons, inputs)
    else:
        file = find_features(directory, neurons)
        features = read_features(file, ncols=neurons)
        if inputs is not None:
            with naming(str(file)):
                whole_number(inputs, "inputs", least=1, most=features.nrows)
            features = features[:inputs, :].new()
        called = f"{features.nrows} inputs ({file.name})"
        if truth:
            file = find_categories(directory, neurons, layers)
            known = read_categories(file, inputs=inputs)
            if known.size and known[-1] >= features.nrows:
                raise FormatError(
                    f"{file} lists input {known[-1] + 1}, but only {features.nrows} images are"
                    f" used; pass inputs={features.nrows} to restrict the check to them"
                )
    network = Network(iter_layers(directory, neurons, layers, progress=progress))
    degree = CHALLENGE[neurons].degree
    files = find_layers(directory, neurons, layers)
    for file, layer in zip(files, network.infos, strict=True):
        if layer.edges != degree * neurons:
            raise FormatError(
                f"{file} has {layer.edges} edges, but an official layer has {degree * neurons};"
                " the file may be truncated; download it again"
            )
    return Problem(
        name=f"{neurons} neurons x {layers} layers, from files, on {called}",
        network=network,
        features=features,
        truth=known,
    )


def training_images(directory: str | os.PathLike[str]) -> Path | None:
    """Return the file of MNIST's training images in a folder, or None.

    The name is ``train-images-idx3-ubyte.gz``, also in a folder ``MNIST`` or ``mnist`` in it.
    """
    root = as_path(directory, "directory")
    files = (Path(root, folder, _TRAINING) for folder in ("", "MNIST", "mnist"))
    # Path.is_file() raises for names that are too long.
    return next((file for file in files if os.path.isfile(file)), None)  # noqa: PTH113


def _images(
    images: str | os.PathLike[str] | None, neurons: int, inputs: int | None
) -> tuple[gb.Matrix, str]:
    """Return features and their description."""
    if images is not None:
        images = as_path(images, "images")
        images = training_images(images) or images
    pixels = digits() if images is None else read_idx(images)
    called = "scikit-learn's digits" if images is None else images.name
    with naming(called if images is None else str(images)):
        features = features_from_images(pixels, neurons, inputs=inputs)
    shifted = " and shifted copies" if features.nrows > len(pixels) else ""
    return features, f"{features.nrows} inputs ({called}{shifted})"
