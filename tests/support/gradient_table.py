"""One row per operator and use; what is checked about each.

A row's gradient u -> vjp(u) must satisfy <v, vjp(u)> = d/dh <u, f(x + h v)> at h = 0 for every
input x: the right side by central differences in float64. It must do so with all lengths known,
with none known, and in float32 in ONNX Runtime (which need not have a kernel for float64: then the
reference evaluator of the onnx package runs the same graph).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnxruntime.capi import (
    onnxruntime_pybind11_state as runtime_errors,  # pyright: ignore[reportAttributeAccessIssue] compiled
)
from reference_operators import OPERATORS
from releases import needs, needs_opset

from amp_rewrite import to_proto
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import Builder, IndexedSlices, gradients
from amp_rewrite.grad.prepare import prepare as prepare_gradients

Array = np.ndarray[Any, Any]
Generator = Callable[[np.random.Generator, tuple[int, ...]], npt.ArrayLike]

STEP = float(np.cbrt(np.finfo(np.float64).eps))
"""The step of a central difference that balances truncation and rounding: 6e-6."""
NEWEST = 26
"""The newest opset that the ONNX Runtime of the test extra runs."""
_IR_VERSION = {
    13: 7,
    14: 7,
    15: 8,
    16: 8,
    17: 8,
    18: 8,
    19: 9,
    20: 9,
    21: 10,
    22: 10,
    23: 11,
    24: 12,
    26: 13,
}


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers at least 0.05 away from 0, where most kinks are."""
    x = rng.standard_normal(shape)
    return np.where(np.abs(x) < 0.05, x + 0.2, x)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers from 0.5 to 2."""
    return rng.uniform(0.5, 2.0, shape)


def unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers from -0.9 to 0.9, at least 0.05 away from 0."""
    x = rng.uniform(0.05, 0.9, shape)
    return x * rng.choice([-1.0, 1.0], shape)


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A permutation of numbers 0.1 apart around 0: no two are equal, none is 0."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2 + 0.53).reshape(shape) * 0.1


@dataclass(frozen=True)
class Constant:
    """An input that is a constant of the graph: axes, indices, a condition."""

    value: Any


@dataclass(frozen=True)
class Fed:
    """An input that is fed, so that nothing is known about its content when building."""

    value: Any


Input = tuple[int, ...] | Constant | Fed | None
"""A shape (of floats to differentiate with respect to), a constant, a fed tensor, or absent."""


@dataclass(frozen=True)
class Row:
    """One use of one operator."""

    op: str
    inputs: tuple[Input, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 18
    generate: Generator | Sequence[Generator] = normal  # of float inputs: one for all, or one each
    outputs: int = 1
    domain: str = ""
    reference: bool = False  # the reference evaluator computes float64: ONNX Runtime has float32
    kernel: bool = True  # ONNX Runtime has a kernel
    lengths: str = ""  # why lengths have to be known; empty if they need not
    rtol: float = FLOAT32.rtol  # of the finite difference; a looser one needs `reason`
    reason: str = ""
    note: str = ""  # tells rows of one operator apart in test names
    differentiable: int | None = None  # how many outputs get a gradient; None: all floats

    def __str__(self) -> str:
        """Name the row in a test's name."""
        parts = [self.op, *(_describe(i) for i in self.inputs)]
        parts += [f"{k}={v}" for k, v in self.attributes.items()]
        return "-".join([*parts, *([self.note] if self.note else []), f"v{self.opset}"])

    def floats(self) -> dict[str, Array]:
        """Return the float inputs by name: float64."""
        rng = np.random.default_rng(7)
        made: dict[str, Array] = {}
        for index, given in enumerate(self.inputs):
            if isinstance(given, tuple):
                chosen = self.generate
                generate = chosen[index] if isinstance(chosen, Sequence) else chosen
                made[f"x{index}"] = np.asarray(generate(rng, given), np.float64)
        return made

    def fed(self) -> dict[str, Array]:
        """Return the tensors that are fed and not differentiated."""
        return {
            f"x{index}": _array(given.value)
            for index, given in enumerate(self.inputs)
            if isinstance(given, Fed)
        }


def over(opsets: Sequence[int], *args: Any, **kwargs: Any) -> list[Row]:
    """Return one row per opset."""
    return [Row(*args, opset=opset, **kwargs) for opset in opsets]


def second_views(rows: Iterable[Row]) -> list[Any]:
    """Return rows as parameters of a test that looks at them again; most of them are slow.

    Each row has its difference quotient with known lengths. That unknown lengths and float32 do
    too is a matter of how a rule makes its nodes: the fast suite looks at one row of each
    operator, set of attributes, mode and kind of inputs, and the slow one at all.
    """
    seen: set[Any] = set()
    found: list[Any] = []
    for row in rows:
        modes = sorted((k, v if isinstance(v, str) else "") for k, v in row.attributes.items())
        key = (row.domain, row.op, *modes, *map(type, row.inputs))
        found.append(pytest.param(row, marks=[pytest.mark.slow] if key in seen else []))
        seen.add(key)
    return found


def _describe(given: Input) -> str:
    if isinstance(given, tuple):
        return "x".join(map(str, given)) or "scalar"
    if given is None:
        return "none"
    content = "_".join(map(str, _array(given.value).reshape(-1)[:6].tolist()))
    return f"{'fed' if isinstance(given, Fed) else ''}[{content}]"


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.size else array.astype(np.int64)


def forward(row: Row, dtype: ir.DataType, *, static: bool) -> ir.Model:
    """Return the model y0, .. = op(x0, ..); lengths are recorded only if `static`."""
    inputs: list[ir.Value | None] = []
    graph_inputs: list[ir.Value] = []
    initializers: list[ir.Value] = []
    floats = row.floats()
    for index, given in enumerate(row.inputs):
        name = f"x{index}"
        if given is None:
            inputs.append(None)
            continue
        array = floats[name] if isinstance(given, tuple) else _array(given.value)
        if name in floats or (array.dtype == np.float64):
            array = array.astype(dtype.numpy())
        shape = ir.Shape(array.shape if static else [None] * array.ndim)
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape)
        if isinstance(given, Constant):
            value.const_value, value.shape = tensor, ir.Shape(array.shape)
            initializers.append(value)
        else:
            graph_inputs.append(value)
        inputs.append(value)
    node = ir.Node(
        row.domain,
        row.op,
        inputs,
        ir.convenience.convert_attributes(dict(row.attributes)),
        outputs=[ir.Value(name=f"y{k}") for k in range(row.outputs)],
        name="node",
    )
    opsets = {"": row.opset} | ({row.domain: 1} if row.domain else {})
    graph = ir.Graph(
        graph_inputs,
        node.outputs,
        nodes=[node],
        initializers=initializers,
        opset_imports=opsets,
        name="forward",
    )
    return ir.Model(graph, ir_version=_IR_VERSION[row.opset])


def differentiate(model: ir.Model, wrt: Sequence[str], differentiable: int | None = None) -> None:
    """Add inputs u0, .. for the gradients of the outputs and outputs g.. for those of `wrt`."""
    prepare_gradients(model)
    b = Builder(model)
    graph = model.graph
    seeds: dict[ir.Value, ir.Value] = {}
    for index, output in enumerate(list(graph.outputs)[:differentiable]):
        if output.dtype is not None and output.dtype.is_floating_point():
            seed = ir.Value(name=f"u{index}", type=output.type, shape=output.shape)
            graph.inputs.append(seed)
            seeds[output] = seed
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    targets = [values[name] for name in wrt]
    for name, found in zip(wrt, gradients(b, seeds, targets), strict=True):
        assert found is not None, f"no gradient for {name}"
        gradient = dense(b, found)
        output = b.op("Identity", gradient)
        output.name = f"g_{name}"
        graph.outputs.append(output)


def dense(b: Builder, gradient: ir.Value | IndexedSlices) -> ir.Value:
    """Return the dense form of a gradient."""
    if isinstance(gradient, ir.Value):
        return gradient
    from amp_rewrite.grad.scatter import scatter_rows

    zero = np.zeros(1, b.type_of(gradient.values).numpy())
    zeros = b.op("ConstantOfShape", gradient.dense_shape, value=zero)
    return scatter_rows(b, zeros, gradient.indices, gradient.values)


Run = Callable[[list[str], dict[str, Array]], list[Array]]


class Erf(OpRun):
    """Erf in the type of its input; the reference evaluator's own returns float32."""

    def _run(self, x: Array) -> tuple[Array]:
        return (_erf(x),)


class Gelu(OpRun):
    """Gelu in the type of its input; the reference evaluator's own uses its Erf."""

    def _run(self, x: Array, approximate: str = "none") -> tuple[Array]:
        inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
        share = np.tanh(inner) if approximate == "tanh" else _erf(x / np.sqrt(2))
        return (0.5 * x * (1 + share),)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _reference(proto: onnx.ModelProto) -> ReferenceEvaluator:
    return ReferenceEvaluator(proto, new_ops=[Erf, Gelu, *OPERATORS])


def runner(model: ir.Model, row: Row, dtype: ir.DataType) -> Run:
    """Return a function that runs a model in ONNX Runtime, else in the reference evaluator."""
    proto = to_proto(model)

    def evaluate(names: list[str], feeds: dict[str, Array]) -> list[Array]:
        return [np.asarray(a) for a in evaluator.run(names, feeds)]

    if row.reference and dtype is ir.DataType.DOUBLE:
        evaluator = _reference(proto)
        return evaluate
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session: Any = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except runtime_errors.NotImplemented:
        if dtype is not ir.DataType.DOUBLE:
            raise
        if row.op == "Conv" and "auto_pad" in row.attributes:
            needs("onnx", (1, 23), "pads a Conv wrongly in its reference evaluator")
        evaluator = _reference(proto)
        return evaluate
    return session.run


@dataclass(frozen=True)
class Differentiated:
    """A row's model with gradients, and what to feed it."""

    run: Run
    floats: dict[str, Array]
    others: dict[str, Array]
    outputs: list[str]
    seeds: dict[str, Array]

    def loss(self, floats: Mapping[str, Array]) -> float:
        """Return <u, f(x)>."""
        found = self.run(self.outputs, {**self.others, **floats, **self.seeds})
        pairs = zip(found, self.seeds.values(), strict=True)
        return float(sum(np.sum(y * u) for y, u in pairs))

    def gradients(self) -> dict[str, Array]:
        """Return vjp(u) for each float input."""
        feeds = {**self.others, **self.floats, **self.seeds}
        found = self.run([f"g_{name}" for name in self.floats], feeds)
        return dict(zip(self.floats, found, strict=True))


def prepare(row: Row, dtype: ir.DataType, *, static: bool) -> Differentiated:
    """Build, differentiate and load a row's model; seeds are random."""
    needs_opset(row.opset)
    model = forward(row, dtype, static=static)
    differentiate(model, list(row.floats()), row.differentiable)
    run = runner(model, row, dtype)
    rng = np.random.default_rng(11)
    kind = dtype.numpy()
    floats = {name: x.astype(kind) for name, x in row.floats().items()}
    others = {k: v.astype(kind) if v.dtype == np.float64 else v for k, v in row.fed().items()}
    names = [f"y{k}" for k in range(row.outputs)]
    seeded = [name for name in names if f"u{name[1:]}" in {v.name for v in model.graph.inputs}]
    plain = runner(forward(row, dtype, static=static), row, dtype)
    results = plain(seeded, {**others, **floats})
    seeds = {
        f"u{name[1:]}": np.asarray(rng.standard_normal(y.shape), y.dtype)
        for name, y in zip(seeded, results, strict=True)
    }
    return Differentiated(run, floats, others, seeded, seeds)


def check_difference(row: Row, *, static: bool) -> None:
    """Compare <v, vjp(u)> with central differences in float64, each input by itself."""
    at = prepare(row, ir.DataType.DOUBLE, static=static)
    rng = np.random.default_rng(13)
    for name, gradient in at.gradients().items():
        x = at.floats[name]
        assert gradient.shape == x.shape, f"{name}: shape {gradient.shape} for {x.shape}"
        assert gradient.dtype == x.dtype
        direction = rng.standard_normal(x.shape)
        ahead = at.loss({**at.floats, name: np.asarray(x + STEP * direction)})
        behind = at.loss({**at.floats, name: np.asarray(x - STEP * direction)})
        numeric, exact = (ahead - behind) / (2 * STEP), float(np.sum(direction * gradient))
        scale = float(np.sum(np.abs(direction * gradient)))
        allowed = row.rtol * scale + FLOAT32.atol
        assert abs(numeric - exact) <= allowed, f"{name}: {exact}, by differences {numeric}"


def check_float32(row: Row) -> None:
    """Compare the gradients in float32 in ONNX Runtime with those in float64."""
    known = bool(row.lengths)
    exact = prepare(row, ir.DataType.DOUBLE, static=known).gradients()
    for name, found in prepare(row, ir.DataType.FLOAT, static=known).gradients().items():
        assert found.dtype == np.float32
        scale = max(1.0, float(np.abs(exact[name]).max(initial=0)))
        # A gradient is a chain of a few roundings and a sum; rtol is four roundings.
        worst = float(np.abs(found - exact[name]).max(initial=0))
        assert worst <= 32 * FLOAT32.rtol * scale, f"{name}: off by {worst}"
