"""Operations on vectors in compiled code, against NumPy."""

import ctypes
from functools import cache

import numpy as np
import pytest
from numba import cfunc, types

from gbdnn.kernels.compiled import vectors as v
from gbdnn.kernels.compiled.record import Layout

DTYPES = ("float32", "float64")


@cache
def compiled(operation, dtype):
    """Return an operation on addresses: of an array of numbers, and of where the result is."""
    kind = v.kinds(dtype)
    pointer = types.CPointer(kind.real)
    call = cfunc(types.void(pointer, pointer), error_model="numpy")(operation(kind))
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(call.address), call


def result(operation, x, size):
    """Return `size` numbers that an operation writes after getting x."""
    x, found = np.ascontiguousarray(x), np.full(size, np.nan, x.dtype)
    compiled(operation, x.dtype.name)[0](x.ctypes.data, found.ctypes.data)
    return found


def numbers(dtype, count):
    return np.random.default_rng(count).normal(size=count).astype(dtype)


def sums_of_rows(kind):
    lanes = kind.lanes
    rows = (0, 1, 2, 3)

    def operation(x, out):
        v.store(out, v.sums_of_four(v.load(v.row(x, rows, lanes), lanes)))
        out[4] = v.sum_of(v.load(x, lanes))

    return operation


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_add_halves_then_neighbours(dtype):
    """The order determines the bits of gradients."""
    lanes = v.kinds(dtype).lanes
    x = numbers(dtype, 4 * lanes).reshape(4, lanes)

    def halves(row):
        return row if len(row) == 1 else halves(row[: len(row) // 2] + row[len(row) // 2 :])

    def neighbours(row):
        while len(row) > 32 // row.itemsize:
            row = row[: len(row) // 2] + row[len(row) // 2 :]
        low, high = np.split(row, 2)
        while len(low) > 1:
            low, high = low[::2] + low[1::2], high[::2] + high[1::2]
        return low + high

    found = result(sums_of_rows, x, 5)
    np.testing.assert_array_equal(found[:4], np.concatenate([neighbours(row) for row in x]))
    np.testing.assert_array_equal(found[4:], halves(x[0]))


def taken(kind):
    def operation(x, out):
        a, b, c, d = v.take(x, 4, types.int64(x[0]))  # a step that is known at run time
        e, f, g, h = v.take(x, 4, 1)
        for k, number in enumerate((e, f, g, h, a, b, c, d)):
            out[k] = number

    return operation


@pytest.mark.parametrize("dtype", DTYPES)
def test_consecutive_numbers_and_others_in_one_function(dtype):
    x = np.arange(2, 12).astype(dtype)
    assert result(taken, x, 8).tolist() == [2, 3, 4, 5, 2, 4, 6, 8]


def on_tuples(kind):
    lanes = kind.lanes
    rows = (0, 1)

    def operation(x, out):
        a, b = v.load(v.row(x, rows, lanes), lanes), v.load(v.offset(x, 2 * lanes), lanes)
        z = v.between(v.fma((x[0], x[1]), a, b), kind.real(-0.5), kind.real(1))
        v.store(v.row(out, rows, lanes), z)
        inside = v.inside(a, kind.real(-0.5), kind.real(1), b)
        v.store(v.row(v.offset(out, 2 * lanes), rows, lanes), inside)

    return operation


@pytest.mark.parametrize("dtype", DTYPES)
def test_operations_apply_to_each_element_of_a_tuple(dtype):
    lanes = v.kinds(dtype).lanes
    x = numbers(dtype, 3 * lanes)
    a, b, (p, q) = x[: 2 * lanes].reshape(2, lanes), x[2 * lanes :], x[:2]
    found = result(on_tuples, x, 4 * lanes).reshape(4, lanes)
    expected = np.clip(np.array([p * a[0] + b, q * a[1] + b]), -0.5, 1)
    np.testing.assert_allclose(found[:2], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[2:], np.where((a > -0.5) & (a < 1), b, 0))


def of_squares(kind):
    size = kind.lanes // 2
    rows = tuple(range(size))

    def operation(x, out):
        square = v.load(v.row(x, rows, size), size)
        v.store(v.row(out, rows, size), v.transposed(square))
        most = v.larger(square, v.splat(kind.real(0), size))
        v.store(v.offset(out, size * size), most)
        v.store_first(v.offset(out, size * size + size), v.load_first(x, size, 3), 2)

    return operation


@pytest.mark.parametrize("dtype", DTYPES)
def test_squares_are_transposed_and_magnitudes_compared(dtype):
    size = v.kinds(dtype).lanes // 2
    x = numbers(dtype, size * size).reshape(size, size)
    x[0, 1] = np.nan  # is larger than infinity
    x[1, 1] = -np.inf
    found = result(of_squares, x, size * size + 2 * size)
    square, most, first = np.split(found, [size * size, size * size + size])
    np.testing.assert_array_equal(square.reshape(size, size), x.T)
    np.testing.assert_array_equal(most, np.abs(x).max(axis=0))
    np.testing.assert_array_equal(first, [*x[0, :2], *[np.nan] * (size - 2)])


FIELDS = Layout({"int64": "count", "real*": "numbers", "uint32*": "places", "float64": "scale"})


def of_records(kind):
    record = v.Record(FIELDS, kind)

    def operation(x, out):
        given = v.record_at(v.address_of(x), record, 1)
        for k in range(given.count):
            out[k] = given.numbers[given.places[k]] * kind.real(given.scale)
        out[given.count] = v.address_of(given.numbers) == 0

    return operation


@pytest.mark.parametrize("dtype", DTYPES)
def test_records_are_read_by_name(dtype):
    x, places = numbers(dtype, 5), np.array([4, 0], np.uint32)
    records = np.zeros(2, FIELDS.dtype)
    records[1] = 2, x.ctypes.data, places.ctypes.data, 0.5
    found = result(of_records, records.view(dtype), 3)
    np.testing.assert_array_equal(found, [x[4] / 2, x[0] / 2, 0])
