"""Products of a step without Gemm are the same."""

import numpy as np
import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.spell_out_gemms import spell_out_gemms
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4, 3] x) => (float loss)
    <float[3, 2] w = {{1., -2., 0.5, 3., -0.25, 2.}}, float[2] c = {{1., -1.}}> {{
        y = Gemm<{scaled}>(x, w, c)
        a = Tanh(y)
        loss = ReduceMean<keepdims = 0>(a) }}"""


@pytest.mark.parametrize(("scaled", "left"), [("alpha = 1.0", 0), ("alpha = 0.5", 2)])
def test_they_are_the_same(scaled: str, left: int) -> None:
    model = amp.load(parser.parse_model(TEXT.format(scaled=scaled)))
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    scaling, _ = step.cut(["loss"])
    record_types(scaling)
    plain = clone(scaling)
    spell_out_gemms(plain)
    assert [node.op_type for node in scaling.graph].count("Gemm") == 2
    assert [node.op_type for node in plain.graph].count("Gemm") == left
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    found, expected = (Session(m).run({"x": x}, ["loss", "w:next"]) for m in (plain, scaling))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
