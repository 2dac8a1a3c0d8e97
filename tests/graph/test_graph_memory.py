"""The memory of graph convolutions is told before the first layer, and kept."""

import graph_memory
import memory_grid
import pytest

CASES = [
    ("sum", "dense", 0), ("sum", "own", 0), ("sum", "sparse", 0), ("sum", "columns", 500),
    ("max", "columns", 0), ("max", "own", 500), ("max", "sparse", 0),
]  # fmt: skip
ROUNDED = 2 << 20  # pages, and stacks of threads


@pytest.mark.slow
@pytest.mark.skipif(not memory_grid.PEAK.exists(), reason="peaks are measured where there is /proc")
@pytest.mark.parametrize("given", CASES, ids=lambda given: " ".join(map(str, given)))
def test_what_is_told_is_what_is_taken(given):
    found = graph_memory.run(*given)
    assert found["beyond"] <= found["told"] + ROUNDED, found
    assert found["beyond"] > 0.5 * found["told"], found  # nor is much more asked for
    assert found["entries"] > 10**4
