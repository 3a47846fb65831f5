"""What inject_loss_scaling refuses, and what a graph may look like; graphs are written by hand."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.errors import StepError
from amp_rewrite.loss_scaling import LossScaleOptimizer, LossScaleValueError
from amp_rewrite.training.inject import InjectError, inject_loss_scaling
from amp_rewrite.training.step.read_info import read_info

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
STEP = """
    g (float[2, 3] x, float[3] w, float m, int64 count) => (float loss, float[3] w_new)
    <float[3] w = {1, 2, 3}, float m = {0}, int64 count = {0}, float one = {1},
     float rate = {0.1}, int64 grow = {1}, float half = {0.5}, int64[1] axes = {0}>
    {
        h = Mul (x, w)
        y = Tanh (h)
        loss = ReduceSum <keepdims: int = 0> (y)
        %s
        %s
        m_new = Add (m, half)
        count_new = Add (count, grow)
    }"""
BACKWARD = """
        seed = Identity (one)
        yy = Mul (y, y)
        slope = Sub (one, yy)
        gh = Mul (seed, slope)
        gx = Mul (gh, x)
        gw = ReduceSum <keepdims: int = 0> (gx, axes)"""
UPDATE = """
        delta = Mul (gw, rate)
        w_new = Sub (w, delta)"""
ARGUMENTS: dict[str, Any] = {
    "loss": "loss",
    "seed": "seed",
    "gradients": {"w": "gw"},
    "updates": {"w": "w_new", "m": "m_new", "count": "count_new"},
}
X = np.array([[0.5, -1, 0.25], [1, 0.5, -0.5]], np.float32)


def model(backward: str = BACKWARD, update: str = UPDATE) -> onnx.ModelProto:
    proto = parser.parse_model(HEAD + STEP % (backward, update))
    del proto.graph.value_info[:]
    return proto


def inject(proto: onnx.ModelProto | None = None, **changes: Any) -> Any:
    return inject_loss_scaling(model() if proto is None else proto, **(ARGUMENTS | changes))


def new_weights(step: Any, feeds: dict[str, np.ndarray] | None = None) -> np.ndarray:
    with amp.TrainingSession(step) as session:
        session.run(feeds or {"x": X})
        return session.read_state("w")


def expected() -> np.ndarray:
    w = np.array([1, 2, 3], np.float32)
    gradient = ((1 - np.tanh(X * w) ** 2) * X).sum(axis=0)
    return w - np.float32(0.1) * gradient


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "los"}, r"no value of this name, given as loss.*did you mean 'loss'"),
        ({"seed": "sed"}, r"sed: the model has no value.*given as seed.*did you mean 'seed'"),
        ({"gradients": {"w": "gww"}}, r"given as gradient of w.*did you mean 'gw'"),
        ({"updates": {"w": "w_neu"}}, r"given as next value of w; did you mean .*'w_new'"),
        ({"updates": {"v": "w_new"}}, r"v: the model has no value of this name, given as state"),
        ({"updates": {"h": "w_new"}}, r"h: a state must be a graph input or an initializer"),
        ({"gradients": {"v": "gw"}}, r"v: a variable with a gradient has no update"),
        ({"gradients": {}}, r"gradients is empty"),
        ({"loss": None}, r"loss is not given, and the model does not tell it"),
        ({"seed": None}, r"seed is not given.*pass seed"),
        ({"seed": "count"}, r"count: the seed is not float32; found int64; expected float32"),
        ({"gradients": {"w": "count_new"}}, r"the gradient of w is not float32"),
        ({"updates": {"w": "count_new"}}, r"w: the next value of a state has another type"),
        ({"seed": "rate"}, r"rate: no gradient depends on the seed"),
        ({"seed": "gx", "gradients": {"w": "gh"}}, r"gx: no gradient depends on the seed"),
        (
            {"gradients": {"w": "gw", "m": "slope"}},
            r"slope: a gradient is not on the path from the seed.*gradients of m",
        ),
        ({"gradients": {"m": "gw"}}, r"m: an update does not depend on its gradient"),
        (
            {"gradients": {"w": "gx"}, "seed": "gh"},
            None,
        ),
        (
            {"gradients": {"w": "gh"}},
            None,
        ),
        ({"initial": {"v": np.zeros(3)}}, r"v: an initial value belongs to no state"),
        ({"initial": {"w": np.zeros(4)}}, r"w: an initial value has another shape.*\(4,\).*\(3,\)"),
    ],
)
def test_what_does_not_fit_the_graph_is_an_error(changes: dict[str, Any], message: str | None):
    if message is None:  # gradients may be named anywhere on the linear way
        np.testing.assert_allclose(new_weights(inject(**changes)), expected(), rtol=1e-6)
        return
    with pytest.raises(InjectError, match=message):
        inject(**changes)


def test_a_shared_constant_is_no_seed_unless_it_is_one():
    with pytest.raises(InjectError, match=r"sum of a scaled value and one.*a seed that"):
        inject(seed="one")


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ("decay = Mul (w, half)\n gw = Add (gz, decay)", "sum of a scaled value and one that"),
        ("gw = Clip (gz, half, one)", "Clip of a scaled value, which is not linear"),
        ("gw = Floor (gz)", "Floor of a scaled value, which is not linear"),
        ("bad = IsNaN (gz)\n gw = Where (bad, w, gz)", "IsNaN of a scaled value, which is not"),
        (
            "big = Greater (gz, half)\n less = Mul (gz, half)\n gw = Where (big, less, gz)",
            "comparison of a scaled value and one that is not",
        ),
        ("gw = Mul (gz, gz)", "product of two scaled values"),
        ("gw = Div (half, gz)", "division by a scaled value"),
    ],
)
def test_a_gradient_that_is_not_proportional_to_the_seed_is_an_error(extra: str, found: str):
    backward = BACKWARD.replace("gw =", "gz =") + "\n" + extra
    with pytest.raises(InjectError, match=f"does not keep the loss scale.*{found}.*weight decay"):
        inject(model(backward))
    assert inject(model(backward), gradients={"w": "gz"}) is not None


def test_a_ratio_of_scaled_values_is_no_gradient():
    backward = BACKWARD.replace("gw =", "gz =") + "\n n = Abs (gz)\n gw = Div (gz, n)"
    with pytest.raises(InjectError, match="no gradient depends on the seed"):
        inject(model(backward))


def test_a_scaled_value_that_is_not_named_must_not_reach_an_update():
    update = UPDATE + "\n norm = ReduceL2 <keepdims: int = 0> (gx)\n"
    proto = model(update=update)
    proto.graph.node[-2].input[1] = "norm"  # m_new
    with pytest.raises(InjectError, match="gx: a scaled value that is not among the gradients"):
        inject(proto)


def test_a_gradient_may_take_part_in_the_backward_pass_and_in_the_update():
    backward = BACKWARD + "\n gm = ReduceSum <keepdims: int = 0> (gw)"
    proto = model(backward)
    proto.graph.node[-2].input[1] = "gm"  # m_new = m + gm
    step = inject(proto, gradients={"w": "gw", "m": "gm"})
    with amp.TrainingSession(step) as session:
        session.run({"x": X})
        np.testing.assert_allclose(session.read_state("w"), expected(), rtol=1e-6)
        gradient = (np.array([1, 2, 3]) - expected()) / 0.1
        np.testing.assert_allclose(session.read_state("m"), gradient.sum(), rtol=1e-5)


def test_what_reads_the_new_weights_reads_the_conditional_ones():
    proto = model(update=UPDATE + "\n total = ReduceSum <keepdims: int = 0> (w_new)")
    proto.graph.output.append(onnx.helper.make_tensor_value_info("total", 1, []))
    for mode in ("if", "select"):
        with amp.TrainingSession(inject(proto, conditional=mode)) as session:
            bad = X.copy()
            bad[0, 0] = np.inf
            bad[1, 0] = -np.inf
            found = session.run({"x": bad * np.float32(np.nan)}, ["total", "grads_finite"])
            assert not found["grads_finite"]
            assert found["total"] == 6


@pytest.mark.parametrize("mode", ["if", "select"])
def test_a_state_may_remember_another_one(mode: str):
    proto = model()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, np.float32), "old"))
    updates = ARGUMENTS["updates"] | {"old": "w"}
    with amp.TrainingSession(inject(proto, updates=updates, conditional=mode)) as session:
        before = session.state_dict()
        session.run({"x": X})
        after = session.state_dict()
        np.testing.assert_array_equal(after["old"], before["w"])
        np.testing.assert_allclose(after["w"], expected(), rtol=1e-6)
        assert not session.run({"x": X * np.float32(np.nan)})["grads_finite"]
        np.testing.assert_array_equal(session.state_dict()["old"], before["w"])


def test_states_that_are_initializers_only_become_inputs():
    proto = model()
    for name in ("w", "m", "count"):
        proto.graph.input.remove(next(v for v in proto.graph.input if v.name == name))
    step = inject(proto)
    assert {"w", "m", "count"} <= {v.name for v in step.graph.inputs}
    np.testing.assert_allclose(new_weights(step), expected(), rtol=1e-6)


def test_initial_values_can_be_given():
    proto = model()
    proto.graph.initializer.remove(next(t for t in proto.graph.initializer if t.name == "w"))
    with pytest.raises(StepError, match="w: the step has no initial value"):
        amp.TrainingSession(inject(proto))
    step = inject(proto, initial={"w": np.array([1, 2, 3])})
    np.testing.assert_allclose(new_weights(step), expected(), rtol=1e-6)


def test_roles_follow_from_gradients_and_shapes():
    roles = {state.name: state.role for state in read_info(inject()).states}
    assert roles["w"] == "variable"
    assert roles["count"] == roles["m"] == "non_slot"
    assert roles["loss_scale/current_loss_scale"] == "loss_scale"


def test_a_second_injection_is_an_error():
    step = inject()
    with pytest.raises(InjectError, match="has a loss scale already"):
        inject_loss_scaling(step)
    del step.metadata_props["amp_rewrite.step"]
    with pytest.raises(InjectError, match="has a loss scale already"):
        inject_loss_scaling(step, **ARGUMENTS)


def test_a_step_that_was_built_with_a_loss_scale_is_an_error():
    forward = parser.parse_model(
        HEAD + "g (float[2, 3] x) => (float loss) <float[3] w = {1, 2, 3}> {"
        "h = Mul (x, w)\n loss = ReduceSum <keepdims: int = 0> (h) }"
    )
    optimizer = LossScaleOptimizer(amp.optimizers.GradientDescent(0.1))
    step = amp.build_step(optimizer.minimize(amp.value(amp.load(forward), "loss")))
    with pytest.raises(InjectError, match="the step has a loss scale already"):
        inject_loss_scaling(step)


def test_impossible_options_are_errors():
    with pytest.raises(LossScaleValueError, match="Could not interpret loss scale identifier"):
        inject(loss_scale="dynamical")
    with pytest.raises(amp.AmpError, match="unknown way to make updates conditional"):
        inject(conditional="when")
    with pytest.raises(amp.AmpError, match="unknown precision"):
        inject(precision="float8")


def test_an_old_opset_is_an_error():
    proto = model()
    proto.opset_import[0].version = 12
    for node in proto.graph.node:
        del node.input[2 if node.op_type != "ReduceSum" else 1 :]  # axes are no input yet
    with pytest.raises(InjectError, match=r"opset is too old.*ai.onnx 12.*version_converter"):
        inject(proto)
