"""What a rule adds to a graph for a row of the gradient table, and the gradients that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from gradient_table import Array, Row, differentiate, forward, runner
from releases import needs_opset

from amp_rewrite.dtypes import FLOAT32


def differentiated(
    row: Row,
    *wrt: str,
    dtype: ir.DataType = ir.DataType.FLOAT,
    opened: Iterable[str] = (),
    rankless: Iterable[str] = (),
) -> ir.Model:
    """Return a row's model with the gradients of inputs, or of all that are floats.

    Of inputs that are `opened` only the rank is recorded, of those that are `rankless` nothing.
    """
    needs_opset(row.opset)
    model = forward(row, dtype, static=True)
    for value in model.graph.inputs:
        if str(value.name) in opened and value.shape is not None:
            value.shape = ir.Shape([None] * len(value.shape.dims))
        if str(value.name) in rankless:
            value.shape = None
    differentiate(model, list(wrt or row.floats()), row.differentiable)
    return model


def nodes(row: Row, *wrt: str, **known: Any) -> list[ir.Node]:
    """Return the nodes that a row's gradients take, in order; see `differentiated`."""
    model = differentiated(row, *wrt, **known)
    ends = {f"g_{name}" for name in row.floats()}
    made = (n for n in model.graph if (n.name or "").startswith("gradient/"))
    return [node for node in made if node.outputs[0].name not in ends]


def operators(row: Row, *wrt: str, **known: Any) -> list[str]:
    """Return the operators of `nodes`."""
    return [node.op_type for node in nodes(row, *wrt, **known)]


def counts(row: Row, *wrt: str, **known: Any) -> Counter[str]:
    """Return how many nodes of each operator a row's gradients take."""
    return Counter(operators(row, *wrt, **known))


def vjp(
    row: Row, *seeds: npt.ArrayLike, dtype: ir.DataType = ir.DataType.FLOAT, **known: Any
) -> dict[str, Array]:
    """Return the gradients of a row's inputs, as a runtime computes them.

    The seeds arrive at the outputs; random numbers unless given.
    """
    model = differentiated(row, dtype=dtype, **known)
    kind = dtype.numpy()
    feeds = {name: x.astype(kind) for name, x in row.floats().items()}
    feeds |= {k: x.astype(kind) if x.dtype == np.float64 else x for k, x in row.fed().items()}
    given = [np.asarray(seed, kind) for seed in seeds] or _random(row, dtype, feeds)
    arriving = [v.name for v in model.graph.inputs if (v.name or "").startswith("u")]
    feeds |= dict(zip(map(str, arriving), given, strict=True))
    names = [*row.floats()]
    found = runner(model, row, dtype)([f"g_{name}" for name in names], feeds)
    return dict(zip(names, found, strict=True))


def _random(row: Row, dtype: ir.DataType, feeds: dict[str, Array]) -> list[Array]:
    """Return random numbers in the shapes of the outputs that get gradients."""
    plain = forward(row, dtype, static=True)
    names = [f"y{k}" for k in range(row.outputs)][: row.differentiable]
    results = runner(plain, row, dtype)(names, feeds)
    rng = np.random.default_rng(11)
    floats = [y for y in results if y.dtype.kind == "f"]
    return [np.asarray(rng.standard_normal(y.shape), y.dtype) for y in floats]


def check_vjp(row: Row, seeds: list[Any], expected: list[Any], **known: Any) -> None:
    """Compare the gradients of a row's inputs, in order, with numbers."""
    found = vjp(row, *seeds, **known)
    for gradient, numbers in zip(found.values(), expected, strict=True):
        close(gradient, np.asarray(numbers))


def check_opened(row: Row, *opened: str) -> None:
    """Compare gradients where lengths of inputs are not known with those where all are."""
    expected = vjp(row)
    for name, gradient in vjp(row, opened=opened).items():
        close(gradient, expected[name])
    check_recorded(row)
    check_recorded(row, opened=opened)


def check_recorded(row: Row, **known: Any) -> None:
    """Compare the lengths that are recorded of what gradients take with those that it has."""
    model = differentiated(row, **known)
    made = [v for n in model.graph if (n.name or "").startswith("gradient/") for v in n.outputs]
    inside = [v for v in made if v.uses() and v.shape is not None and v not in model.graph.outputs]
    recorded = {str(v.name): list(v.shape) for v in inside if v.shape is not None}
    model.graph.outputs.extend(inside)
    feeds = {name: x.astype(np.float32) for name, x in row.floats().items()}
    feeds |= {k: x.astype("f") if x.dtype == np.float64 else x for k, x in row.fed().items()}
    arriving = [str(v.name) for v in model.graph.inputs if str(v.name).startswith("u")]
    feeds |= dict(zip(arriving, _random(row, ir.DataType.FLOAT, feeds), strict=True))
    found = runner(model, row, ir.DataType.FLOAT)([*recorded], feeds)
    for (name, lengths), array in zip(recorded.items(), found if recorded else [], strict=True):
        pairs = zip(array.shape, lengths, strict=True)
        agrees = all(n == d for n, d in pairs if isinstance(d, int))
        assert agrees, f"{name}: recorded {lengths}, but has {array.shape}"


def close(found: Array, expected: Array) -> None:
    """Compare two tensors in float32."""
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(
        found, expected, rtol=32 * FLOAT32.rtol, atol=32 * FLOAT32.rtol * scale
    )
