"""Models are moved to an opset at which low sums can be emulated, and their nodes found again."""

from __future__ import annotations

import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.repaint.raised_for_sums import places_of, raised_for_sums

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


def test_nodes_are_found_again() -> None:
    model = amp.load(onnx.parser.parse_model(OLD.replace("OPSET", "9")))
    raised = raised_for_sums(model, WEBGPU, FLOAT16)
    assert raised.graph.opset_imports[""] == 13
    before, after = list(model.graph.all_nodes()), list(raised.graph.all_nodes())
    places = places_of(after, before)
    found = [before[place] for place in places if place != ABSENT]
    assert found == list(before), "each once, and in order"
    pairs = [(before[p].op_type, n.op_type) for p, n in zip(places, after, strict=True) if p >= 0]
    assert [new for old, new in pairs if old == "Upsample"] == ["Resize"]
    assert all(old == new for old, new in pairs if old != "Upsample")
    assert [n.op_type for p, n in zip(places, after, strict=True) if p == ABSENT]


@pytest.mark.parametrize(("opset", "target"), [("13", "webgpu"), ("11", "cuda")])
def test_a_model_that_needs_no_newer_opset_stays_as_it_is(opset: str, target: str) -> None:
    text = f'<ir_version: 7, opset_import: ["" : {opset}]> g (float[2] x) => (float[2] y) '
    model = amp.load(onnx.parser.parse_model(text + "{ y = Neg(x) }"))
    assert raised_for_sums(model, targets.find(target), FLOAT16) is model


def test_a_model_that_cannot_be_moved_stays_as_it_is() -> None:
    text = """<ir_version: 8, opset_import: ["" : 11, "own" : 1]> g (float[2] x) => (float[2] y)
    { y = own.f(x) } <domain: "own", opset_import: ["" : 11]> f (a) => (b) { b = Neg(a) }"""
    model = amp.load(onnx.parser.parse_model(text))
    assert raised_for_sums(model, WEBGPU, FLOAT16) is model
