"""A caller's GraphBLAS object is touched first under the lock of `complete`, by every public call.

GraphBLAS finishes pending work at the first touch, and two threads that do so at once corrupt the
object. Every access to an object goes by its handle, ``gb_obj``: here all accesses are seen.
"""

from concurrent.futures import ThreadPoolExecutor

import graphblas as gb
import numpy as np
import pytest
from test_wrong_calls import calls  # noqa: F401

import gbdnn
from gbdnn.runtime import first_use

Matrix, Vector, Scalar = gb.Matrix, gb.Vector, gb.Scalar


class Watch:
    """Records who touches watched objects first, and whether the lock was held."""

    def __init__(self, monkeypatch):
        self.untouched, self.doors, self.kept = set(), [], []
        for kind in (Matrix, Vector, Scalar):
            monkeypatch.setattr(kind, "__getattribute__", self._observed(kind), raising=False)

    def _observed(self, kind):
        plain = kind.__getattribute__

        def observed(x, name):
            if name == "gb_obj" and id(x) in self.untouched:
                self.untouched.discard(id(x))
                if not first_use.COMPLETION._is_owned():
                    self.doors.append(kind.__name__)
            return plain(x, name)

        return observed

    def __call__(self, x):
        """Watch an object, or an expression of watched ones, from now on."""
        self.kept.append(x)
        if isinstance(x, Matrix | Vector | Scalar):
            self.untouched.add(id(x))
        return x


@pytest.fixture
def watch(monkeypatch):
    return Watch(monkeypatch)


def pending_matrix(array):
    A = gb.Matrix(float, *np.shape(array))
    for i, j in np.argwhere(array):
        A[i, j] = float(array[i][j])
    return A


def pending_vector(values):
    b = gb.Vector(float, len(values))
    for i, value in enumerate(values):
        b[i] = value
    return b


def stand_ins(watch, right):
    """GraphBLAS objects in the place of an argument: some right, most wrong."""
    like = right if isinstance(right, np.ndarray) and right.ndim == 2 else np.eye(4)
    yield watch(pending_matrix(like))
    yield (watch(pending_matrix(like)), [watch(pending_vector([1.0, 2.0, 3.0]))])
    yield watch(pending_matrix(like)).ewise_mult(watch(pending_matrix(like)))
    yield watch(pending_matrix(like.T)).T
    yield [watch(pending_matrix(like))]
    yield watch(pending_vector([1.0, 2.0, 0.0, 3.0]))
    yield [watch(pending_vector([1.0, 2.0, 0.0, 3.0]))]
    yield {"a": watch(pending_matrix(like))}
    yield watch(gb.Scalar.from_value(1.0, is_cscalar=False))
    full = gb.Matrix(float, *like.shape)
    full << 0.5
    full[0, 0] = 1.0
    yield watch(full)


def test_a_touch_without_the_lock_is_seen(watch):
    A = watch(pending_matrix(np.eye(4)))
    assert A.shape == (4, 4)
    assert not watch.doors
    assert A.nvals == 4
    assert watch.doors == ["Matrix"]
    first_use.complete(watch(pending_matrix(np.eye(4))))
    assert watch.doors == ["Matrix"]


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 5))]
)
def test_every_public_call_completes_an_object_before_it_reads_it(watch, calls, part):  # noqa: F811
    faults, count = set(), 0
    for name, (call, right, _) in list(calls.items())[part::5]:
        for argument, value in right.items():
            for x in stand_ins(watch, value):
                count += 1
                try:
                    call(**{**right, argument: x})
                except NameError:
                    raise
                except Exception:  # noqa: S110 -- which one it is, other tests ask
                    pass
                if watch.doors:
                    faults.add(f"{name}({argument}=...): {type(x).__name__}: {watch.doors}")
                    watch.doors.clear()
    assert count > 500
    assert not faults, "\n".join([str(len(faults)), *sorted(faults)])


def test_a_list_of_matrices_or_vectors_is_completed_too(watch, tmp_path):
    def X():
        return watch(pending_matrix(np.eye(4)))

    def b():
        return watch(pending_vector([1.0, 2.0, 0.0, 3.0]))

    with ThreadPoolExecutor(2) as pool:
        over = {"executor": pool, "nthreads": 1}
        answers = [
            gbdnn.infer([X(), X().T], X().T, bias=[b(), b()]),
            gbdnn.infer([X()], X(), **over),
            *gbdnn.infer_batches([X()], [X(), X().T]),
            *gbdnn.infer_batches([X()], [X(), X().T], **over),
            gbdnn.infer_to_store([X()], X(), tmp_path / "Y", **over).matrix(),
            gbdnn.compile([X()], bias=[b()])(np.eye(4)),
        ]
    gbdnn.save(X(), tmp_path / "X")
    gbdnn.io.write_features(iter([X(), X()]), tmp_path / "XX")
    gbdnn.train([gbdnn.Layer(X(), b())], X(), np.ones((4, 4)), epochs=1)
    assert len(answers) == 8
    assert not watch.doors
