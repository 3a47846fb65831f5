"""Gradients of this package's own rules are recognised as proportional to their seed."""

import functools
import importlib
from typing import Any

import onnx_ir as ir
import pytest
from gradient_table import differentiate, forward

from amp_rewrite.errors import InjectError
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.training.inject.linearity import proportional
from amp_rewrite.training.inject.regions import Dataflow

TABLES = (
    *("convolution", "rows", "normalization", "pooling", "matrix_products"),
    *("reductions", "resize", "shapes", "softmax"),
)


@functools.cache
def rows(table: str) -> list[Any]:
    """Return the rows of the gradient table of one family of operators."""
    return importlib.import_module(f"test_{table}").ROWS


def backward(row: Any, *, static: bool) -> ir.Model:
    model = forward(row, ir.DataType.FLOAT, static=static)
    differentiate(model, list(row.floats()), row.differentiable)
    return model


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "static", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["static", "open"]
)
@pytest.mark.parametrize("table", TABLES)
def test_every_rule_keeps_the_scale_of_its_seed(table: str, static: bool):
    checked = 0
    for row in rows(table):
        if not static and row.lengths:
            continue
        model = backward(row, static=static)
        values = {v.name: v for v in (*model.graph.inputs, *model.graph.outputs)}
        gradients = [v for name, v in values.items() if str(name).startswith("g_")]
        if "u1" in values:
            continue  # a sum over two seeds is proportional to neither
        flow, seed = Dataflow(model.graph), values["u0"]
        after = flow.after([seed], within=ancestors(gradients))
        found = set(proportional((n for n in model.graph if n in after), seed))
        assert all(g in found or not after & ancestors([g]) for g in gradients), row
        checked += 1
    assert checked


def model_of(nodes: str) -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2, 2] x, float[2, 2] s, int64[2, 2] i) => (float[a, b] y)
        <float half = {{0.5}}, float[4] sizes = {{1, 1, 2, 2}}> {{ {nodes} }}"""
    )


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ('y = ScatterElements <axis = 0, reduction = "mul"> (s, i, x)', "ScatterElements of a"),
        ("y = GridSample (x, s)", "GridSample of a"),
        ("y = Dropout (x, s)", "Dropout of a"),
        ("y = Clip (s, half)", "Clip of a"),
        ("y = Mul (s, s)", "a product of two scaled values"),
        ("y = PRelu (s, s)", "a product of two scaled values"),
        ("y = Concat <axis = 0> (x, s)", "a sum of a scaled value and one that is not"),
    ],
)
def test_what_does_not_keep_the_scale_is_refused(nodes: str, problem: str):
    model = model_of(nodes)
    with pytest.raises(InjectError, match=problem):
        proportional(model.graph, model.graph.inputs[1])


@pytest.mark.parametrize(
    "nodes",
    [
        "y = ScatterElements <axis = 0> (s, i, s)",
        "n = Shape (x) zero = ConstantOfShape <value = float[1] {0}> (n) b = Less (x, half) "
        "y = Where (b, zero, s)",
        "y = PRelu (s, half)",
        "y = Gather (s, i)",
        "zero = ConstantOfShape <value = float[1] {0}> (n) n = Shape (x) w = Expand (zero, n) "
        "y = Concat <axis = 0> (w, s)",
        "y = CastLike (s, x)",
    ],
)
def test_what_keeps_the_scale_is_proportional(nodes: str):
    model = model_of(nodes)
    model.graph.sort()
    found = proportional(model.graph, model.graph.inputs[1])
    assert next(v for v in model.graph.outputs) in found


def test_the_scale_of_what_gives_only_a_type_does_not_matter():
    model = model_of("y = CastLike (x, s)")
    assert proportional(model.graph, model.graph.inputs[1]) == ()
