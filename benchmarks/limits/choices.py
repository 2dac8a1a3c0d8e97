"""Time the options of every rule of `gbdnn.kernels.costs` on this processor.

    python benchmarks/limits/choices.py --json benchmarks/limits/processors/NAME.json

Prints the speed of each option in each case; the rule's choice is in brackets. A test reads the
files of all processors and holds the rules to them, so a file of another processor is welcome as a
pull request. Processor time of one thread, least of several calls in turn, reading and writing
included; the last two rules compare one thread with two, by the clock on the wall, and need a quiet
machine. Options whose least time no other round came near have a question mark, and are listed as
"unsure" in the file: the machine was busy. One to two minutes on a quiet machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Annotated, Any
from unittest.mock import patch

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from turns import ordered

if TYPE_CHECKING:
    from collections.abc import Callable

    import gbdnn

    Options = dict[str, tuple[Callable[[], object], dict[str, Any]]]  # calls, and what is replaced

PANELS = {
    512: (0.05, 0.1, 0.2, 0.4), 1024: (0.02, 0.05, 0.1, 0.2, 0.4),
    2048: (0.01, 0.02, 0.05, 0.1, 0.2), 4096: (0.005, 0.01, 0.02, 0.05, 0.1),
    8192: (0.005, 0.01, 0.02),
}  # fmt: skip
ROWS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512)
WALL = ("second thread", "sharing neurons")
NEAR = 1.1  # times the least time: what another round has to reach


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Rules to time, constants or estimates (default: all)."),
    ] = None,
    avx2: Annotated[bool, typer.Option(help="Use the code for processors with AVX2.")] = False,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Time the options of every rule; print them, with the rule's choice in brackets."""
    from gbdnn.runtime import machine as module

    if avx2:
        module._current = module.machine()._replace(vectors="AVX2", level="AVX2")
    import rules

    machine = module.machine()
    facts = report.circumstances()
    report.say_load(facts)
    record = {
        "processor": module.processor_name(), "model": facts["machine"]["model"],
        "vectors": machine.vectors, "caches": list(machine.caches), "cores": machine.cores,
        "load": facts["load"], "date": facts["date"], "commit": facts["commit"],
        "unit": "G multiply-adds per second",
    }  # fmt: skip
    cases: list[dict[str, Any]] = []
    for name, times in TIMED.items():
        rows = []
        for case, calls, work in () if only and name not in only else times(quick):
            found, unsure = speeds(calls, work, wall=name in WALL, rounds=1 if quick else 3)
            cases.append({"rule": name, **case, "options": found})
            if unsure:
                cases[-1]["unsure"] = unsure
            (score,) = rules.scores(record | {"cases": cases[-1:]})
            shown = {key: f"{each:.3g}{'?' * (key in unsure)}" for key, each in found.items()}
            shown[score.option] = f"[{shown[score.option]}]"
            if json_file is not None:  # also if it is interrupted
                write(json_file, record, cases)
            rows.append({name: ", ".join(f"{k} {v}" for k, v in case.items()), **shown,
                         "of the best": f"{score.relative:.2f}"})  # fmt: skip
        report.table(rows)
        sys.stdout.flush()
    if not only or "constants" in only:
        from gbdnn.kernels.costs import speeds as of_gbdnn

        found = constants(quick)
        record["constants"] = {name: float(f"{ns:.3g}") for name, ns in found.items()}
        report.table([
            {"ns in FP32": name, "measured": f"{ns:.3g}", "gbdnn": getattr(of_gbdnn(), name)}
            for name, ns in found.items()
        ])  # fmt: skip
    if not only or "estimates" in only:
        report.table(list(estimates(quick)))
    if json_file is not None:
        write(json_file, record, cases)


def estimates(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield what plans expect of calls in which no input dies, and what these take."""
    import scipy.sparse as sp

    import gbdnn

    for neurons, count, density in ((256, 4, 0.1), (1024, 3, 0.05), (4096, 2, 0.02)):
        net = network(layers_of(neurons, density, count, bias=0.01))
        for inputs, kind in ((1, np.asarray), (1000, np.asarray), (1000, sp.csr_array)):
            X = kind(features(16 if quick and inputs > 1 else inputs, neurons))
            planned = gbdnn.plan(net, X, nthreads=1).seconds
            call = partial(gbdnn.infer, net, X, nthreads=1)
            one, _ = speeds({"": (call, {})}, 1, wall=False, rounds=1 if quick else 3)
            seconds = 1e-9 / one[""]
            yield {
                "network": f"{neurons} x {count}", "inputs": X.shape[0], "as": kind.__name__,
                "planned, ms": f"{1e3 * planned:.3g}", "measured, ms": f"{1e3 * seconds:.3g}",
                "planned / measured": f"{planned / seconds:.2f}",
            }  # fmt: skip


def constants(quick: bool) -> dict[str, float]:
    """Return constants of `gbdnn.kernels.costs.Speeds`, in ns.

    The cost of an edge is the difference of two densities.
    """
    from gbdnn.kernels.dense_product import multiply, target

    neurons, inputs, rounds = (128, 64, 1) if quick else (1024, 960, 4)
    X = features(inputs, neurons) + 1
    some = {edges: layers_of(neurons, edges / neurons, 4) for edges in (32, 128, neurons)}

    def ns(call: Callable[[], object]) -> float:
        one, _ = speeds({"": (call, {})}, inputs * 4 * neurons, wall=False, rounds=rounds)
        return 1 / one[""]

    def by_edge(kernel: Callable[[list[Any]], Callable[[], object]]) -> float:
        return (ns(kernel(some[128])) - ns(kernel(some[32]))) / 96

    Z, first = target(np.empty_like(X), X[0]), network(some[neurons])[0]
    return {
        "full": by_edge(lambda layers: inferred(network(layers), X, "full")),
        "fused": by_edge(lambda layers: compiled(layers, X)),
        "dense": ns(compiled(some[neurons], X)) / neurons,
        "product": ns(lambda: multiply(first, X, Z, 1)) * 4 / neurons,
    }


def write(file: Path, record: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    """Write a record with one line per case."""
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    file.write_text(f'{{\n{head},\n "cases": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def speeds(
    calls: Options, work: float, *, wall: bool, rounds: int
) -> tuple[dict[str, float], list[str]]:
    """Return the G multiply-adds per second of each option, and options whose rounds disagree."""
    from gbdnn.kernels import costs

    clock = perf_counter if wall else process_time
    least = {name: [np.inf] * rounds for name in calls}  # seconds of each round
    for turn in range(1 + rounds):  # the first round prepares
        for name in ordered(list(calls), turn):
            call, replaced = calls[name]
            with ExitStack() as patches:
                for each, value in replaced.items():
                    patches.enter_context(patch.object(costs, each, value))
                for _ in range(20 if wall and turn else 2 if turn else 1):
                    began = clock()
                    call()
                    if turn:
                        least[name][turn - 1] = min(least[name][turn - 1], clock() - began)
    found = {name: f"{work / 1e9 / max(min(s), 1e-9):.4g}" for name, s in least.items()}
    unsure = [name for name, s in least.items() if sorted(s)[:2][-1] > NEAR * min(s)]
    return {name: float(speed) for name, speed in found.items()}, unsure


def layers_of(neurons: int, density: float, count: int, *, bias: float = 0.0) -> list[Any]:
    """Return the arguments of random layers."""
    import scipy.sparse as sp

    random, found = np.random.default_rng(neurons), []
    for _ in range(count):
        shape = neurons, neurons
        W = sp.random_array(shape, density=density, format="csr", dtype=np.float32, rng=random)
        W.data = (random.normal(size=W.nnz) * (neurons * density / 2) ** -0.5).astype(np.float32)
        found.append((W, bias))
    return found


def features(inputs: int, neurons: int) -> np.ndarray:
    """Return features of which half are positive."""
    values = np.random.default_rng(0).normal(size=(inputs, neurons))
    return np.maximum(values, 0).astype(np.float32)


def network(layers: list[Any]) -> gbdnn.Network:
    """Return a network of new layers, without anything prepared."""
    import gbdnn

    return gbdnn.Network([gbdnn.Layer(W, bias) for W, bias in layers])


def compiled(layers: list[Any], X: np.ndarray, nthreads: int = 1) -> Callable[[], object]:
    """Return a call of a compiled network, which is prepared at the first one."""
    import gbdnn

    made: list[Any] = []
    out = np.empty((len(X), layers[-1][0].shape[1]), np.float32)

    def call() -> None:
        if not made:
            made.append(gbdnn.compile(network(layers), nthreads=nthreads))
        made[0](X, out=out)

    return call


Timed = Iterator[tuple[dict[str, Any], "Options", float]]


def panels(quick: bool) -> Timed:
    """Yield rows per panel by neurons and density."""
    for neurons, densities in {512: (0.1,)}.items() if quick else PANELS.items():
        X = features(16 if quick else max(256, 600_000 // neurons), neurons)
        for density in densities:
            layers = layers_of(neurons, density, max(1, 2048 // neurons))
            calls = {
                str(rows): (compiled(layers, X), {"panel_rows": lambda *_, rows=rows: rows})
                for rows in (*(each for each in ROWS if each < neurons), neurons)
            }
            case = {"neurons": neurons, "density": density}
            yield case, calls, len(X) * sum(W.nnz for W, _ in layers)


def dense(quick: bool) -> Timed:
    """Yield dense and sparse layers by neurons and density."""
    for neurons in (128,) if quick else (128, 512, 1024, 2048):
        X = features(16 if quick else max(256, 400_000 // neurons), neurons)
        for density in (0.4, 0.5, 0.6, 0.7, 0.8):
            layers = layers_of(neurons, density, max(1, 1024 // neurons))
            calls = {
                name: (compiled(layers, X), {"dense_layer_pays": lambda *_, pays=pays: pays})
                for name, pays in (("sparse", False), ("dense", True))
            }
            case = {"neurons": neurons, "density": density}
            yield case, calls, len(X) * sum(W.nnz for W, _ in layers)


def single(quick: bool) -> Timed:
    """Yield the same for one input, in and beyond the caches."""
    for neurons, count in ((128, 4),) if quick else ((512, 2), (512, 4), (1024, 2), (4096, 2)):
        for density in (0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
            layers = layers_of(neurons, density, count)
            calls = {
                name: (compiled(layers, features(1, neurons)),
                       {"single_density": lambda *_, least=least: least})
                for name, least in (("sparse", 9.0), ("dense", 0.0))
            }  # fmt: skip
            case = {"neurons": neurons, "density": density, "layers": count}
            yield case, calls, sum(W.nnz for W, _ in layers)


def width(quick: bool) -> Timed:
    """Yield inputs per block in a single window."""
    cases = (
        (64, 0.2, 2), (128, 0.6, 6), (512, 0.02, 4), (512, 0.1, 4), (1024, 0.02, 4),
        (1024, 0.05, 4), (1024, 0.1, 4), (2048, 0.02, 2), (4096, 0.02, 1),
    )  # fmt: skip
    for neurons, density, count in cases[: 1 if quick else None]:
        X = features(16 if quick else 2000, neurons)
        layers = layers_of(neurons, density, count)
        calls = {
            str(each): (compiled(layers, X), {"direct_width": lambda *_, each=each: each})
            for each in WIDTHS
        }
        case = {"neurons": neurons, "density": density, "layers": count, "inputs": len(X)}
        yield case, calls, len(X) * sum(W.nnz for W, _ in layers)


def inferred(net: gbdnn.Network, X: Any, engine: Any, *, copy: bool = False) -> Any:
    """Return a call of `infer` on one thread, of new copies of a network with `copy`."""
    import gbdnn

    def call() -> None:
        some = gbdnn.Network([gbdnn.Layer(layer.W, layer.bias) for layer in net]) if copy else net
        gbdnn.infer(some, X, engine=engine, nthreads=1, deduplicate=False)

    return call


def regrouped(quick: bool) -> Timed:
    """Yield inputs per block of a deep network."""
    import gbdnn

    for neurons in (1024,) if quick else (1024, 4096):
        inputs = 64 if quick else 700
        net = gbdnn.gallery.radixnet(neurons, 4 if quick else 40)
        net = gbdnn.Network([gbdnn.Layer(layer.W, 0.0) for layer in net])
        X = features(inputs, neurons)
        calls = {
            str(each): (inferred(net, X, "fused"), {"fused_width": lambda *_, each=each: each})
            for each in (64, 96, 128, 192, 256, 384)
        }
        case = {"neurons": neurons, "density": net.edges / neurons**2 / len(net),
                "layers": len(net), "inputs": inputs}  # fmt: skip
        yield case, calls, float(net.edges) * inputs


def kernel(quick: bool) -> Timed:
    """Yield the sparse and the fused kernel for a layer of sparse features."""
    import scipy.sparse as sp

    for neurons, density in ((1024, 0.03),) if quick else ((1024, 0.03), (4096, 0.008)):
        inputs = 64 if quick else 2000
        for filled in (0.002, 0.005, 0.01, 0.02, 0.05):
            net = network(layers_of(neurons, density, 1))
            shape = inputs, neurons
            X = sp.random_array(shape, density=filled, format="csr", dtype=np.float32, rng=0)
            calls = {name: (inferred(net, X, name), {}) for name in ("sparse", "fused")}
            case = {"neurons": neurons, "density": density, "inputs": inputs, "filled": filled}
            yield case, calls, float(X.nnz) * density * neurons


def reordering(quick: bool) -> Timed:
    """Yield a deep network with and without reordering its neurons, preparation included."""
    import gbdnn

    net = gbdnn.gallery.radixnet(1024, 4 if quick else 40)
    for inputs in (64,) if quick else (500, 1000, 2000, 4000):
        X = features(inputs, net.shape[0])
        calls = {
            name: (inferred(net, X, "fused", copy=True),
                   {"reordering_pays": lambda _, pays=name == "yes": pays})
            for name in ("no", "yes")
        }  # fmt: skip
        yield {"inputs": inputs}, calls, float(net.edges) * inputs


def threads(quick: bool) -> Timed:
    """Yield one and two threads for calls of 50 microseconds to 2 ms, by the wall clock."""
    layers = layers_of(512, 0.1, 4)
    for inputs in (16,) if quick else (16, 32, 64, 128, 256, 512):
        X = features(inputs, 512)
        calls = {
            "1": (compiled(layers, X, 1), {}),
            "2": (compiled(layers, X, 2), {"HAND_OVER": 0.0}),
        }
        case = {"neurons": 512, "density": 0.1, "layers": 4, "inputs": inputs}
        yield case, calls, inputs * sum(W.nnz for W, _ in layers)


def sharing(quick: bool) -> Timed:
    """Yield one thread, two, four, ... for one input and for a cache line, by the wall clock."""
    from gbdnn.runtime.machine import machine

    cores = max(2, machine().cores)
    for neurons, inputs in product((128,) if quick else (128, 256, 512, 1024, 2048), (1, 16)):
        layers = layers_of(neurons, 0.05, 4)
        X = features(inputs, neurons)
        calls = {
            str(n): (compiled(layers, X, n), {"sharing_threads": lambda *_, n=n: n})
            for n in (1, 2, 4, 8, 16, 32)
            if n <= cores
        }
        case = {"neurons": neurons, "density": 0.05, "layers": 4, "inputs": inputs}
        yield case, calls, inputs * sum(W.nnz for W, _ in layers)


TIMED: dict[str, Callable[[bool], Timed]] = {
    "rows per panel": panels,
    "dense layer": dense,
    "dense layer, one input": single,
    "inputs per block": width,
    "inputs per block, regrouped": regrouped,
    "kernel": kernel,
    "reordering": reordering,
    "second thread": threads,
    "sharing neurons": sharing,
}

if __name__ == "__main__":
    options.run(main)
