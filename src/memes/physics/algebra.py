"""Arithmetic that folds constants during tracing.

A number in the simulator has one of three types:

- a Python float, a constant of the model;
- a `Stacked` constant, which has one float for each of K isomorphic subtrees;
- a `Value`, which is known only at run time. It is an array, or an expression of a code generator.

Formulas may mix these types. Operations on constants are computed during tracing, and operations with a
constant 0 or 1 are omitted. Therefore a general formula produces only the operations that the model
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

# Constants with a smaller absolute value than `TINY` are treated as zero, because they result from
# rounding errors in rotations.
TINY = 1e-13


class Operations(NamedTuple):
    """Operations of a backend on the data of `Value`s, except `+`, `-`, `*` and comparisons.

    Attributes:
        divide: A function `(a, b) -> a / b`. One of the arguments may be a float.
        sin, cos, sqrt, abs, minimum, maximum, where: Elementwise functions, as in NumPy.
        lift: A function `(constants[K]) -> data` that converts constants to shape (K, 1) or (K, N).
        total: A function `(data[K, N]) -> data[N]` that computes the sum over isomorphic subtrees.
        fill: A function `(float, stacked: bool) -> data` that expands a constant to the full shape.
    """

    divide: Callable[[Any, Any], Any]
    sin: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    abs: Callable[[Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    where: Callable[[Any, Any, Any], Any]
    lift: Callable[[np.ndarray], Any]
    total: Callable[[Any], Any]
    fill: Callable[[float, bool], Any]


class Stacked:
    """Constants `values[K]` of K isomorphic subtrees. The constants are not all equal."""

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def _with(self, other: Scalar, operation: Callable[[Any, Any], Any]) -> Scalar:
        if isinstance(other, Value):
            return NotImplemented  # type: ignore[no-any-return]
        return stack(operation(self.values, other.values if isinstance(other, Stacked) else other))

    def __add__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: a + b)

    def __radd__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: b + a)

    def __sub__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: a * b)

    def __rmul__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: b * a)

    def __truediv__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Scalar) -> Scalar:
        return self._with(other, lambda a, b: b / a)

    def __neg__(self) -> Scalar:
        return Stacked(-self.values)


class Value:
    """A value that is known only at run time.

    `data` contains the value, and `of` contains the operations of the backend.
    """

    __slots__ = ("data", "of")

    def __init__(self, data: Any, of: Operations) -> None:
        self.data = data
        self.of = of

    def _raw(self, other: Scalar) -> Any:
        if isinstance(other, Value):
            return other.data
        return self.of.lift(other.values) if isinstance(other, Stacked) else other

    def __add__(self, other: Scalar) -> Scalar:
        return self if _is(other, 0) else Value(self.data + self._raw(other), self.of)

    def __radd__(self, other: Scalar) -> Scalar:
        return self if _is(other, 0) else Value(self._raw(other) + self.data, self.of)

    def __sub__(self, other: Scalar) -> Scalar:
        return self if _is(other, 0) else Value(self.data - self._raw(other), self.of)

    def __rsub__(self, other: Scalar) -> Scalar:
        return -self if _is(other, 0) else Value(self._raw(other) - self.data, self.of)

    def __mul__(self, other: Scalar) -> Scalar:
        for number, product in ((0, 0.0), (1, self), (-1, None)):
            if _is(other, number):
                return -self if product is None else product
        return Value(self.data * self._raw(other), self.of)

    __rmul__ = __mul__

    def __truediv__(self, other: Scalar) -> Scalar:
        if isinstance(other, Value):
            return Value(self.of.divide(self.data, other.data), self.of)
        return self * (1.0 / other)  # avoids a division at run time

    def __rtruediv__(self, other: Scalar) -> Scalar:
        return 0.0 if _is(other, 0) else Value(self.of.divide(self._raw(other), self.data), self.of)

    def __neg__(self) -> Value:
        return Value(-self.data, self.of)


Scalar = float | Stacked | Value
Condition = bool | Stacked | Value
Vector = Sequence[Scalar]  # three entries
Matrix = Sequence[Vector]  # three rows
IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
ZERO: Vector = (0.0, 0.0, 0.0)


def stack(values: np.ndarray) -> Scalar:
    """Return a float if the K constants are all equal, and otherwise a `Stacked` constant."""
    values = np.where(np.abs(values) < TINY, 0.0, values)
    if np.ptp(values) <= 1e-12 * max(1.0, np.abs(values).max()):
        return float(values[0])
    return Stacked(values)


def _is(x: Scalar, number: float) -> bool:
    return isinstance(x, (int, float)) and x == number


def is_zero(x: Scalar) -> bool:
    """Return True if x is a structural zero."""
    return _is(x, 0)


def _first_value(*scalars: Scalar) -> Value | None:
    return next((x for x in scalars if isinstance(x, Value)), None)


def _elementwise(name: str, folded: Callable[..., Any]) -> Callable[..., Scalar]:
    def apply(*arguments: Scalar) -> Scalar:
        value = _first_value(*arguments)
        if value is not None:
            return Value(getattr(value.of, name)(*map(value._raw, arguments)), value.of)
        if any(isinstance(x, Stacked) for x in arguments):
            return stack(folded(*(x.values if isinstance(x, Stacked) else x for x in arguments)))
        return float(folded(*arguments))

    return apply


sin = _elementwise("sin", np.sin)
cos = _elementwise("cos", np.cos)
sqrt = _elementwise("sqrt", np.sqrt)
absolute = _elementwise("abs", np.abs)
minimum = _elementwise("minimum", np.minimum)
maximum = _elementwise("maximum", np.maximum)


def less(a: Scalar, b: Scalar) -> Condition:
    """Return the condition a < b.

    For two floats, the result is a bool. For a stacked constant and another constant, the result may be
    a mask of zeros and ones.
    """
    value = _first_value(a, b)
    if value is not None:
        return Value(value._raw(a) < value._raw(b), value.of)
    difference = a - b
    if isinstance(difference, Stacked):
        mask = stack(np.where(difference.values < 0, 1.0, 0.0))
        return mask if isinstance(mask, Stacked) else bool(mask)
    return bool(difference < 0)  # type: ignore[operator]


def where(condition: Condition, a: Scalar, b: Scalar) -> Scalar:
    """Return `a` for entries that satisfy the condition, and `b` for all other entries."""
    if isinstance(condition, bool):
        return a if condition else b
    if isinstance(condition, Stacked):
        return condition * a + (1.0 - condition) * b
    return Value(condition.of.where(condition.data, condition._raw(a), condition._raw(b)), condition.of)


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Clip x to [low, high]."""
    return minimum(maximum(x, low), high)


def dot(a: Vector, b: Vector) -> Scalar:
    """Return the inner product of two vectors."""
    total: Scalar = 0.0
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


def add(a: Vector, b: Vector) -> Vector:
    """Return a + b."""
    return [x + y for x, y in zip(a, b, strict=True)]


def subtract(a: Vector, b: Vector) -> Vector:
    """Return a - b."""
    return [x - y for x, y in zip(a, b, strict=True)]


def scale(s: Scalar, a: Vector) -> Vector:
    """Return s * a."""
    return [s * x for x in a]


def cross(a: Vector, b: Vector) -> Vector:
    """Return the cross product of two vectors."""
    return [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]


def apply(matrix: Matrix, x: Vector) -> Vector:
    """Multiply a matrix by a vector."""
    return [dot(row, x) for row in matrix]


def apply_transposed(matrix: Matrix, x: Vector) -> Vector:
    """Multiply the transpose of a matrix by a vector."""
    return [dot(column(matrix, i), x) for i in range(3)]


def column(matrix: Matrix, i: int) -> Vector:
    """Return column i of a matrix."""
    return [row[i] for row in matrix]


def multiply(a: Matrix, b: Matrix) -> Matrix:
    """Return the product of two matrices."""
    return [[dot(row, column(b, i)) for i in range(3)] for row in a]


def rotation_of_quaternion(q: Sequence[Scalar]) -> Matrix:
    """Return the rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = q
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz, xy, xz, yz = x * x2, y * y2, z * z2, x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return [
        [1.0 - (yy + zz), xy - wz, xz + wy],
        [xy + wz, 1.0 - (xx + zz), yz - wx],
        [xz - wy, yz + wx, 1.0 - (xx + yy)],
    ]


def rotation_about(axis: Vector, angle: Scalar) -> Matrix:
    """Return the rotation matrix of an angle about a constant unit axis (Rodrigues' formula)."""
    s, c = sin(angle), cos(angle)
    rows: list[list[Scalar]] = []
    for i in range(3):
        row: list[Scalar] = []
        for j in range(3):
            product = axis[i] * axis[j]
            if i == j:
                rest = 1.0 - product
                close_to_one = isinstance(rest, float) and abs(rest) < 1e-12
                row.append(1.0 if close_to_one else product + rest * c)
            else:
                sign = 1.0 if (i, j) in ((1, 0), (2, 1), (0, 2)) else -1.0
                row.append(product * (1.0 - c) + sign * axis[3 - i - j] * s)
        rows.append(row)
    return rows


def quaternion_product(a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    """Return the Hamilton product of two quaternions."""
    return [
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    ]
