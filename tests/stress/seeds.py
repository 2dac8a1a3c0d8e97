"""Choose seeds of drawn calls that meet in little time what many seeds meet.

    pip install coverage
    python tests/stress/seeds.py 2000

makes each kind of drawn call with the seeds 0 to 1999 and writes those of the default tests to
tests/support/seeds.json, the best ones first. What a call meets are arcs between lines of Python,
edges of the control flow of compiled kernels, and of each comparison of integers there whether the
two are equal, neighbours or further apart. The next seed is the one that meets most per second of
what the chosen ones have met less than eight times. Choose again after a change of `drawn.py` or of
the kernels; a slow test counts what they meet.
"""

import argparse
import ctypes
import heapq
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import coverage
import numpy as np

TESTS, ROOT = Path(__file__).parents[1], Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), *(str(TESTS / name) for name in ("support", "graph", "training"))]
# Seeds of the default tests.
COUNTS = {"calls": 300, "faults": 320, "bits": 160, "graph": 260, "training": 90}
WEIGHTS = np.append(1 / np.arange(1, 9) ** 2, 0)  # of what was met never, once, twice ...


def library(folder, dtype):
    """Compile the kernels with counters; return their function that reads and clears them."""
    from gbdnn.kernels.compiled import build, loading
    from gbdnn.runtime.machine import machine

    loading.FOLDER = folder
    level = build.PLATFORMS[build.this_platform()][machine().level]
    path = folder / build.file_name(level, dtype)
    sanitize = "-fsanitize-coverage=inline-8bit-counters,trace-cmp"
    command = build.command(
        level, dtype, path, "-O1", "-w", sanitize, str(Path(__file__).with_suffix(".c"))
    )
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path)).take


def kinds(folder):
    """Return the functions that make a drawn call of each kind with a seed."""
    import drawn
    import test_drawn_training as training
    import test_graph_networks as graph

    return {
        "calls": lambda seed: [*drawn.check(seed, folder)],
        "faults": lambda seed: drawn.check_fault(seed, folder),
        "bits": drawn.check_bits,
        "graph": lambda seed: graph.drawn_call(seed, folder),
        "training": training.check,
    }


def met_by(call, seeds, takes):
    """Return the seconds of each seed, and numbers of what it meets."""
    numbers, found = {}, {}

    def number(each):
        return numbers.setdefault(each, len(numbers))

    def taken():
        for n, take in enumerate(takes):
            places = np.zeros(take(None), "u1")
            take(places.ctypes.data_as(ctypes.c_void_p))
            yield from (number((n, each)) for each in np.flatnonzero(places).tolist())

    lines = coverage.Coverage(branch=True, source=[str(ROOT / "gbdnn")], data_file=None)
    lines.start()
    for seed in seeds:
        lines.switch_context(str(seed))
        began, _ = process_time(), [*taken()]
        call(seed)
        found[seed] = process_time() - began, [*taken()]
    lines.stop()
    data = lines.get_data()
    for seed, (_, met) in found.items():
        data.set_query_context(str(seed))
        for file in data.measured_files():
            met += [number((file, *arc)) for arc in data.arcs(file) or ()]
    return {seed: (seconds, np.array(met, "u4")) for seed, (seconds, met) in found.items()}


def chosen(found, count):
    """Return at most `count` seeds, the best ones first."""
    before = np.zeros(1 + max(met.max(initial=0) for _, met in found.values()), "u1")
    seeds = []

    def gain(seed):
        seconds, met = found[seed]
        return WEIGHTS[before[met]].sum() / (seconds + 0.02)

    heap = [(-gain(seed), seed) for seed in found]
    heapq.heapify(heap)
    while heap and len(seeds) < count:
        seed = heapq.heappop(heap)[1]
        now = -gain(seed), seed
        if heap and now > heap[0]:  # gains only fall
            heapq.heappush(heap, now)
            continue
        seeds.append(seed)
        met = found[seed][1]
        before[met] = np.minimum(before[met] + 1, len(WEIGHTS) - 1)
    return seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="seeds of each kind")
    parser.add_argument("kinds", nargs="*", default=[*COUNTS], help="default: all of them")
    given, path = parser.parse_args(), TESTS / "support" / "seeds.json"
    seeds = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        takes = [library(Path(name), each) for each in ("float32", "float64")]
        calls = kinds(Path(name))
        for kind in given.kinds:
            found = met_by(calls[kind], range(given.count), takes)
            seeds[kind] = chosen(found, COUNTS[kind])
            all_met, met = (
                len(np.unique(np.concatenate([found[each][1] for each in some])))
                for some in (found, seeds[kind])
            )
            seconds = sum(found[each][0] for each in seeds[kind])
            print(f"{kind}: {len(seeds[kind])} seeds in {seconds:.1f} s meet {met} of {all_met}")
            lines = [f'"{kind}": {some}' for kind, some in seeds.items()]
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
