"""The model that is painted again has the names that rules of nodes are about."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.plan.options import RewriteOptions

HEADER = '<ir_version: 9, opset_import: ["" : 18, "own" : 1]>'
WEIGHT = ",".join(["0.5"] * 16)
HOT = f"""{HEADER} g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {{{WEIGHT}}}> {{
  a = MatMul(x, w) e = Exp(a) b = MatMul(e, w) t = Transpose(b)
  u = Transpose(t) y = MatMul(u, w) }}"""
INNER = f"""{HEADER} g (float[2,4] x, bool c) => (float[2,4] y) <float[4,4] w = {{{WEIGHT}}}> {{
  a = MatMul(x, w) b = own.f(a)
  y = If (c) <then_branch = yes () => (float[2,4] p) {{ p = Neg(b) }},
    else_branch = no () => (float[2,4] q) {{ [MatMul_0] r = Abs(b) q = MatMul(r, w) }}>
  }}
  <opset_import: ["" : 18], domain: "own"> f (h) => (k) {{ i = Relu(h) k = Neg(i) }}"""
DATA = [{"x": np.full((2, 4), 5 + n, np.float32)} for n in (0.1, 0.2)]


@pytest.mark.parametrize("text", [HOT, INNER])
@pytest.mark.parametrize("inline", [False, True])
def test_nodes_of_objects_are_called_as_those_of_messages(text: str, *, inline: bool) -> None:
    proto = onnx.parser.parse_model(text)
    model = ir.from_proto(proto)
    options = RewriteOptions(inline_functions=inline)
    of_message = [node.name for node in Repainter.of(proto, options).nodes]
    assert [node.name for node in Repainter.of(model, options).nodes] == of_message
    assert all(of_message)
    assert not any(node.name for node in model.graph if node.op_type == "MatMul")  # not changed


def test_what_data_forbid_is_found_in_objects_too() -> None:
    proto = onnx.parser.parse_model(HOT)
    data = [{"x": feeds["x"] + 1} for feeds in DATA]
    of_message = amp.convert(proto, data)
    found = amp.convert(ir.from_proto(proto), data)
    assert found.calibration is not None
    assert of_message.calibration is not None
    assert found.calibration.nodes == of_message.calibration.nodes != ()
    assert (found.ok, found.verdict) == (True, of_message.verdict)


def test_tuning_names_the_nodes_of_objects() -> None:
    proto = onnx.parser.parse_model(HOT)
    data = [{"x": feeds["x"] / 10 + np.float32(0.01)} for feeds in DATA]
    found = amp.tune(ir.from_proto(proto), data, Tolerance("max-relative", 1e-5), budget=20)
    assert found.keep == amp.tune(proto, data, Tolerance("max-relative", 1e-5), budget=20).keep
    assert found.keep
    assert all(found.keep)
