"""The gradient of a pooling of 2 x 2 is the same by DepthToSpace, and without Concat."""

import collections

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.blocks_to_space import move_blocks
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[3, 5, 6, 8] x) => (float loss)
    <float[5, 1, 1] w = {{1., -2., 0.5, 3., -0.25}}> {{
        a = Mul(x, w)
        b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)
        c = Mul(b, b)
        loss = ReduceMean<keepdims = 0>(c) }}"""


def counts(model: ir.Model) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in model.graph)


@pytest.mark.parametrize("opset", [12, 17, 22])
def test_it_is_the_same(opset: int) -> None:
    model = amp.load(parser.parse_model(TEXT.format(opset=opset)))
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    joined, _ = step.cut(["loss"])
    record_types(joined)
    moved = clone(joined)
    move_blocks(moved)
    assert counts(joined)["DepthToSpace"] == 0
    assert counts(moved)["DepthToSpace"] == 1
    assert counts(moved)["Concat"] == counts(joined)["Concat"] - 2
    x = np.random.default_rng(0).integers(-2, 3, (3, 5, 6, 8)).astype(np.float32)  # with ties
    found, expected = (Session(m).run({"x": x}, ["loss", "w:next"]) for m in (moved, joined))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
