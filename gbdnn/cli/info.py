"""``gbdnn info``: describe a network, features or the machine."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gbdnn.challenge.machine import compiled_kernels, versions
from gbdnn.cli import options
from gbdnn.cli.terminal import Bar, in_bytes, lines_of, say
from gbdnn.engine.plan import BLOCK_KERNELS, MEMORY
from gbdnn.engine.sizes import NetworkFacts, sizes
from gbdnn.errors import ArgumentError
from gbdnn.io import open_features, read_features
from gbdnn.io.formats import FEATURES
from gbdnn.io.networks import STORE, chosen, holds_run, opened
from gbdnn.io.store.folder import Reader
from gbdnn.runtime.threads import available
from gbdnn.runtime.topology import described
from gbdnn.training import read_run

if TYPE_CHECKING:
    from gbdnn.model.network import Network


def info(
    path: Annotated[
        Path | None,
        Argument(metavar="PATH", help="A network, a store, a training run, or features as tsv."),
    ] = None,
    inputs: Annotated[
        int | None, Option(min=1, help="Inputs, to estimate memory (default: 60000).")
    ] = None,
    memory: options.Memory = None,
    check: Annotated[
        bool, Option("--check", help="Read a whole store and verify its checksums.")
    ] = False,
    machine: Annotated[
        bool, Option("--machine", help="Describe the machine, versions and compiled kernels.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Describe a network, features, or the machine.

    Prints layers, edges, density, size, and how `gbdnn infer` uses its memory budget. Reads the
    layers of a store only with --check.

    \b
    Examples:
      gbdnn info net --inputs 20000
      gbdnn info Y --check
      gbdnn info --machine
    """  # noqa: D301 -- \b keeps the lines of the examples
    facts: dict[str, Any]
    table: list[str] = []
    of_networks = {"--inputs": inputs, "--memory": memory}
    if machine:
        _require_none({"PATH": path, "--check": check} | of_networks, "--machine")
        facts = {"machine": described(), "versions": versions()}
        facts["compiled kernels"] = compiled_kernels()
    elif path is None:
        raise ArgumentError("missing argument PATH; pass a path or --machine")
    elif "=" in path.name and not path.exists():
        name, _, value = path.name.partition("=")
        raise ArgumentError(f"{path}: no such file; for an option, write --{name} {value}")
    elif path.is_file() and path.name.lower().endswith(FEATURES["tsv"]):
        _require_none({"--check": check} | of_networks, "a tsv file")
        facts = {"path": str(path), "format": "tsv", "kind": "features"} | _features(
            read_features(path)
        )
    elif holds_run(path):
        _require_none({"--check": check} | of_networks, "a training run")
        run = read_run(path)
        facts = {"path": str(path), "kind": "training run", "epochs": len(run.history)}
        table = repr(run.network).splitlines()[1:]
    else:
        with Bar() as bar:
            facts, table = _described(path, of_networks, check, bar)
    shown = lines_of({name: _shown(name, fact) for name, fact in facts.items()})
    say(json.dumps(facts, indent=2) if as_json else "\n".join([shown, *table]))


def _require_none(given: dict[str, Any], what: str) -> None:
    for name in filter(given.get, given):
        raise ArgumentError(f"{name} does not apply to {what}")


def _described(
    path: Path, of_networks: dict[str, Any], check: bool, bar: Bar
) -> tuple[dict[str, Any], list[str]]:
    """Return facts about a network or a store, and the table of a network's layers."""
    form, _ = chosen(path, None)
    kind = Reader(path).kind if form is STORE else "network"
    if check and form is not STORE:
        raise ArgumentError(f"--check needs a store; the format {form.name} has no checksums")
    if kind != "network":
        _require_none(of_networks, kind)
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    facts: dict[str, Any] = {"path": str(path), "format": form.name, "kind": kind, "bytes": size}
    table: list[str] = []
    bar.begin("reading")
    if kind == "network":
        net = opened(path, form, {"lazy": True} if form is STORE else {}, bar.show)
        if check:
            for k in range(len(net)):
                net[k]
                bar.show(k + 1, len(net))
        facts |= _network(net, of_networks["--inputs"] or 60_000, of_networks["--memory"] or MEMORY)
        table = repr(net).splitlines()[1:]
    else:
        stored = open_features(path)
        for batch in stored.batches(1 << 16) if check else ():
            batch.matrix()
        facts |= _features(stored)
    return facts | ({"check": "PASSED"} if check else {}), table


def _network(net: Network, inputs: int, memory: int) -> dict[str, Any]:
    places = sum(info.nrows * info.ncols for info in net.infos)
    return {
        "layers": len(net),
        "inputs": net.shape[0] if len(net) else 0,
        "outputs": net.shape[1] if len(net) else 0,
        "dtype": net.dtype and net.dtype.name,
        "edges": net.edges,
        "density": net.edges / max(1, places),
        "memory": _memory(net, inputs, memory),
    }


def _memory(net: Network, inputs: int, memory: int) -> dict[str, Any]:
    """Return how `infer` uses its memory budget for this number of inputs."""
    facts: dict[str, Any] = {"inputs": inputs, "budget": memory}
    if not len(net):
        return facts
    try:
        facts_of = NetworkFacts.of(net)
        made = sizes(facts_of, inputs, available(), memory, BLOCK_KERNELS["fused"])
    except ArgumentError as error:
        return {**facts, "fault": options.in_shell(str(error), ("memory",))}
    groups = {"groups_of_layers": len(made.starts), "inputs_per_block": made.width}
    return {**facts, **groups, "blocks_side_by_side": made.workers}


def _features(X: Any) -> dict[str, Any]:
    nrows, ncols = X.shape
    density = X.nvals / max(1, nrows * ncols)
    return {"inputs": nrows, "neurons": ncols, "entries": X.nvals, "density": density}


def _shown(name: str, fact: Any) -> str:
    """Return a fact as human-readable text."""
    if isinstance(fact, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_shown(key, x)}" for key, x in fact.items())
    if name in ("bytes", "budget"):
        return in_bytes(fact)
    form = ",d" if type(fact) is int else ".4g" if type(fact) is float else ""
    return format(fact, form)
