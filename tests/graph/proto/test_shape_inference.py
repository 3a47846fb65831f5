"""Inference of shapes has one gate, which an operator that ends onnx's process does not pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.convert_opset import convert_opset, mend_shapes
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.proto.shape_inference import HIDDEN, inferred

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>'
BLIND = "q = my.Op(x) e = EyeLike<dtype = 1>(q)"
INSIDE = """q = my.Op(x) e = If (b) <
    then_branch = t () => (float[2,4] n) { i = EyeLike<dtype = 1>(q) n = Add(i, x) },
    else_branch = f () => (float[2,4] m) { m = Neg(x) }
>"""


def model(nodes: str) -> onnx.ModelProto:
    text = f"{HEAD} g (float[2,4] x, bool b) => (float[2,4] y) {{ {nodes} y = Add(e, x) }}"
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("nodes", [BLIND, INSIDE])
@pytest.mark.parametrize(
    "asks",
    [
        lambda proto: mend_shapes(load(proto)) == (),
        lambda proto: amp.rewrite(proto).report_of_sizes(),
    ],
)
def test_every_part_that_infers_shapes_survives_it(
    nodes: str, asks: Callable[[onnx.ModelProto], Any]
) -> None:
    assert asks(model(nodes))


@pytest.mark.parametrize("nodes", [BLIND, INSIDE])
def test_a_model_whose_opset_onnx_would_not_survive_converting_is_refused(nodes: str) -> None:
    with pytest.raises(OptionError, match="nothing is known of the type that EyeLike reads"):
        convert_opset(load(model(nodes)), 22)


def test_an_operator_of_a_known_type_is_converted_and_keeps_its_name() -> None:
    proto = model("q = Abs(x) e = EyeLike<dtype = 1>(q)")
    before = proto.SerializeToString()
    assert [n.op_type for n in convert_opset(load(proto), 22).graph] == ["Abs", "EyeLike", "Add"]
    assert {i.name for i in inferred(proto).graph.value_info} >= {"q", "e"}
    assert proto.SerializeToString() == before


def test_no_part_calls_onnx_s_inference_past_the_gate() -> None:
    package = Path(amp.__file__).parent
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py")}
    calls = {path.stem for path, text in texts.items() if "shape_inference.infer_" in text}
    assert calls == {"shape_inference", "annotate"}  # annotate asks about single nodes


@pytest.mark.parametrize("nodes", [BLIND, "q = Abs(x) e = EyeLike<dtype = 1>(q)"])
def test_a_model_with_one_is_trained(nodes: str) -> None:
    proto = model(nodes)
    proto.graph.node[-1].input[1] = "w"
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4], [1.0] * 4)
    proto.graph.initializer.append(weight)
    loss = amp.losses.mean_squared_error(amp.load(proto), "y", "t")
    step = amp.optimizers.GradientDescent(0.1).minimize(loss)
    kinds = {node.op_type for node in step.graph.model.graph}
    assert "EyeLike" in kinds
    assert HIDDEN not in kinds
