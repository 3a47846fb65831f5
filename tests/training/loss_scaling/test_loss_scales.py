"""Loss scales as ONNX graphs, against their table; and their configurations."""

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleState,
    UncheckedLossScale,
)

MAX = np.finfo(np.float32).max


def machine(scale: LossScale) -> onnxruntime.InferenceSession:
    """Return a model that computes the state after a step from the state before it."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 17}, name="machine")
    model = ir.Model(graph, ir_version=8)
    for name, array in {**scale.initial_state()._asdict(), "finite": np.array(True)}.items():
        kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        graph.inputs.append(ir.Value(name=name, type=kind, shape=ir.Shape([])))
    b = Builder(model)
    after = scale.update(b, LossScaleState(*graph.inputs[:-1]), graph.inputs[-1])
    graph.outputs.extend(b.op("Identity", value, name=f"next/{i}") for i, value in enumerate(after))
    data = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


def follow(scale: LossScale, steps: str) -> list[LossScaleState]:
    """Return the states after steps that are finite (T) or not (F)."""
    session, state, found = machine(scale), scale.initial_state(), []
    for step in steps:
        feeds = {**state._asdict(), "finite": np.array(step == "T")}
        state = LossScaleState(*session.run(None, feeds))
        found.append(state)
    return found


@pytest.mark.parametrize(
    ("initial", "period", "multiplier", "steps", "expected"),
    [
        (1, 2, 2, "TTTTTT", [1, 2, 2, 4, 4, 8]),
        (16, 2, 2, "FFFFFF", [8, 4, 2, 1, 1, 1]),
        (1, 2, 2, "TTTFT", [1, 2, 2, 1, 1]),
        (MAX / 4, 1, 2, "TTTT", [MAX / 2, MAX, MAX, MAX]),
        (2.0**125, 2, 2, "TTTTTT", [2.0**125, 2.0**126, 2.0**126, 2.0**127, 2.0**127, 2.0**127]),
        (4, 2, 3, "TTFTT", [4, 12, 4, 4, 12]),
        (4, 2, 2, "FTTTFTFTTTF", [2, 2, 4, 4, 2, 2, 1, 1, 2, 2, 1]),
    ],
)
def test_the_scale_follows_the_table(
    initial: float, period: int, multiplier: float, steps: str, expected: list[float]
) -> None:
    found = follow(DynamicLossScale(float(initial), period, multiplier), steps)
    scales = [state.current_loss_scale for state in found]
    assert all(scale.dtype == np.float32 and scale.shape == () for scale in scales)
    assert [float(scale) for scale in scales] == [float(np.float32(e)) for e in expected]


def test_counters_count_good_and_skipped_steps() -> None:
    found = follow(DynamicLossScale(4.0, 3), "TTFFTFTTTT")
    assert [int(state.good_steps) for state in found] == [1, 2, 0, 0, 1, 0, 1, 2, 0, 1]
    assert [int(state.skipped_steps) for state in found] == [0, 0, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [int(state.consecutive_skips) for state in found] == [0, 0, 1, 2, 0, 1, 0, 0, 0, 0]
    assert {state.good_steps.dtype for state in found} == {np.dtype(np.int64)}


def test_the_floor_may_be_below_one() -> None:
    found = follow(DynamicLossScale(2.0, floor=2.0**-3), "FFFFFF")
    assert [float(s.current_loss_scale) for s in found] == [1, 0.5, 0.25, 0.125, 0.125, 0.125]


def test_a_fixed_scale_never_changes_and_counts_skipped_steps() -> None:
    scale = FixedLossScale(7)
    assert scale.checks
    assert scale.kept == ("skipped_steps", "consecutive_skips")
    found = follow(scale, "TFFTF")
    assert {float(state.current_loss_scale) for state in found} == {7.0}
    assert [int(state.skipped_steps) for state in found] == [0, 1, 2, 2, 3]
    assert [int(state.consecutive_skips) for state in found] == [0, 1, 2, 0, 1]


def test_an_unchecked_scale_has_no_state() -> None:
    scale = UncheckedLossScale(7)
    assert not scale.checks
    assert float(scale.initial_state().current_loss_scale) == 7.0
    assert scale != FixedLossScale(7)


@pytest.mark.parametrize(
    "scale",
    [
        FixedLossScale(1),
        FixedLossScale(2.5),
        UncheckedLossScale(2.5),
        DynamicLossScale(),
        DynamicLossScale(8.0, 10, 4, floor=0.5, max_consecutive_skips=5),
    ],
    ids=repr,
)
def test_configurations_and_texts_make_equal_scales(scale: LossScale) -> None:
    assert type(scale).from_config(scale.get_config()) == scale
    assert eval(repr(scale)) == scale
    if not isinstance(scale, UncheckedLossScale):  # the class alone says that
        assert amp.get_loss_scale(scale.get_config()) == scale
    same = amp.get_loss_scale({"class_name": type(scale).__name__, "config": scale.get_config()})
    assert same == scale
    assert hash(same) == hash(scale)
    assert same != FixedLossScale(99)


def test_get_understands_numbers_words_and_scales() -> None:
    scale = DynamicLossScale(4.0)
    assert amp.get_loss_scale(scale) is scale
    assert amp.get_loss_scale(None) is None
    assert amp.get_loss_scale("dynamic") == DynamicLossScale()
    assert amp.get_loss_scale(8) == amp.get_loss_scale(8.0) == FixedLossScale(8)


@pytest.mark.parametrize(
    "identifier", ["fixed", [1], {"a": 1}, True, {"class_name": "X", "config": {}}]
)
def test_get_refuses_what_it_does_not_know(identifier: object) -> None:
    with pytest.raises(ValueError, match="Could not interpret loss scale identifier"):
        amp.get_loss_scale(identifier)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "must be at least 1"),
        (float("nan"), "must be at least 1"),
        (float("inf"), "must be finite"),
    ],
)
def test_a_fixed_scale_must_be_at_least_one(value: float, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FixedLossScale(value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"initial_loss_scale": 0}, "impossible initial_loss_scale"),
        ({"initial_loss_scale": "dynamic"}, "impossible initial_loss_scale; found 'dynamic'"),
        ({"initial_loss_scale": 0.5}, "floor must not be above initial_loss_scale"),
        ({"increment_period": 0}, "impossible increment_period; found 0; expected at least 1"),
        ({"increment_period": 2.5}, "increment_period must be an integer; found 2.5"),
        ({"multiplier": 1}, "impossible multiplier"),
        ({"floor": 0}, "impossible floor"),
        ({"max_consecutive_skips": -1}, "impossible max_consecutive_skips; found -1"),
        ({"max_consecutive_skips": True}, "max_consecutive_skips must be an integer"),
    ],
)
def test_a_dynamic_scale_refuses_nonsense(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DynamicLossScale(**arguments)
