"""Make the files of `tests/data/stored`: finished stores, and what calls left that were cut short.

    python tests/data/make_stored.py FOLDER

The files in the repository are those of version 0.1.0 of the store's format, and are not made
again: `tests/io/test_stored.py` holds that later code reads them.
"""

import contextlib
import itertools
import sys
from pathlib import Path
from unittest import mock

import numpy as np

import gbdnn
from gbdnn.distributed.executors import checkpoint
from gbdnn.io import conversion
from gbdnn.io.store import resumed, writer

MEMORY = 21 << 20


def weights():
    """Return three layers of small whole numbers and quarters: sums of them are exact."""
    sizes, layers = (6, 8, 5, 4), []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        i, j = np.indices((n, m))
        layers.append(np.where((i + 2 * j + k) % 3 == 0, (1 + (i * j + k) % 5) / 4, 0.0))
    return layers


def network():
    """Return a network of three layers, with biases of both kinds."""
    biases = (-0.25, np.array([0, -0.5, 0.25, 0, -0.25]), 0.0)
    return gbdnn.Network(
        [
            gbdnn.Layer(W, bias, clip=32 if k < 2 else None)
            for k, (W, bias) in enumerate(zip(weights(), biases, strict=True))
        ]
    )


def features():
    """Return 12 inputs, also of such numbers."""
    i, j = np.indices((12, 6))
    return np.where((i + j) % 4 == 1, (i % 3 + 1) / 2, 0.0)


def large():
    """Return a network that is read in windows with `MEMORY`; its store is made by who needs it."""
    return gbdnn.radixnet(1024, 12)


def large_features():
    """Return four inputs, one of which is active behind the last layer."""
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=2000)
    alive = gbdnn.categories(gbdnn.infer(large(), X))[0]
    return X[[0, 1, alive, alive + 1], :].new()


def windows(net, reads, stop=None):
    """Return a network that counts the layers that are read, and is cut short at one of them."""

    def read(k):
        reads.append(k)
        if len(reads) == stop:
            raise KeyboardInterrupt
        return net[k]

    return gbdnn.Network.lazy(net.infos, read, reopen=net.source.reopen)


def stop_at(n):
    """Return a function for `progress` that ends the call when n are done."""

    def progress(done, _):
        if done >= n:
            raise KeyboardInterrupt

    return progress


def main(out, scratch):
    """Write everything into the folder `out`."""
    net, X = network(), features()
    gbdnn.save(net, out / "network")
    gbdnn.save(X, out / "features")
    gbdnn.save(np.array([1, 5, 7]), out / "categories")
    gbdnn.infer_to_store(net, X, out / "answer", batch=5, engine="full")
    cut = contextlib.suppress(KeyboardInterrupt)
    with cut:
        gbdnn.infer_to_store(
            net, X, out / "answer_cut", batch=5, engine="full", progress=stop_at(5)
        )
    with cut, mock.patch.object(writer, "SHARD_BYTES", 0):
        resumed.save_layers(conversion.of_layers(net), out / "network_cut", progress=stop_at(3))
    gbdnn.save(large(), scratch / "net")
    with cut, mock.patch.object(checkpoint, "_WORTH", 0):
        streamed = windows(gbdnn.load(scratch / "net", lazy=True), [], 12)
        gbdnn.infer_to_store(
            streamed, large_features(), out / "streamed_cut", memory=MEMORY, engine="full"
        )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]), Path(scratch))
