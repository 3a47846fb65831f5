"""What gradient rules emit is on the op lists, and becomes low precision without harm."""

import functools
import importlib

import onnx
import onnx_ir as ir
import pytest
from gradient_table import differentiate, forward, second_views

from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.oplists import ListName, load_lists

TABLES = (
    *("convolution", "rows", "normalization", "pooling", "matrix_products", "recurrent"),
    *("reductions", "resize", "shapes", "softmax"),
)
"""The tests that hold rows of operators."""

NEED_LENGTHS = ("GRU", "LSTM", "RNN")

FILES = [(p, t) for p in ("float16", "bfloat16") for t in ("cuda", "cpu")]


SHARES = ["some", pytest.param("all", marks=pytest.mark.slow)]
"""Of the rows, what the fast suite looks at as a second view, and all."""


@functools.cache
def rows(share="all"):
    """Return every row of the gradient table, or one of each use, in opsets that onnx knows."""
    modules = [importlib.import_module(f"test_{name}") for name in TABLES]
    known = (r for m in modules for r in m.ROWS if r.opset <= onnx.defs.onnx_opset_version())
    every = second_views(known)
    return [view.values[0] for view in every if share == "all" or not view.marks]


@functools.cache
def gradient_of(share, index, static):
    """Return the forward model of a row with its gradients, in float32."""
    row = rows(share)[index]
    model = forward(row, ir.DataType.FLOAT, static=static)
    differentiate(model, list(row.floats()), row.differentiable)
    return model


@functools.cache
def emitted(share="some"):
    """Return (operator, attributes' content) of every node that rules emit with a float port."""
    found = {}
    for index, row in enumerate(rows(share)):
        needs_lengths = row.lengths or row.op in NEED_LENGTHS
        for static in (True,) if needs_lengths else (True, False):
            model = gradient_of(share, index, static)
            types = infer_types(model)
            for node in model.graph.all_nodes():
                ends = [v for v in (*node.inputs, *node.outputs) if v is not None]
                if any(types.get(v) == "tensor(float)" for v in ends):
                    values = {k: a.value for k, a in node.attributes.items() if not a.is_ref()}
                    simple = {k: v for k, v in values.items() if isinstance(v, int | float | str)}
                    opset = model.graph.opset_imports.get("", 13)
                    key = node.domain, node.op_type, tuple(sorted(simple.items()))
                    found.setdefault(key, opset)
    return found


@pytest.mark.parametrize("share", SHARES)
def test_every_operator_that_rules_emit_is_on_a_list(share):
    lists = {file: load_lists(None, precision=file[0], target=file[1]) for file in FILES}
    unknown = {
        f"{domain}::{op} ({file})"
        for (domain, op, attributes), opset in emitted(share).items()
        for file, entries in lists.items()
        if entries.classify(domain, op, opset, dict(attributes)) is None
    }
    assert len(emitted(share)) > 100
    assert not unknown


ON_PURPOSE = {
    ListName.ALLOW: {"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"},
    ListName.DENY: {"CumSum", "Exp", "Pow", "ReduceSum"},
    ListName.INFER: {"Add", "Div", "Mul", "Sigmoid", "Sqrt", "Sub", "Sum", "Tanh"},
    ListName.CLEAR: {"Concat", "Expand", "Gather", "Neg", "Pad", "Sign", "Slice", "Where"},
    ListName.UNLISTED: {"Cast", "Cos", "Sin"},
}
"""List -> operators that the backward pass needs there, in float16 on CUDA."""


def test_operators_of_the_backward_pass_are_on_the_lists_that_they_need():
    lists = load_lists(None, precision="float16", target="cuda")
    found = {}
    for (domain, op, attributes), opset in emitted().items():
        entry = lists.classify(domain, op, opset, dict(attributes))
        found.setdefault(None if entry is None else entry.list, set()).add(op)
    for name, operators in ON_PURPOSE.items():
        assert operators <= found[name], name


def test_a_scatter_that_adds_is_never_low():
    lists = load_lists(None, precision="bfloat16", target="cuda")
    adding = [
        getattr(lists.classify("", op, opset, dict(attributes)), "list", None)
        for (_, op, attributes), opset in emitted().items()
        if op.startswith("Scatter") and dict(attributes).get("reduction") == "add"
    ]
    assert adding
    assert set(adding) == {ListName.UNLISTED}
