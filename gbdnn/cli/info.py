"""``gbdnn info``: what stands at a path, and what it takes to compute with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.cli import formats, options
from gbdnn.cli.bars import Bars
from gbdnn.cli.report import in_bytes, lines
from gbdnn.errors import ArgumentError, FormatError
from gbdnn.io import StoredFeatures, load, open_features, store_kind
from gbdnn.model.layer_info import layer_table
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["info"]


def info(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A network, features, categories.")],
    inputs: Annotated[
        int, typer.Option(min=1, help="For how many to tell the memory of a run.")
    ] = 60_000,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything in a store and verify checksums.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    from_: Annotated[
        formats.FormatName | None,
        typer.Option("--from", help="PATH's format; by what is there without it."),
    ] = None,
    neurons: options.Neurons = None,
    layers: options.Layers = None,
    prefix: options.Prefix = None,
    memory: options.Memory = None,
) -> None:
    """Tell what stands at PATH: layers, edges, density, bytes, and the memory that a run needs.

    No layer of a store is read for it, unless --check. The memory is told for features of which
    10 % are not 0, and 5 % of the inputs living at the end.
    """
    room = options.size(memory)
    name = from_ or formats.guess(path)
    given = formats.Given(neurons=neurons, layers=layers, prefix=prefix)
    kind = store_kind(path) if name == "store" else "network"
    if check and name != "store":
        raise ArgumentError(f"--check: {path} is no store: {name} has no checksums")
    facts: dict[str, Any] = {"path": str(path), "format": name, "kind": kind}
    if kind != "network":
        facts |= _bytes(path, name, given) | _facts_of_store(path, kind, check)
        _say(facts, [], as_json)
        return
    with Bars() as bars:
        if name == "tsv":
            each = formats.layers_of(path, name, given, bars.add("reading layers"))
            # In memory when it is computed with; what is known of its layers suffices here.
            net = Network._made(tuple(layer.info for layer in each), None)
        else:
            net = formats.read(path, name, given)
        if check:
            update = bars.add("checking layers")
            for k in range(len(net)):
                net[k]
                if update is not None:
                    update(k + 1, len(net))
    facts |= _bytes(path, name, given) | _facts_of_network(net, inputs, room)
    if check:
        facts["check"] = "PASSED"
    _say(facts, layer_table(net.infos), as_json)


def _bytes(path: Path, name: formats.FormatName, given: formats.Given) -> dict[str, int]:
    return {"bytes": sum(file.stat().st_size for file in formats.files(path, name, given))}


def _facts_of_network(net: Network, inputs: int, memory: int) -> dict[str, Any]:
    places = sum(info.nrows * info.ncols for info in net.infos)
    needed = gbdnn.memory_needed(net, inputs, density=0.1, living=0.05, memory=memory)
    return {
        "layers": len(net),
        "inputs": net.shape[0],
        "outputs": net.shape[1],
        "dtype": None if net.dtype is None else net.dtype.name,
        "edges": net.edges,
        "density": net.edges / places if places else 0.0,
        "runs": _runs(net.infos),
        "memory": {"inputs": inputs, **asdict(needed), "total": needed.total},
    }


def _facts_of_store(path: Path, kind: str, check: bool) -> dict[str, Any]:
    """Return what a store of features or categories holds; all of it is read if `check`."""
    facts: dict[str, Any]
    if kind == "features":
        stored: StoredFeatures = open_features(path)
        nrows, ncols = stored.shape
        facts = {"inputs": nrows, "neurons": ncols, "dtype": stored.dtype.name}
        facts |= {"entries": stored.nvals, "density": stored.nvals / max(1, nrows * ncols)}
        if check:
            for _ in stored.batches(1 << 16):
                pass
    else:
        ids = load(path)
        if not isinstance(ids, np.ndarray):
            raise FormatError(f"{path}: holds no categories")
        facts = {"categories": len(ids), "dtype": ids.dtype.name}
    return facts | ({"check": "PASSED"} if check else {})


def _runs(infos: Sequence[LayerInfo]) -> list[dict[str, Any]]:
    """Return runs of layers that read alike, as in the table."""
    alike = groupby(range(len(infos)), key=lambda k: (infos[k].shape, infos[k].describe()))
    runs = []
    for (shape, _), run in alike:
        ks = list(run)
        first = infos[ks[0]]
        runs.append(
            {
                "first": ks[0],
                "last": ks[-1],
                "shape": list(shape),
                "edges": first.edges,
                "bias": [first.lowest_bias, first.highest_bias],
                "bias_rule": first.bias_rule,
                "activation": first.activation,
                "clip": first.clip,
            }
        )
    return runs


def _say(facts: dict[str, Any], table: list[str], as_json: bool) -> None:
    """Print the facts, for programs or for people."""
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    told = {name: f"{x:,}" if type(x) is int else x for name, x in facts.items() if name != "runs"}
    told["bytes"] += f" ({in_bytes(facts['bytes'])})"
    if "density" in facts:
        told["density"] = f"{facts['density']:.4g}"
    if "memory" in facts:
        needed = dict(facts["memory"])
        count, total = needed.pop("inputs"), needed.pop("total")
        parts = ", ".join(f"{name} {in_bytes(part)}" for name, part in needed.items())
        told["memory"] = f"{in_bytes(total)} for {count:,} inputs: {parts}"
    typer.echo("\n".join([lines(told), *table]))
