"""A random model by its number, with the bound of each output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from amp_rewrite.dtypes import low_dtype
from bounded_models import control, discrete, elementwise, moving, products, reducing
from bounded_models.scope import Names, Scope, Value, declared, stored

PLAIN = elementwise.ROWS | products.ROWS | reducing.ROWS | moving.ROWS | discrete.ROWS
OPSET = control.OPSET
IR_VERSION = 10


@dataclass(frozen=True)
class BoundedModel:
    """A model, what to feed it, and how far a rewritten one may be from it.

    Attributes:
        model: The model.
        feeds: Inputs that no rounding changes: multiples of an eighth, at most 2 in magnitude.
        bounds: Output -> the largest magnitude, and the largest error.
        operators: The operators that it has.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    bounds: dict[str, Value]
    operators: frozenset[str]


def generate(seed: int, precision: str) -> BoundedModel:
    """Return the model of a number; the bounds are those of a rewrite to `precision`."""
    rng = np.random.default_rng(seed)
    names = Names(low_dtype(precision))
    inputs = ["x", "z"]
    scope = Scope(names, rng, [Value(name, 2.0, 0.0) for name in inputs])
    for _ in range(int(rng.integers(3, 14))):
        _add_row(scope)
    ends = _ends(scope, int(rng.integers(1, 4)))
    feeds = {n: (rng.integers(-16, 17, (2, 4)) / 8).astype(np.float32) for n in inputs}
    return BoundedModel(_model(scope, ends), feeds, ends, frozenset(names.operators))


def _add_row(scope: Scope) -> None:
    nested = control.rows(_fill) if scope.depth < control.DEPTH else {}
    table = nested if nested and scope.rng.random() < 0.15 else PLAIN
    table[str(scope.rng.choice(list(table)))](scope)


def _fill(scope: Scope) -> None:
    """Add a few random rows to a body."""
    for _ in range(int(scope.rng.integers(1, 4))):
        _add_row(scope)


def _ends(scope: Scope, count: int) -> dict[str, Value]:
    """Return the last values of a graph, which become its outputs."""
    made = [value for value in scope.values if value.name not in ("x", "z")]
    return {value.name: scope.rounded(value) for value in made[-count:]}


def _model(scope: Scope, ends: dict[str, Value]) -> onnx.ModelProto:
    constants = scope.names.constants
    graph = scope.graph("random", [declared("x"), declared("z")], [declared(n) for n in ends])
    graph.initializer.extend(stored(constants, set(constants)))
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(control.DOMAIN, 1)]
    functions = scope.names.functions
    return helper.make_model(
        graph, opset_imports=imports, ir_version=IR_VERSION, functions=functions
    )
