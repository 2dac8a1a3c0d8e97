"""``gbdnn info``: describe a network, features or categories, and the memory of a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from gbdnn.challenge.machine import machine as found_machine
from gbdnn.challenge.machine import versions
from gbdnn.cli import options
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import fact_lines, in_bytes, say
from gbdnn.engine.memory import memory_of_layers
from gbdnn.errors import ArgumentError
from gbdnn.io import load, open_features, read_categories, read_tsv
from gbdnn.io.datasets import TSV
from gbdnn.io.formats import chosen, holds_run, network_files, read_network, read_tsv_layers
from gbdnn.io.reading import open_checked
from gbdnn.io.store import store_kind
from gbdnn.kernels.fused import FUSED
from gbdnn.model.layer_info import layer_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo


_LINE = 1 << 12  # bytes, more than a line of three numbers has


@options.takes_given("from_", "neurons", "layers", "prefix", "logits")
def info(
    given: options.Given,
    path: Annotated[
        Path | None,
        Argument(
            metavar="PATH",
            help="A network in any format; features or categories, in a store or as tsv.",
        ),
    ] = None,
    inputs: Annotated[
        int, Option(min=1, help="Number of inputs of the run whose memory is estimated.")
    ] = 60_000,
    check: Annotated[
        bool, Option("--check", help="Read a whole store and verify its checksums.")
    ] = False,
    machine: Annotated[
        bool, Option("--machine", help="The machine, versions and compiled code instead.")
    ] = False,
    compiled: Annotated[
        bool, Option("--compile", help="With --machine: compile the fused form now.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False,
    memory: options.Memory = "512MiB",
) -> None:
    """Describe what is at PATH: layers, edges, density, bytes, and the memory of a run.

    No layer of a store is read, unless --check. The memory is estimated for features of density
    10 %, and 5 % of the inputs alive after the last layer.
    """
    if machine or compiled:
        _print(_facts_of_machine(compiled), as_json)
        return
    if path is None:
        raise ArgumentError("a PATH is needed, or --machine")
    if given.from_ is None and holds_run(path):
        _print({"path": str(path), **_facts_of_run(path)}, as_json)
        return
    if given.from_ is None and path.is_file() and _has_lines(path):
        if check:
            raise ArgumentError(f"--check: {path} is not a store")
        _print({"path": str(path), "format": "tsv", **_facts_of_lines(path)}, as_json)
        return
    name, told = chosen(path, given.keywords())
    kind = store_kind(path) if name == "store" else "network"
    if check and name != "store":
        raise ArgumentError(f"--check: {path} is not a store: {name} has no checksums")
    facts: dict[str, Any] = {"path": str(path), "format": name, "kind": kind}
    table: list[str] = []
    if kind == "network":
        with Bars() as bars:
            update = bars.add("checking layers" if check else "reading layers")
            if name == "tsv":  # one layer at a time in memory
                each = read_tsv_layers(path, told, update)
                infos, in_memory = tuple(layer.info for layer in each), True
            else:
                net = read_network(path, **given.keywords())
                infos, in_memory = net.infos, net.in_memory
                for k in range(len(net)) if check else ():
                    net[k]
                    if update is not None:
                        update(k + 1, len(net))
        found = _facts_of_network(infos, in_memory, inputs, memory)
        table = layer_table(infos)
    else:
        found = _facts_of_store(path, kind, check)
    facts["bytes"] = sum(file.stat().st_size for file in network_files(path, name, told))
    facts |= found
    if check:
        facts["check"] = "PASSED"
    _print(facts, as_json, table)


def _has_lines(path: Path) -> bool:
    """Whether a file is one of tab-separated lines by its name: it may have no ending."""
    return path.name.lower().endswith(TSV) or not path.suffix


def _facts_of_machine(compiled: bool) -> dict[str, Any]:
    if compiled:
        for name in ("float32", "float64"):
            FUSED.load(np.dtype(name))
    return {"machine": found_machine(), "versions": versions(), "fused form": FUSED.code()}


def _facts_of_network(
    infos: Sequence[LayerInfo], in_memory: bool, inputs: int, memory: int
) -> dict[str, Any]:
    edges = sum(info.edges for info in infos)
    places = sum(info.nrows * info.ncols for info in infos)
    needed = memory_of_layers(
        infos, inputs, in_memory=in_memory, density=0.1, living=0.05, memory=memory
    )
    return {
        "layers": len(infos),
        "inputs": infos[0].nrows if infos else 0,
        "outputs": infos[-1].ncols if infos else 0,
        "dtype": infos[0].dtype.name if infos else None,
        "edges": edges,
        "density": edges / places if places else 0.0,
        "runs": _runs(infos),
        "memory": {"inputs": inputs, **asdict(needed), "total": needed.total},
    }


def _facts_of_store(path: Path, kind: str, check: bool) -> dict[str, Any]:
    """Return what a store of features or categories holds; all of it is read if `check`."""
    if kind == "features":
        stored = open_features(path)
        nrows, ncols = stored.shape
        if check:
            for batch in stored.batches(1 << 16):
                batch.matrix()
        return {
            "inputs": nrows,
            "neurons": ncols,
            "dtype": stored.dtype.name,
            "entries": stored.nvals,
            "density": stored.nvals / max(1, nrows * ncols),
        }
    ids: Any = load(path)
    return {"categories": len(ids), "dtype": ids.dtype.name}


def _facts_of_run(path: Path) -> dict[str, Any]:
    run = load(path)
    return {
        "kind": "training run",
        "epochs": len(run.history),
        "edges": run.network.edges,
        "optimizer": repr(run.optimizer),
        "bytes": path.stat().st_size,
    }


def _facts_of_lines(path: Path) -> dict[str, Any]:
    """Return what a file of tab-separated lines holds: triples are features, ids categories."""
    with open_checked(path) as file:
        is_features = b"\t" in file.read(_LINE).partition(b"\n")[0]
    facts: dict[str, Any] = {"kind": "features" if is_features else "categories"}
    if is_features:
        X = read_tsv(path)
        # Empty inputs and neurons behind the last ones leave no trace.
        facts |= {"last input": X.nrows, "last neuron": X.ncols, "entries": X.nvals}
    else:
        facts["categories"] = len(read_categories(path))
    return {**facts, "bytes": path.stat().st_size}


def _runs(infos: Sequence[LayerInfo]) -> list[dict[str, Any]]:
    """Return the table's rows: runs of equal layers."""
    runs = groupby(enumerate(infos), key=lambda each: (each[1].shape, each[1].describe()))
    found = []
    for _, run in runs:
        (first, info), *others = run
        found.append(
            {
                "first": first,
                "last": first + len(others),
                "shape": list(info.shape),
                "edges": info.edges,
                "bias": [info.lowest_bias, info.highest_bias],
                "bias_rule": info.bias_rule,
                "activation": info.activation,
                "clip": info.clip,
            }
        )
    return found


def _print(facts: dict[str, Any], as_json: bool, table: Sequence[str] = ()) -> None:
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    shown = {name: f"{x:,}" if type(x) is int else x for name, x in facts.items() if name != "runs"}
    for name in ("machine", "versions", "fused form", "made from"):
        if name in shown:
            shown[name] = ", ".join(f"{key} {x}" for key, x in facts[name].items())
    if "bytes" in facts:
        shown["bytes"] += f" ({in_bytes(facts['bytes'])})"
    if "density" in facts:
        shown["density"] = f"{facts['density']:.4g}"
    if "memory" in facts:
        needed = dict(facts["memory"])
        count, total = needed.pop("inputs"), needed.pop("total")
        parts = ", ".join(f"{name} {in_bytes(part)}" for name, part in needed.items())
        shown["memory"] = f"{in_bytes(total)} for {count:,} inputs: {parts}"
    say("\n".join([fact_lines(shown), *table]))
