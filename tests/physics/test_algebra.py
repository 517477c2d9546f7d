"""Arithmetic with constant folding agrees with NumPy and uses fewer operations."""

import operator

import numpy as np
import pytest

from memes.physics import algebra as la
from memes.physics.algebra import Stacked, Value
from memes.physics.backends import array_operations

K, N = 3, 7
OF = array_operations(np, K, N)
OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv)
KINDS = ("float", "stacked constant", "trunk value", "stacked value")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def scalar(kind, rng):
    """Return a symbolic scalar and the array of its values. No value is near zero."""
    shape = {"float": (), "stacked constant": (K, 1), "trunk value": (N,), "stacked value": (K, N)}[kind]
    array = rng.choice([-1.0, 1.0], shape) * rng.uniform(1.5, 3.0, shape)
    if kind == "float":
        return float(array), array
    return (Stacked(array[:, 0]) if kind == "stacked constant" else Value(array, OF)), array


def data(x):
    """Return the array that a scalar represents."""
    if isinstance(x, Value):
        return x.data
    return x.values[:, None] if isinstance(x, Stacked) else np.asarray(x)


def same(x, expected):
    np.testing.assert_allclose(data(x), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("b_kind", KINDS)
@pytest.mark.parametrize("a_kind", KINDS)
@pytest.mark.parametrize("operation", OPERATORS)
def test_scalars_of_all_kinds_can_be_combined(rng, operation, a_kind, b_kind):
    (a, a_array), (b, b_array) = scalar(a_kind, rng), scalar(b_kind, rng)
    result = operation(a, b)
    same(result, operation(a_array, b_array))
    assert isinstance(result, Value) == ("value" in a_kind or "value" in b_kind)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_accept_scalars_of_every_kind(rng, kind):
    x, array = scalar(kind, rng)
    y, other = scalar("stacked value", rng)
    same(-x, -array)
    same(la.sin(x), np.sin(array))
    same(la.cos(x), np.cos(array))
    same(la.absolute(x), np.abs(array))
    same(la.sqrt(la.absolute(x)), np.sqrt(np.abs(array)))
    same(la.minimum(x, y), np.minimum(array, other))
    same(la.maximum(y, x), np.maximum(other, array))
    same(la.clip(x, -2.0, 2.0), np.clip(array, -2, 2))
    same(la.where(la.less(y, x), x, y), np.where(other < array, array, other))


@pytest.mark.parametrize("kind", ["trunk value", "stacked value"])
def test_operations_with_zero_and_one_are_folded(rng, kind):
    x, array = scalar(kind, rng)
    for unchanged in (x + 0.0, 0.0 + x, x - 0.0, x * 1.0, 1.0 * x, x / 1.0, x + 0):
        assert unchanged is x
    for nothing in (x * 0.0, 0.0 * x, 0.0 / x):
        assert isinstance(nothing, float)
        assert la.is_zero(nothing)
    for negated in (0.0 - x, x * -1.0, -1.0 * x, -x):
        same(negated, -array)


def test_folded_operations_do_not_read_the_data():
    x = Value(None, OF)  # any operation on None raises
    assert (x + 0.0) is x
    assert (1.0 * x) is x
    assert la.dot((1.0, 0.0, 0.0), (x, x, x)) is x
    assert la.apply(la.IDENTITY, (x, 2.0, 3.0)) == [x, 2.0, 3.0]
    assert la.is_zero(la.dot(la.ZERO, (x, x, x)))


def test_operations_on_constants_are_folded(rng):
    a, b = scalar("float", rng)[0], scalar("stacked constant", rng)[0]
    assert isinstance(la.sin(a) + la.sqrt(la.absolute(a)) * 2.0, float)
    assert isinstance(la.sin(b) / a - la.clip(b, a, 4.0), (float, Stacked))
    assert isinstance(la.cos(0.0), float)


def test_stack_of_equal_constants_is_a_float():
    assert la.stack(np.full(K, 2.5)) == 2.5
    assert isinstance(la.stack(np.full(K, 2.5)), float)
    assert isinstance(la.stack(np.array([1.0, 1.0, 2.0])), Stacked)


def test_stacked_constants_that_cancel_are_structural_zeros(rng):
    x, array = scalar("stacked constant", rng)
    assert la.is_zero(x - x)
    assert x / x == 1.0
    assert la.is_zero(0.0 * x)
    assert la.is_zero(la.stack(np.array([1e-17, -1e-16, 0.0])))
    value, other = scalar("stacked value", rng)
    assert (value + (x - x)) is value
    assert (value * (x / x)) is value
    same((x + 1.0) * value, (array + 1) * other)


def test_vectors_and_matrices_agree_with_numpy(rng):
    kinds = [KINDS[i] for i in rng.integers(len(KINDS), size=24)]
    scalars, arrays = zip(*(scalar(kind, rng) for kind in kinds), strict=True)
    arrays = np.array([np.broadcast_to(x, (K, N)) for x in arrays])
    a, b, m = scalars[:3], scalars[3:6], [scalars[6 + 3 * i : 9 + 3 * i] for i in range(3)]
    u, v, w = arrays[:3], arrays[3:6], arrays[6:15].reshape(3, 3, K, N)

    def check(result, expected):
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(np.broadcast_to(data(x), (K, N)), y, rtol=1e-13, atol=1e-13)

    check([la.dot(a, b)], [(u * v).sum(0)])
    check(la.add(a, b), u + v)
    check(la.subtract(a, b), u - v)
    check(la.scale(a[0], b), u[0] * v)
    check(la.cross(a, b), np.cross(u, v, axis=0))
    check(la.apply(m, a), np.einsum("ij...,j...->i...", w, u))
    check(la.apply_transposed(m, a), np.einsum("ji...,j...->i...", w, u))
    square = np.einsum("ij...,jk...->ik...", w, w)
    for row, expected in zip(la.multiply(m, m), square, strict=True):
        check(row, expected)


def test_rotations_are_orthogonal_and_compose(rng):
    def turn():
        q = rng.normal(size=(4, N))
        return [Value(x, OF) for x in q / np.linalg.norm(q, axis=0)]

    def matrix(rows):
        return np.array([[np.broadcast_to(data(x), (N,)) for x in row] for row in rows]).transpose(
            2, 0, 1
        )

    p, q = turn(), turn()
    a, b = matrix(la.rotation_of_quaternion(p)), matrix(la.rotation_of_quaternion(q))
    np.testing.assert_allclose(a @ a.transpose(0, 2, 1), np.tile(np.eye(3), (N, 1, 1)), atol=1e-14)
    product = la.rotation_of_quaternion(la.quaternion_product(p, q))
    np.testing.assert_allclose(matrix(product), a @ b, atol=1e-14)


@pytest.mark.parametrize(
    "axis", [(1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.6, 0.8), (0.48, -0.6, 0.64)]
)
def test_rotation_about_an_axis_agrees_with_its_quaternion(rng, axis):
    angle = Value(rng.uniform(-4, 4, N), OF)
    half = 0.5 * angle
    quaternion = [la.cos(half), *la.scale(la.sin(half), axis)]
    for row, expected in zip(
        la.rotation_about(axis, angle), la.rotation_of_quaternion(quaternion), strict=True
    ):
        for x, y in zip(row, expected, strict=True):
            np.testing.assert_allclose(np.broadcast_to(data(x), (N,)), data(y), atol=1e-14)


def test_total_sums_over_copies_of_all_kinds_of_scalars(rng):
    of_copies, of_trunk = rng.normal(size=(K, N)), rng.normal(size=N)
    np.testing.assert_allclose(OF.total(of_copies), of_copies.sum(0))
    np.testing.assert_allclose(OF.total(of_trunk), K * of_trunk)
