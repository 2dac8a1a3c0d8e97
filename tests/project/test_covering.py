"""The quick suite has every pair of parameters that the whole one has."""

from itertools import combinations, product

from covering import covering


def test_every_pair_is_there():
    sizes = {"a": 15, "b": 2, "c": 2, "d": 6, "e": 2}
    rows = [dict(zip(sizes, row, strict=True)) for row in product(*map(range, sizes.values()))]
    few = [rows[k] for k in covering(rows)]
    for a, b in combinations(sizes, 2):
        assert {(row[a], row[b]) for row in few} == set(product(range(sizes[a]), range(sizes[b])))
    assert 15 * 6 <= len(few) < 2 * 15 * 6


def test_combinations_that_are_left_out():
    rows = [{"a": 0, "b": 0}, {"a": 1, "b": 1}, {"a": 1, "b": 1}]
    assert covering(rows) == [0, 1]
    assert covering([{"a": 0}, {"a": 1}]) == [0, 1]
    assert covering([{}]) == []
