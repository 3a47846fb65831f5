"""Models are upgraded to an opset at which 16-bit sums can be emulated."""

from __future__ import annotations

import onnx.parser

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.numerics.repaint.raised_for_sums import raised_for_sums

WEBGPU = targets.find("webgpu")

OLD = """<ir_version: 7, opset_import: ["" : OPSET]> g (float[1,4] x, bool c) => (float[1,2] y) {
  [up] s = Upsample<mode = "nearest">(x, scales)
  [soft] t = Softmax<axis = 1>(s)
  [choice] h = If(c) <
    then_branch = yes () => (float[1,4] a) { [same] b = Neg(t) [last] a = Neg(b) },
    else_branch = no () => (float[1,4] a) { [same] b = Neg(t) [last] a = Neg(b) }
  >
  [parts] y, z = Split<axis = 1>(h)
}""".replace("=> (float[1,2] y) {", "=> (float[1,2] y) <float[2] scales = {1, 1}> {")


def test_an_old_model_is_upgraded() -> None:
    model = amp.load(onnx.parser.parse_model(OLD.replace("OPSET", "9")))
    raised = raised_for_sums(model, WEBGPU, FLOAT16)
    assert raised.graph.opset_imports[""] == 13
    assert "Resize" in {node.op_type for node in raised.graph.all_nodes()}


def test_a_model_that_cannot_be_moved_stays_as_it_is() -> None:
    text = """<ir_version: 8, opset_import: ["" : 11, "own" : 1]> g (float[2] x) => (float[2] y)
    { y = own.f(x) } <domain: "own", opset_import: ["" : 11]> f (a) => (b) { b = Neg(a) }"""
    model = amp.load(onnx.parser.parse_model(text))
    assert raised_for_sums(model, WEBGPU, FLOAT16) is model
