"""Whole calls of `infer` and its variants, drawn at random: the answers are known to the bit.

The default tests make draws with chosen seeds (tests/stress/seeds.py). The slow ones make more of
them, from the seed in GBDNN_SEED, or 0, on, and count the lines of the engine and the kernels that
they run.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("safetensors")

import drawn

ROOT = Path(__file__).parents[1]
PARTS = 4
# Kernels of training and of graphs, and what builds the compiled ones.
OTHERS = ("build", "dense_product", "gather", "ranges", "steps", "trainable")


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_those_of_the_oracle(part, tmp_path):
    some = drawn.seeds("calls")[part::PARTS]
    met = [call for seed in some for call in drawn.check(seed, tmp_path)]
    deaths = [layers for *_, layers in met]
    assert deaths.count(0) > 2
    assert deaths.count(3) > 0, "inputs of no draw die in many layers while others live"


@pytest.mark.parametrize("count", [None, pytest.param(3000, marks=pytest.mark.slow)])
def test_faults_are_named(count, tmp_path):
    """They are in features, callbacks and any layer."""
    seeds = drawn.seeds("faults", count)
    met = Counter(drawn.check_fault(seed, tmp_path) for seed in seeds)
    assert met.pop(None) < 0.7 * len(seeds)
    assert min(met[-2], met[-1], met[0], sum(met[at] for at in met if at > 0)) > len(seeds) / 30


@pytest.mark.parametrize("count", [None, pytest.param(3000, marks=pytest.mark.slow)])
def test_an_answer_has_the_same_bits_however_it_is_divided(count):
    seeds = drawn.seeds("bits", count)
    assert sum(map(drawn.check_bits, seeds)) > len(seeds) / 2


@pytest.mark.parametrize("count", [16, pytest.param(300, marks=pytest.mark.slow)])
def test_memory_is_enough(count):
    formats = Counter(map(drawn.check_memory, drawn.seeds("memory", count)))
    assert formats["csr"] > count / 2
    assert formats["bitmapr"] + formats["fullr"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [[], [2000]])
def test_draws_meet_nearly_all_branches(count, tmp_path):
    """Those of chosen seeds, and many. Lines of errors, processors and signals remain."""
    pytest.importorskip("coverage")
    data = f"--data-file={tmp_path / 'lines'}"
    sources = f"--source={ROOT / 'gbdnn/engine'},{ROOT / 'gbdnn/kernels'}"
    run = [sys.executable, "-m", "coverage"]
    script = [ROOT / "tests/support/drawn.py", *map(str, count)]
    done = subprocess.run([*run, "run", data, sources, *script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["computed"] > 2 * sum(count or [len(drawn.seeds("calls"))])
    assert found["different"] > 300
    assert found["faulty layers"] > 5
    subprocess.run([*run, "json", data, "-o", tmp_path / "lines.json"], check=True)
    files = json.loads((tmp_path / "lines.json").read_text())["files"]
    of = [each["summary"] for name, each in files.items() if Path(name).stem not in OTHERS]
    covered = sum(each["covered_lines"] for each in of) / sum(each["num_statements"] for each in of)
    assert covered >= 0.95
