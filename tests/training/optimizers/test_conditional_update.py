"""Conditional updates: what moves into the If, what stays outside, and what both compute."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.training.loss_scaling.gradients import finite_and_norm
from amp_rewrite.training.optimizers.conditional_update import conditional

TEXT = """step (float[2] w, float[2] v, float[2] g, bool ok) => (float[2] other) {
    shared = Mul(g, g)
    inner = Add(shared, w)
    next = Sub(w, inner)
    other = Neg(shared)
    unused = Exp(g)
}"""
W, V, G = (np.array(a, np.float32) for a in ([1, 2], [3, 4], [5, 6]))
MODES = pytest.mark.parametrize("mode", ["if", "select"])


def updated(
    updates: Mapping[str, str], mode: str = "if", keep: Collection[str] = (), only: str = ""
) -> ir.Model:
    """Return the model with conditional updates as further outputs."""
    graph = onnx.parser.parse_graph(TEXT)
    opsets = [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(proto)
    model = amp.load(proto)
    values = {v.name: v for v in model.graph.inputs}
    values |= {v.name: v for node in model.graph for v in node.outputs}
    after = conditional(
        Builder(model, scope="test"),
        values["ok"],
        {name: values[value] for name, value in updates.items()},
        {name: values[name] for name in ("w", "v")},
        mode,
        keep=[values[name] for name in keep],
        movable=lambda node: only in ("", node.op_type),
    )
    model.graph.outputs.extend(after.values())
    return model


def results(model: ir.Model, ok: bool) -> list[np.ndarray]:
    """Return what a model computes."""
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session: Any = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = {i.name for i in session.get_inputs()}
    feeds = {"w": W, "v": V, "g": G, "ok": np.array(ok)}
    return session.run(None, {k: v for k, v in feeds.items() if k in names})


@MODES
def test_states_change_only_if_the_step_is_finite(mode: str) -> None:
    model = updated({"w": "next", "v": "other"}, mode)
    for ok, w, v in ((True, -G * G, -G * G), (False, W, V)):
        other, new_w, new_v = results(model, ok)
        np.testing.assert_array_equal(other, -G * G)
        np.testing.assert_array_equal(new_w, w)
        np.testing.assert_array_equal(new_v, v)


def kinds(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


def test_a_value_for_two_states_is_two_outputs() -> None:
    model = updated({"w": "next", "v": "next"})
    _, new_w, new_v = results(model, ok=True)
    np.testing.assert_array_equal(new_w, new_v)


@MODES
def test_states_that_keep_their_value_need_no_condition(mode: str) -> None:
    model = updated({"w": "w", "v": "v"}, mode)
    assert kinds(model.graph) == ["Mul", "Add", "Sub", "Neg", "Exp"]
    model = updated({"w": "next", "v": "v"}, mode)
    assert kinds(model.graph).count("If" if mode == "if" else "Where") == 1


def test_another_mode_is_refused() -> None:
    with pytest.raises(amp.AmpError, match="unknown way to make updates conditional"):
        updated({"w": "next"}, "multiply")


def checked(*gradients: np.ndarray) -> tuple[bool, float]:
    """Return what the finite check says of gradients, and their norm."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 17}, name="check")
    model = ir.Model(graph, ir_version=8)
    for index, array in enumerate(gradients):
        kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        graph.inputs.append(ir.Value(name=f"g{index}", type=kind, shape=ir.Shape(array.shape)))
    finite, norm = finite_and_norm(Builder(model), list(graph.inputs))
    graph.outputs.extend([finite, norm])
    data = ir.to_proto(model).SerializeToString()
    session: Any = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = session.run(None, {f"g{index}": array for index, array in enumerate(gradients)})
    return bool(found[0]), float(found[1])


@pytest.mark.parametrize(
    ("gradients", "finite"),
    [
        ([[3.0], [4.0]], True),
        ([[np.finfo(np.float32).max / 1e20]], True),
        ([[1e-45, -1e-45]], True),
        ([[0.0], [np.nan]], False),
        ([[np.inf], [1.0]], False),
        ([[1.0, -np.inf]], False),
        ([[1e30]], False),  # finite, but the norm overflows in float32
    ],
)
def test_gradients_are_finite_if_their_norm_is(gradients: list[list[float]], finite: bool) -> None:
    found, norm = checked(*(np.array(g, np.float32) for g in gradients))
    assert found == finite
    if finite:
        exact = np.linalg.norm(
            np.concatenate([np.array(g, np.float32) for g in gradients]).astype(float)
        )
        np.testing.assert_allclose(norm, exact, rtol=1e-6, atol=1e-30)


WRAP = {
    "alone": lambda inner, mode: LossScaleOptimizer(inner, conditional=mode),
    "around shards": lambda inner, mode: LossScaleOptimizer(
        amp.CrossShardOptimizer(inner), conditional=mode
    ),
    "inside shards": lambda inner, mode: amp.CrossShardOptimizer(
        LossScaleOptimizer(inner, conditional=mode)
    ),
}


@pytest.mark.share(5)
@pytest.mark.filterwarnings("ignore:CrossShardOptimizer is used outside a shard context")
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("kind", WRAP)
def test_a_skipped_step_keeps_the_running_statistics(kind: str, mode: str):
    model = amp.load(train_models.digits_cnn())
    optimizer = WRAP[kind](amp.optimizers.Adam(1e-3), mode)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(4, 1, 8, 8)).astype(np.float32), "t": np.arange(4)}
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        session.run(feeds)
        before = session.state_dict()
        feeds["x"][0, 0, 0, 0] = np.nan
        assert not session.run(feeds)["grads_finite"]
        after = session.state_dict()
    for name, array in before.items():
        if not name.startswith(("loss_scale/", "random/")):
            assert after[name].tobytes() == array.tobytes(), name
