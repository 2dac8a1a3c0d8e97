"""The rules of speed reach nearly the best option on every processor that anyone has measured.

``benchmarks/limits/choices.py`` makes the files; a further one needs no change here.
"""

import sys
from itertools import groupby
from pathlib import Path
from statistics import mean

import pytest
from machines import MACHINES

from gbdnn.kernels import costs

SUPPORT = Path(__file__).parents[2] / "benchmarks" / "support"
LEAST, MEAN = 0.88, 0.96  # relative to the best option, in each case and in the mean of a rule


@pytest.fixture(scope="module")
def rules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SUPPORT)
        import rules

        yield rules
    sys.modules.pop("rules")


# By the clock on the wall, or with preparation: differences are those of two measurements.
REPORTED = {"reordering", "second thread", "sharing neurons"}


def is_asserted(score):
    """Few edges are slow with any panels."""
    few = score.rule == "rows per panel" and score.case["density"] < 0.01
    return not few and score.rule not in REPORTED


def test_chosen_options_are_nearly_the_fastest(rules):
    names, found = set(), []
    for file in rules.PROCESSORS.glob("*.json"):
        scores = [each for each in rules.scores(rules.read(file)) if is_asserted(each)]
        for rule, some in groupby(scores, key=lambda each: each.rule):
            some = list(some)
            found += [(file.name, each) for each in some if each.relative < LEAST]
            if mean(each.relative for each in some) < MEAN:
                found.append((file.name, rule, mean(each.relative for each in some)))
        names |= {(file.name, each.rule) for each in scores}
    assert {("zen4-avx512.json", "rows per panel"), ("zen4-avx2.json", "rows per panel")} <= names
    assert not found


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("density", [0.1, 0.9])
def test_layers_in_blocks(name, density, on):
    """Blocks have 64 to 128 inputs; with twice the neurons a layer has four times the edges."""
    on(name)
    for n in (512, 1000, 4096):
        assert 64 <= costs.fused_width(n, 4, 60_000, 8) <= 128
        half, whole = (costs.fused_layer(64, int(density * m**2), m, m, 4) for m in (n, 2 * n))
        assert 3 < whole / half <= 4


def test_panels_of_the_full_kernel_have_odd_multiples_of_16_inputs():
    assert [costs.padded(inputs) for inputs in (1, 16, 17, 48, 49)] == [16, 16, 48, 48, 80]


@pytest.mark.parametrize("name", MACHINES)
def test_panels_change_by_at_most_one_where_density_changes_little(name, on):
    """A cliff, from no panels to many, would be seen on processors that nobody has measured."""
    on(name)
    for neurons in (512, 1000, 4096):
        before = None
        for step in range(-700, 0):
            edges = round(1.01**step * neurons**2)
            rows = costs.panel_rows(edges, neurons, neurons)
            panels = -(-neurons // rows)
            assert before is None or abs(panels - before) <= 1
            before = panels
            assert rows * (panels - 1) < neurons <= rows * panels
            assert panels == 1 or edges / neurons / panels >= 0.6 * costs.LEAST_EDGES
        assert before > 1
    assert costs.panel_rows(0, 512, 512) == 512
