"""A format of networks in one file: NumPy's ``.npz`` of weights, for the recipe of the pages."""

import numpy as np

from gbdnn.io.formats import Assumed, Format, register
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network


def read_toy(path, *, clip=None, dtype=None):
    with np.load(path) as arrays:
        return Network([Layer(arrays[name], clip=clip, dtype=dtype) for name in arrays.files])


def write_toy(net, file):
    weights = (layer.weights.to_dense(fill_value=0) for layer in net)
    np.savez(file, **{f"layer{k}": W for k, W in enumerate(weights)})


register(Format(
    name="toy", read=read_toy, write=write_toy, options="clip", suffixes=(".toy",),
    assumed=Assumed(),
))  # fmt: skip
