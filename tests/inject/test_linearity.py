"""Gradients of this package's own rules are recognised as proportional to their seed."""

import functools
import importlib
from typing import Any

import onnx_ir as ir
import pytest
from gradient_table import differentiate, forward

from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.inject.linearity import proportional
from amp_rewrite.inject.step_dataflow import Dataflow

TABLES = (
    *("convolution", "elementwise", "normalization", "pooling", "products"),
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


@pytest.mark.parametrize("static", [True, False], ids=["static", "open"])
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
