"""Records that describe layers and calls to compiled code, which reads their fields by name.

Each field has eight bytes: a number, or the address of an array. Addresses do not keep arrays
alive; the objects that make the records do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.addresses import address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DENSE_GROUP",
    "EDGES",
    "JOB",
    "LAYER",
    "NEAR",
    "PLAN",
    "PRODUCT",
    "STEPS",
    "filled",
    "stacked",
]


class Layout:
    """Names and kinds of a record's fields.

    Parameters
    ----------
    names : mapping of str to str
        For each kind, names of its fields: "float64" are numbers, "int64" numbers and addresses of
        other records, "int64*" addresses of int64 numbers, and "real*" of numbers of the dtype that
        the compiled code computes in.

    Attributes
    ----------
    kinds : dict of str to str
        Kind of each field, in the order of the record.
    dtype : dtype
        Structured type, in which addresses are integers.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.kinds = {name: kind for kind, some in names.items() for name in some.split()}
        self.dtype = np.dtype([
            (name, np.float64 if kind == "float64" else np.int64)
            for name, kind in self.kinds.items()
        ])  # fmt: skip


LAYER = Layout({
    # weight_step and bias_step are 1, or 0 if one number is valid for all.
    # paired: most columns are in pairs; dense: all weights are stored; counted: activations are
    # counted; checked: infinite sums are looked for; masked: sums are kept where a mask lies
    # between the limits; first: for single inputs, the column of the layer that is the first here.
    "int64": "nrows ncols edges weight_step bias_step paired dense counted checked masked panels"
    " first",
    "int64*": "indptr",
    "uint32*": "rows places",  # `rows` may be uint16 for single inputs
    "real*": "weights bias limits",
    "uint8*": "pairs",
})  # fmt: skip

PLAN = Layout({
    "int64": "table tidy",  # address of the layers; whether to compact the block at the end
    # Time of a multiply-add; of moving an activation, and visiting a row, to compact a block.
    "float64": "edge_cost move_cost row_cost",
})  # fmt: skip

PRODUCT = Layout({
    "int64*": "indptr places",  # `places`: row of `start` and Z for each row of A; 0 if equal
    "uint64*": "columns",
    # `stride`: elements from one row of Y to the next; `start_stride`: 0 if all rows start equally.
    "int64": "weight_step stride features start_stride z_stride",
    "real*": "weights Y start Z",
    "float64": "low high",  # limits of Z
})  # fmt: skip

JOB = Layout({
    "int64": "table shares layers stride inputs neurons",
    "real*": "Y Z",
    "uint32*": "living",
    "int64*": "counters",
})  # fmt: skip

STEPS = Layout({
    # forward, backward: records LAYER of all layers; edges: records EDGES. Blocks are those of a
    # share of `share_lines` lines of inputs. targets: int64 labels, or numbers per output.
    "int64": "layers batch count forward backward edges share_lines stride loss optimizer threads"
    " passes row_stride column_stride targets",
    "int64*": "Y_blocks D_blocks indices barrier stopped",
    # rates: three numbers per step. constants: momentum or beta1, beta2, epsilon, weight decay, and
    # the largest norm of a gradient, or 0.
    "real*": "limits X sample_weights rates constants",
    "float64*": "losses",
    "uint8*": "hits",
})  # fmt: skip

EDGES = Layout({
    # cuts: first column of each thread; first, second: moments; squares: of gradients, by column.
    "int64": "nrows ncols edges dense panels",
    "int64*": "indptr cuts",
    "uint32*": "rows places transposed_edges",
    "real*": "weights gradient first second bias bias_gradient bias_first bias_second transposed",
    "float64*": "squares",
})  # fmt: skip

DENSE_GROUP = 24  # columns, a multiple of the neurons that a dense tile computes together
NEAR = 1 << 16  # most neurons of a layer that single inputs address with uint16

CROSS_ENTROPY, SQUARED_ERROR = range(2)  # losses
SGD, NESTEROV, ADAM = range(3)  # optimizers

# Passes of a call, a sum. A loss or an optimizer in NumPy runs between two calls of one minibatch.
FORWARD, LOSS_GRADIENT, BACKWARD, UPDATE = 1, 2, 4, 8


def filled(layout: Layout, known: Mapping[str, float | np.ndarray | None]) -> np.ndarray:
    """Return a record of numbers and of addresses of contiguous arrays; missing fields are 0."""
    given = (known.get(name) for name in layout.kinds)
    values = tuple(address(x) if isinstance(x, np.ndarray) else x or 0 for x in given)
    return np.array(values, layout.dtype)


def stacked(records: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return an array of layers' records; the fields of missing ones are 0."""
    found = np.zeros(len(records), LAYER.dtype)
    for k, record in enumerate(records):  # np.array takes fifty times as long
        if record is not None:
            found[k] = record
    return found
