"""A covering array: few of many combinations, in which every pair of values stands."""

from itertools import combinations


def covering(rows):
    """Return the numbers of rows that have every pair of values that some row has.

    Parameters
    ----------
    rows : list of dict
        The value of each parameter.
    """
    pairs = [set(combinations(sorted(row.items()), 2)) or set(row.items()) for row in rows]
    missing, found = set().union(*pairs), []
    for wanted in range(max(map(len, pairs)), 0, -1):  # first the rows that bring the most
        for k, each in enumerate(pairs):
            if len(each & missing) >= wanted:
                missing -= each
                found.append(k)
    return sorted(found)
