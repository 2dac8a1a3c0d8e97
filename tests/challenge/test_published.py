"""The published figures agree with each other."""

import tomllib
from importlib.resources import files

from gbdnn.challenge import PUBLISHED


def test_the_best_of_several_nodes_is_in_the_table_of_nodes():
    text = files("gbdnn.challenge").joinpath("published.toml").read_text(encoding="utf-8")
    skylake = tomllib.loads(text)["scaling"][0]
    best = {
        (int(neurons), int(layers)): min(seconds)
        for neurons, by_layers in skylake["seconds"].items()
        for layers, seconds in by_layers.items()
    }
    quoted = {
        (each.neurons, each.layers): each.seconds
        for each in PUBLISHED
        if each.system == "KK-SpDNN, best of 2 to 24 nodes"
    }
    assert (best, len(best)) == (quoted, 12)


def test_rates_have_machine_and_source():
    for each in PUBLISHED:
        assert each.machine and each.source and each.where  # noqa: PT018
        assert each.edges == each.layers * 32 * each.neurons
        assert each.effective == (each.system == "SNICIT")
    assert len({(each.system, each.neurons, each.layers) for each in PUBLISHED}) == len(PUBLISHED)
