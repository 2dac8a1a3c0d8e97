"""ONNX's own checker on the parts of a model: what passes, other programs read alike.

Protobuf itself accepts nearly any bytes: a field that comes twice, has another number or type, is
merged, skipped or left at its default.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_PLACE = {"location", "offset", "length", "checksum"}
_BYTES = {"FLOAT": 4, "FLOAT16": 2, "BFLOAT16": 2, "DOUBLE": 8, "INT64": 8}
_OLDEST = 7  # before, an operand of another shape needs the attributes ``broadcast`` and ``axis``


def load_external(graph: Any, folder: Path) -> None:
    """Read the external data of a graph's constants: the bytes that each tensor declares, no more.

    The package onnx reads the rest of a file if an entry has no length, passes over entries that it
    does not know, and takes the last of two.
    """
    from onnx import TensorProto
    from onnx.external_data_helper import load_external_data_for_tensor

    sparse = [x for each in graph.sparse_initializer for x in (each.values, each.indices)]
    for tensor in (*graph.initializer, *sparse):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        name = TensorProto.DataType.Name(tensor.data_type)
        found = {entry.key: entry.value for entry in tensor.external_data}
        if name not in _BYTES:
            raise ValueError(f"external data of {tensor.name!r} have the type {name}")
        if len(found) < len(tensor.external_data) or not found.keys() <= _PLACE:
            raise ValueError(f"unsupported external data of {tensor.name!r}: {found!r:.80}")
        needed = _BYTES[name] * math.prod(tensor.dims)
        if found.setdefault("length", str(needed)) != str(needed):
            raise ValueError(
                f"external data of {tensor.name!r} have {found['length']:.20} bytes, not the"
                f" {needed} of shape {list(tensor.dims)}"
            )
        there = (folder / found.get("location", "")).stat().st_size
        if int(found.get("offset", "0")) + needed > there:
            raise ValueError(f"external data of {tensor.name!r} end after {there} bytes")
        tensor.external_data.add(key="length", value=str(needed))
        load_external_data_for_tensor(tensor, str(folder))


def require_valid(model: Any) -> None:
    """Raise an exception unless operators, types and shapes of a model are as ONNX has them.

    Its initialisers become inputs: the checker copies what it reads, and knows dense ones alone.
    """
    from onnx import checker, defs

    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not _OLDEST <= opset.version <= newest:
            raise ValueError(
                f"operator set {opset.version}; {_OLDEST} to {newest} are read here, newer ones"
                " with a newer package onnx"
            )
    graph = model.graph
    known = {value.name for value in graph.input}
    for tensor in list(graph.initializer):
        # What an operator computes shapes from stays.
        if tensor.name not in known and len(tensor.dims) > 1:
            _declare(graph, tensor.name, tensor.data_type, tensor.dims)
            graph.initializer.remove(tensor)
    for tensor in graph.sparse_initializer:
        _declare(graph, tensor.values.name, tensor.values.data_type, tensor.dims)
    graph.ClearField("sparse_initializer")
    for node in list(graph.node):
        for attribute in node.attribute:
            if attribute.name == "sparse_value" and node.op_type == "Constant":
                tensor = attribute.sparse_tensor
                _declare(graph, node.output[0], tensor.values.data_type, tensor.dims)
                graph.node.remove(node)
    for value in (*graph.input, *graph.output):
        if value.type.WhichOneof("value") in ("map_type", "sequence_type"):
            continue  # beside the answers: what classifiers make of them
        if not value.type.tensor_type.elem_type:
            raise ValueError(f"{value.name!r} has no type")
        if any(isinstance(x.dim_param, bytes) for x in value.type.tensor_type.shape.dim):
            raise ValueError(f"{value.name!r} has the name of a size that is not UTF-8")
        if not value.type.tensor_type.HasField("shape"):  # any: two numbers that are not known
            value.type.tensor_type.shape.dim.add()
            value.type.tensor_type.shape.dim.add()
    checker.check_model(model, full_check=True)


def _declare(graph: Any, name: str, element: int, shape: Any) -> None:
    from onnx import helper

    graph.input.append(helper.make_tensor_value_info(name, element, list(shape)))
