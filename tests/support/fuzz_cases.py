"""What cases of all formats share: reading, comparing with what is there, networks to write.

A case takes a generator of random numbers and an empty folder, writes a damaged file, and returns
``read`` or ``refused``, or raises what is wrong.
"""

import numpy as np

_MADE = {}  # what is damaged, made once in a process
WRONG_FILE = ("FormatError", "ShapeError", "TooLargeError")  # what a damaged file is
WRONG_NETWORK = (*WRONG_FILE, "ArgumentError")  # or one with nodes that have no meaning here


class MisreadError(AssertionError):
    pass


def require_equal(got, expected):
    if np.shape(got) != np.shape(expected) or not np.array_equal(got, expected):
        raise MisreadError(f"{got!r} is read, {expected!r} is there")


def require_same(got, expected):
    if got != expected:
        raise MisreadError(f"{got!r} is read, {expected!r} is there")


def layers_of(net):
    return [
        (
            layer.W.to_dense(fill_value=0).astype(float),
            np.asarray(layer.bias, float),
            layer.activation,
            layer.clip,
            layer.bias_rule,
        )
        for layer in net
    ]


def require_layers(got, expected, fields=5):
    require_equal(len(got), len(expected))
    for mine, its in zip(got, expected, strict=True):
        require_equal(mine[0], its[0])
        require_equal(*np.broadcast_arrays(mine[1], its[1]))
        require_same(mine[2:fields], its[2:fields])


def judged(read, expected, compare=require_equal, *, errors=WRONG_FILE):
    """Read, and compare with what is there if it is not refused, by an error of these names."""
    import gbdnn

    try:
        got = read()
    except gbdnn.GbdnnError as err:
        if type(err).__name__ not in errors:
            raise
        return "refused"
    if got is None:
        return "read"
    try:
        right = expected()
    except Exception as err:
        raise MisreadError(f"read, where there is {err!r}: {got!r:.200}") from err
    compare(got, right)
    return "read"


def made(name, make):
    if name not in _MADE:
        _MADE[name] = make()
    return _MADE[name]


def some_matrix(rng, n=6, m=5):
    return np.round(rng.normal(0, 2, (n, m)) * (rng.random((n, m)) < 0.5), rng.integers(1, 9))


def a_network(dtype="FP64"):
    import gbdnn

    rng = np.random.default_rng(7)
    return gbdnn.Network(
        [
            gbdnn.Layer(some_matrix(rng), rng.normal(size=5).round(3), clip=2.5, dtype=dtype),
            gbdnn.Layer(some_matrix(rng, 5, 4), -0.25, dtype=dtype),
            gbdnn.Layer(np.eye(4) / 4, 0.5, activation="identity", dtype=dtype),
        ]
    )
