"""A loss scale injected into a training graph whose derivative onnx-ad made."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.loss_scaling import DynamicLossScale
from amp_rewrite.training.inject import InjectError, inject_loss_scaling
from amp_rewrite.training.step.read_info import read_info

FOLDER = Path(__file__).parent / "foreign"
FILE = FOLDER / "onnx_ad_step.onnx"
WEIGHTS = ("w1", "b1", "w2", "b2")
ARGUMENTS: dict[str, Any] = {
    "loss": "loss",
    "seed": "adj_loss",
    "gradients": {name: f"adj_{name}" for name in WEIGHTS},
    "updates": {name: f"new_{name}" for name in WEIGHTS}
    | {f"m_{name}": f"new_m_{name}" for name in WEIGHTS}
    | {"step": "new_step"},
}
MODES = ("if", "select")


def feeds(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 4)).astype(np.float32)
    return {"x": x, "t": np.argmax(x[:, :3], axis=1)}


def quiet() -> Any:
    """Return options without warnings about defaults of inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def reference(steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Run the graph as it is, feeding back its outputs; return the losses and the last state."""
    import onnxruntime

    model = onnx.load(FILE)
    initial = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    state: dict[str, Any] = {name: initial[name] for name in ARGUMENTS["updates"]}
    session: Any = onnxruntime.InferenceSession(FILE, quiet(), providers=["CPUExecutionProvider"])
    losses: list[float] = []
    names = ["loss", *ARGUMENTS["updates"].values()]
    for step in range(steps):
        loss, *new = session.run(names, {**feeds(step), **state})
        losses.append(float(loss))
        state = dict(zip(state, new, strict=True))
    return losses, state


@pytest.mark.parametrize("mode", MODES)
def test_it_trains_as_the_graph_without_a_loss_scale(mode: str):
    losses, state = reference(20)
    injected = inject_loss_scaling(FILE, **ARGUMENTS, conditional=mode)
    onnx.checker.check_model(amp.to_proto(injected), full_check=True)
    with amp.TrainingSession(injected) as session:
        found = [float(session.run(feeds(i))["loss"]) for i in range(20)]
        assert found == losses
        assert losses[-1] < losses[0] * 0.7
        for name, value in state.items():
            np.testing.assert_array_equal(session.read_state(name), value, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_with_nan_changes_no_state(mode: str):
    injected = inject_loss_scaling(FILE, **ARGUMENTS, conditional=mode)
    with amp.TrainingSession(injected) as session:
        session.run(feeds(0))
        before = session.state_dict()
        bad = feeds(1)
        bad["x"][7, 3] = np.nan
        assert not session.run(bad)["grads_finite"]
        for name in ARGUMENTS["updates"]:
            assert session.read_state(name).tobytes() == before[name].tobytes(), name
        assert session.read_state("loss_scale/current_loss_scale") == 2**14
        assert session.run(feeds(2))["grads_finite"]
        assert session.read_state("step") == 2


@pytest.mark.parametrize("name", ["adj_x", "adj_w1", "loss"])
def test_outputs_keep_their_names_and_values(name: str):
    injected = inject_loss_scaling(FILE, **ARGUMENTS)
    assert {v.name for v in amp.load(FILE).graph.outputs} <= {
        v.name for v in injected.graph.outputs
    }
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(FILE, quiet(), providers=["CPUExecutionProvider"])
    (expected,) = session.run([name], feeds(0))
    with amp.TrainingSession(injected) as ours:
        np.testing.assert_array_equal(ours.run(feeds(0), name)[name], expected)


def test_the_scale_reaches_the_seed_and_the_gradients_inside():
    injected = inject_loss_scaling(FILE, **ARGUMENTS, loss_scale=DynamicLossScale(2.0**7))
    info = read_info(injected)
    assert info.gradients is not None
    assert info.seed == "adj_loss"
    with amp.TrainingSession(injected) as session:
        inside = info.gradients["w1"]
        found = session.run(feeds(0), [inside, "adj_w1"])
        np.testing.assert_array_equal(found[inside], found["adj_w1"] * 2**7)


def test_nodes_say_which_part_they_are():
    injected = inject_loss_scaling(FILE, **ARGUMENTS, conditional="select")
    parts = {str(node.name): part_in(node.metadata_props) for node in injected.graph}
    assert {part for name, part in parts.items() if name.startswith("update_")} == {Part.UPDATE}
    by_output = {node.outputs[0].name: part_in(node.metadata_props) for node in injected.graph}
    assert by_output["logits"] is None
    assert by_output["loss"] is None
    assert by_output["matmul"] is Part.GRADIENT


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_the_result_can_be_rewritten_and_trains_in_low_precision(precision: str):
    injected = inject_loss_scaling(FILE, **ARGUMENTS, precision=precision)
    assert read_info(injected).precision == precision
    types = {v.dtype.name for node in injected.graph for v in node.outputs if v.dtype}
    assert precision.upper() in types
    with amp.TrainingSession(injected, emulate=True) as session:
        losses = [float(session.run(feeds(i))["loss"]) for i in range(20)]
        assert session.read_state("loss_scale/skipped_steps") == 0
    expected = reference(20)[0]
    assert losses != expected
    np.testing.assert_allclose(losses, expected, rtol=0.1, atol=0.03)


def test_the_file_is_what_its_script_makes_today():
    onnx_ad = pytest.importorskip("onnx_ad")
    if onnx_ad.__version__ != "0.3.0":
        pytest.skip("another version of onnx-ad")
    sys.path.append(str(FOLDER))
    import make_onnx_ad  # pyright: ignore[reportMissingImports] from the folder above

    made = make_onnx_ad.with_update(make_onnx_ad.differentiated())
    assert made == onnx.load(FILE)


def test_a_forgotten_gradient_is_an_error():
    gradients = {k: v for k, v in ARGUMENTS["gradients"].items() if k != "b1"}
    with pytest.raises(InjectError, match="not among the gradients"):
        inject_loss_scaling(FILE, **{**ARGUMENTS, "gradients": gradients})
