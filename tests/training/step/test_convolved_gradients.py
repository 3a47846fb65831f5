"""Gradients of weights by one Conv are those by products, and take fewer nodes."""

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.step_part import source_in
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.rewriting.plan.options import changed
from amp_rewrite.runtimes.ort.sessions import Session, session_options
from amp_rewrite.training.step.convolved_gradients import convolve_gradients
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[4, {channels}, {size}] x) => (float loss) {{
        a = Conv<{window}>(x, w)
        b = Tanh(a)
        loss = ReduceMean<keepdims = 0>(b) }}"""


def models(
    channels: int,
    window: str,
    precision: str = "float32",
    group: int = 1,
    opset: int = 17,
    size: tuple[int, ...] = (9, 8),
) -> tuple[ir.Model, ir.Model, Any]:
    """Return a step with an own gradient of w, the same by Conv, and feeds for both."""
    proto = parser.parse_model(
        TEXT.format(channels=channels, window=window, opset=opset, size=", ".join(map(str, size)))
    )
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, channels // group, *[3] * len(size))).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model = amp.load(proto)
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    options = changed(None, target="openvino", precision="bfloat16")
    products, _ = in_precision(step, precision, options).cut(["loss"])
    record_types(products)
    convolved = clone(products)
    convolve_gradients(convolved)
    x = rng.normal(size=(4, channels, *size)).astype(np.float32)
    return products, convolved, {"x": x}


def convolutions(model: ir.Model) -> int:
    return sum(
        node.op_type == "Conv" and source_in(node.metadata_props) is not None
        for node in model.graph
    )


def _ran(model: ir.Model, feeds: Any) -> list[Any]:
    """Run a step as it is: ONNX Runtime 1.32.0 breaks a Conv whose second input is padded."""
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return Session(model, options=options).run(feeds, ["loss", "w:next"])


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
    found, expected = (_ran(m, feeds) for m in (convolved, products))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "window", "padded"),
    [
        ((7,), "pads = [1, 0], strides = [2], dilations = [2]", False),
        ((4, 5, 6), "pads = [1, 0, 1, 1, 2, 0], strides = [1, 2, 1], dilations = [1, 1, 2]", False),
        ((32, 32), "pads = [1, 1, 1, 1]", True),
        ((65, 64), "pads = [0, 1, 2, 1], strides = [2, 2], dilations = [2, 1]", True),
    ],
)
def test_any_rank_and_rows_that_share_lines_of_the_cache(
    size: tuple[int, ...], window: str, padded: bool
) -> None:
    products, convolved, feeds = models(3, window, size=size)
    assert convolutions(convolved) == 1
    pads = [
        n for n in convolved.graph if n.op_type == "Pad" and source_in(n.metadata_props) is not None
    ]
    assert len(pads) == padded
    found, expected = (_ran(m, feeds) for m in (convolved, products))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_low_products_become_float32_convolutions_before_opset_22() -> None:
    products, convolved, _ = models(32, "pads = [1, 1, 1, 1]", precision="bfloat16")
    assert convolutions(products) == 0
    conv = [
        n
        for n in convolved.graph
        if n.op_type == "Conv" and source_in(n.metadata_props) is not None
    ]
    assert [n.inputs[0].dtype for n in conv if n.inputs[0] is not None] == [ir.DataType.FLOAT]


def test_low_products_become_low_convolutions_from_opset_22_on() -> None:
    products, convolved, _ = models(32, "pads = [1, 1, 1, 1]", precision="bfloat16", opset=22)
    assert convolutions(products) == 0
    conv = [
        n
        for n in convolved.graph
        if n.op_type == "Conv" and source_in(n.metadata_props) is not None
    ]
    types = [value.dtype for n in conv for value in n.inputs if value is not None]
    assert types == [ir.DataType.BFLOAT16] * 2
