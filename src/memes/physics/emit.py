"""Generation of C++ code for a timestep, for CPUs (`native.py`) and GPUs (`cuda_backend.py`).

The code uses values of type `V`, conditions of type `I`, and a few functions such as `choose`, `least`
and `root`. The C++ files `native.cc` and `cuda.cu` define these types and functions. On CPUs, a value is
a vector with one number for each of several robots. On GPUs, a value is a number for one leg of one
robot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from memes.kernels.source import written
from memes.physics import step as stepping
from memes.physics.algebra import Condition, Operations, Scalar, Stacked, Value
from memes.physics.solver import Alternative, Body, ControlFlow, Fidelity, Scalars
from memes.physics.stacking import StackedModel
from memes.physics.step import Phase


class Expression:
    """A C++ variable. Each arithmetic operation on it appends a line to the generated code."""

    __slots__ = ("name", "program")

    def __init__(self, program: GeneratedCode, name: str) -> None:
        self.program = program
        self.name = name

    def _write(self, template: str, *operands: Any) -> Expression:
        return self.program.declare("V", template.format(*map(_literal, operands)))

    def __add__(self, other: Any) -> Expression:
        return self._write("{} + {}", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self._write("{} + {}", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self._write("{} - {}", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._write("{} - {}", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self._write("{} * {}", self, other)

    def __neg__(self) -> Expression:
        return self._write("-{}", self)

    def __lt__(self, other: Any) -> Expression:
        return self.program.declare("I", f"{self.name} < {_literal(other)}")

    def __gt__(self, other: Any) -> Expression:
        return self.program.declare("I", f"{self.name} > {_literal(other)}")


def _literal(x: Any) -> str:
    return x.name if isinstance(x, Expression) else f"all({float(x):.9e}f)"


class GeneratedCode:
    """The C++ code of a step, generated line by line during tracing.

    Attributes:
        lines: Lines of code, which form the body of a step.
        constants: The names of constants that have one value per leg. The keys are the tuples of values.
            The C++ source must define these constants.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[tuple[float, ...], str] = {}
        self._count = 0
        self.of = self._operations()

    def declare(self, kind: str, expression: str) -> Expression:
        """Append the declaration of a new variable, and return the variable."""
        self._count += 1
        self.lines.append(f"{kind} v{self._count} = {expression};")
        return Expression(self, f"v{self._count}")

    def _operations(self) -> Operations:
        def call(name: str) -> Callable[..., Expression]:
            return lambda *operands: self.declare("V", f"{name}({', '.join(map(_literal, operands))})")

        def lift(values: np.ndarray) -> Expression:
            key = tuple(float(x) for x in values)
            return Expression(self, self.constants.setdefault(key, f"k{len(self.constants)}"))

        return Operations(
            divide=call("quotient"),
            sin=call("sine"),
            cos=call("cosine"),
            sqrt=call("root"),
            abs=call("absolute"),
            minimum=call("least"),
            maximum=call("greatest"),
            where=call("choose"),
            lift=lift,
            total=call("total"),
            fill=lambda x, stacked: x if isinstance(x, Expression) else self.declare("V", _literal(x)),
        )

    def _text(self, x: Scalar) -> str:
        if isinstance(x, Stacked):
            return _literal(self.of.lift(x.values))
        return _literal(x.data if isinstance(x, Value) else x)

    def repeat(self, count: int, body: Body, start: Scalars, stacked: Sequence[bool]) -> Scalars:
        """Append a C++ loop with a variable for each scalar."""
        del stacked
        carried = [self.declare("V", self._text(x)) for x in start]
        values = [Value(x, self.of) for x in carried]
        i = f"i{self._count}"
        self.lines.append(f"ROLLED for (int {i} = 0; {i} < {count}; ++{i}) {{")
        after = [self._text(x) for x in body(values)]
        if set(after) & {x.name for x in carried}:  # copy loop variables before they change
            after = [self.declare("V", x).name for x in after]
        self.lines += [f"{x.name} = {new};" for x, new in zip(carried, after, strict=True)]
        self.lines.append("}")
        return values

    def branch(
        self, condition: Condition, then: Alternative, otherwise: Alternative
    ) -> Sequence[Scalar]:
        """Append code for both branches of a condition.

        The code skips a branch if none of the robots in a vector or a warp needs it.
        """
        if not isinstance(condition, Value):
            return then()
        mask = _literal(condition.data)
        place = len(self.lines)
        # If the longer branch comes first, fewer variables are in use while it runs.
        self.lines.append(f"if (some({mask})) {{")
        including = [self._text(x) for x in then()]
        names = [f"b{self._count}_{i}" for i in range(len(including))]
        self.lines += [f"{name} = {x};" for name, x in zip(names, including, strict=True)]
        self.lines.append(f"}} if (some(opposite({mask}))) {{")
        without = [self._text(x) for x in otherwise()]
        self.lines += [
            f"{name} = choose({mask}, {name}, {x});" for name, x in zip(names, without, strict=True)
        ]
        self.lines.append("}")
        self.lines.insert(place, "V " + ", ".join(f"{name} = all(0.f)" for name in names) + ";")
        return [Value(Expression(self, name), self.of) for name in names]


def emit(stacked: StackedModel, fidelity: Fidelity) -> GeneratedCode:
    """Generate the code of a step, given `x` (qpos, qvel and the warm start) and `c` (the controls)."""
    model, program = stacked.model, GeneratedCode()

    def read(array: str, start: int, count: int) -> list[Scalar]:
        names = [f"{array}[{start + i}]" for i in range(count)]
        return [Value(program.declare("V", name), program.of) for name in names]

    nq, nv = model.nq, model.nv
    phase = Phase(read("x", 0, nq), read("x", nq, nv), read("x", nq + nv, nv))
    control = ControlFlow(program.repeat, program.branch)
    after = stepping.step(model, stacked.tree, phase, read("c", 0, model.nu), fidelity, control)
    results = [program._text(x) for x in (*after.qpos, *after.qvel, *after.warm)]
    program.lines += [f"x[{i}] = {x};" for i, x in enumerate(results)]
    return program


def simulator(file: str, **parts: Any) -> str:
    """Return the source code in a file of this folder, with its placeholders replaced."""
    folder = resources.files("memes.physics")
    return written((folder / file).read_text(), ANGLES=(folder / "angles.h").read_text(), **parts)
