"""The published figures agree with each other."""

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "docs/published.py"


@pytest.fixture
def found():
    return runpy.run_path(FILE)


def test_the_best_of_several_nodes_is_in_the_table_of_nodes(found):
    best = {
        (int(neurons), int(layers)): min(seconds)
        for neurons, by_layers in found["FOUND"]["scaling"][0]["seconds"].items()
        for layers, seconds in by_layers.items()
    }
    quoted = {
        (each.neurons, each.layers): each.seconds
        for each in found["PUBLISHED"]
        if each.system == "KK-SpDNN, best of 2 to 24 nodes"
    }
    assert (best, len(best)) == (quoted, 12)


def test_times_have_machine_and_source(found):
    times = found["PUBLISHED"]
    for each in times:
        assert each.machine and each.source and each.where  # noqa: PT018
        assert each.effective == (each.system == "SNICIT")
    assert len({(each.system, each.neurons, each.layers) for each in times}) == len(times)
