"""What a step says about its backward pass: where it begins and what it gives."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.errors import StepError
from amp_rewrite.training.step.read_info import read_info
from amp_rewrite.training.step.step_info import StepInfo


def step_of(**arguments: Any) -> tuple[ir.Model, StepInfo]:
    model = amp.load(train_models.mlp((8, 16, 3)))
    optimizer = amp.optimizers.Adam(1e-3, **arguments)
    step = amp.build_step(optimizer.minimize(amp.value(model, "loss")))
    return step, read_info(step)


@pytest.mark.parametrize("arguments", [{}, {"clipnorm": 1.0}], ids=["plain", "clipped"])
def test_every_variable_has_a_gradient_that_is_a_value_of_the_step(arguments: dict):
    step, info = step_of(**arguments)
    names = {v.name for node in step.graph for v in node.outputs}
    assert info.gradients is not None
    assert set(info.gradients) == {s.name for s in info.states if s.role == "variable"}
    assert set(info.gradients.values()) <= names


def test_the_seed_is_a_constant_that_nothing_but_the_backward_pass_reads():
    step, info = step_of()
    seed = step.graph.initializers[info.seed or ""]
    assert {use.node.metadata_props["amp_rewrite.part"] for use in seed.uses()} == {"gradient"}


def test_two_backward_passes_have_no_seed_in_common():
    model = amp.load(train_models.mlp((8, 16, 3)))
    loss, optimizer = amp.value(model, "loss"), amp.optimizers.GradientDescent(0.1)
    first = optimizer.compute_gradients(loss, var_list=["last.weight"])
    second = optimizer.compute_gradients(loss * 2.0, var_list=["layer0.weight"])
    info = read_info(amp.build_step(optimizer.apply_gradients([*first, *second])))
    assert info.seed is None
    assert info.gradients is None


def test_a_step_without_the_next_value_of_a_state_is_refused_by_name() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float loss) <float[2] w = {1, 2}> {
            p = Mul (x, w)  loss = ReduceSum <keepdims = 0> (p) }""")
    loss = amp.value(amp.load(proto), "loss")
    step = amp.build_step(amp.optimizers.GradientDescent(0.1).minimize(loss))
    key = "amp_rewrite.step"
    step.metadata_props[key] = step.metadata_props[key].replace('"output": "', '"output": "no ')
    with pytest.raises(
        StepError, match=r"states\[0\]\.output; found 'no w:next'; expected the name"
    ):
        amp.TrainingSession(step).run({"x": np.ones(2, np.float32)})
