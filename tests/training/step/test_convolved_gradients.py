"""Gradients of weights by one Conv are those by products, and take fewer nodes."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.part import source_of
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.rewriting.plan.options import changed
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.convolved_gradients import convolve_gradients
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[4, {channels}, 9, 8] x) => (float loss) {{
        a = Conv<{window}>(x, w)
        b = Tanh(a)
        loss = ReduceMean<keepdims = 0>(b) }}"""


def models(
    channels: int, window: str, precision: str = "float32", group: int = 1
) -> tuple[ir.Model, ir.Model, Any]:
    """Return a step with an own gradient of w, the same by Conv, and feeds for both."""
    proto = parser.parse_model(TEXT.format(channels=channels, window=window, opset=17))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, channels // group, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model = amp.load(proto)
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    options = changed(None, target="openvino", precision="bfloat16")
    products, _ = in_precision(step, precision, options).cut(["loss"])
    record_types(products)
    convolved = clone(products)
    convolve_gradients(convolved)
    x = rng.normal(size=(4, channels, 9, 8)).astype(np.float32)
    return products, convolved, {"x": x}


def convolutions(model: ir.Model) -> int:
    return sum(node.op_type == "Conv" and source_of(node) is not None for node in model.graph)


@pytest.mark.parametrize("channels", [3, 16, 32])
@pytest.mark.parametrize(
    "window",
    [
        "pads = [1, 1, 1, 1]",
        "pads = [0, 1, 2, 0], strides = [2, 1]",
        "strides = [2, 3], dilations = [1, 2]",
    ],
)
def test_they_are_the_same(channels: int, window: str) -> None:
    products, convolved, feeds = models(channels, window)
    assert convolutions(products) == 0
    assert convolutions(convolved) == 1
    assert len(convolved.graph) <= len(products.graph) + 2
    found, expected = (Session(m).run(feeds, ["loss", "w:next"]) for m in (convolved, products))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_low_products_become_float32_convolutions_before_opset_22() -> None:
    products, convolved, _ = models(32, "pads = [1, 1, 1, 1]", precision="bfloat16")
    assert convolutions(products) == 0
    conv = [n for n in convolved.graph if n.op_type == "Conv" and source_of(n) is not None]
    assert [n.inputs[0].dtype for n in conv if n.inputs[0] is not None] == [ir.DataType.FLOAT]


def test_groups_are_left_as_they_are() -> None:
    _, convolved, _ = models(4, "pads = [1, 1, 1, 1], group = 2", group=2)
    assert convolutions(convolved) == 0
