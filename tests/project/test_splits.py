"""What the model of `benchmarks/scale/splits.py` says of ways to share a run out."""

import json
import sys
from pathlib import Path

import pytest

import gbdnn

typer = pytest.importorskip("typer")
pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def splits():
    folder = str(Path(__file__).parents[2] / "benchmarks" / "scale")
    sys.path.insert(0, folder)
    import splits

    yield splits
    sys.path.remove(folder)


@pytest.fixture
def plan(splits):
    def planned(ranks=2, inputs=20_000, neurons=4096, **options):
        net = gbdnn.radixnet(neurons, 120, lazy=True)
        return splits.plan_split(net.infos, ranks, inputs, **options)

    return planned


def test_neurons_are_not_split(plan):
    """Exchanging the activations after each layer takes several times the computing."""
    for ranks, times in ((2, 2), (4, 6), (16, 30)):
        data, _, neurons = plan(ranks).costs
        assert not neurons.built
        assert neurons.moved > 5 * data.moved
        assert neurons.seconds - neurons.computing > times * neurons.computing
        assert plan(ranks).best.built


def test_what_a_split_costs_follows_from_its_parts(plan):
    data, pipeline, _ = plan(1).costs
    assert data.computing == pipeline.computing
    data, pipeline, neurons = plan(4).costs
    assert data.computing == neurons.computing == pytest.approx(plan(1).costs[0].computing / 4)
    assert data.computing <= pipeline.computing
    assert pipeline.memory < data.memory
    slow, fast = plan(bandwidth=1e8), plan(bandwidth=1e11)
    for a, b in zip(slow.costs, fast.costs, strict=True):
        assert a.moved == b.moved or a.name == "pipeline"  # cut elsewhere
        assert a.seconds > b.seconds >= b.computing
    # Weights that are read again and again cost more than survivors that move.
    assert plan(inputs=60_000, neurons=65536).best.name == "pipeline"
    assert plan(inputs=60_000, neurons=65536, memory=16 << 30).best.name == "data parallel"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ranks": 0}, "ranks is at least 1"),
        ({"bandwidth": 0}, "bandwidth is"),
        ({"inputs": -1}, "inputs"),
    ],
)
def test_plans_that_have_no_meaning(splits, plan, options, match):
    with pytest.raises(gbdnn.ArgumentError, match=match):
        plan(**options)
    with pytest.raises(gbdnn.ArgumentError, match="without layers"):
        splits.plan_split([], 2, 10)


def test_the_script(splits, tmp_path):
    from typer.testing import CliRunner

    app = typer.Typer()
    app.command()(splits.main)
    gbdnn.save(gbdnn.radixnet(1024, 6), tmp_path / "net")
    arguments = [tmp_path / "net", "--ranks", 4, "--inputs", 5000, "--bandwidth", 1e8]
    done = CliRunner().invoke(app, [*map(str, arguments), "--json", str(tmp_path / "found.json")])
    assert done.exit_code == 0, done.output
    assert "4 processes of one thread, 5,000 inputs, 100 MB/s; a pipeline cut at [" in done.output
    assert done.output.count("take this") == done.output.count("not built") == 1
    expected = splits.plan_split(gbdnn.load(tmp_path / "net").infos, 4, 5000, bandwidth=1e8)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["best"]["seconds"] == expected.best.seconds
    assert [way["moved"] for way in found["costs"]] == [way.moved for way in expected.costs]
