"""What OpenVINO cannot do is refused with the reason, before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import train_models
from low_steps import batch, train_op
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.errors import (
    AmpWarning,
    FeedError,
    OptionError,
    RunError,
    RuntimeMissingError,
    StepError,
)
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.session import device_limits
from amp_rewrite.training.session.training_session import TrainingSession

pytestmark = [pytest.mark.openvino, pytest.mark.usefixtures("openvino")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emulate": True}, "OpenVINO cannot emulate low precision"),
        ({"options": onnxruntime.SessionOptions()}, "OpenVINO does not take the options"),
        ({"providers": ["openvino", 3]}, "a provider must be a name, or a tuple"),
        ({"providers": ["openvino", "CPUExecutionProvider"]}, "an engine of its own, .* name one"),
        ({"providers": [("openvino", 3)]}, "a provider must be a name, or a tuple"),
    ],
)
def test_options_of_other_engines_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TrainingSession(train_op(), **{"providers": ["openvino"], **options})


def test_properties_are_openvinos_and_wrong_ones_are_its_error() -> None:
    with (
        TrainingSession(train_op(), [("openvino", {"NO_SUCH": 1})]) as session,
        pytest.raises(RunError, match=r"OpenVINO cannot load the step; found .*NO_SUCH"),
    ):
        session.run(batch())


def test_where_openvino_is_missing_no_session_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise RuntimeMissingError("this needs OpenVINO, which is not installed")

    monkeypatch.setattr(device_limits, "core", missing)
    with pytest.raises(RuntimeMissingError, match="this needs OpenVINO"):
        TrainingSession(train_op(), ["openvino"])


def test_a_processor_without_bfloat16_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "computes_in", lambda _: False)
    with (
        pytest.warns(AmpWarning, match="no instructions for bfloat16: .*gains nothing"),
        TrainingSession(train_op(), ["openvino"], precision="bfloat16") as session,
    ):
        assert np.isfinite(session.run(batch())["loss"])


TOKENS = """<ir_version: 8, opset_import: ["": 17]>
    g (int64[N] i, float[N, 2] t) => (float loss) <float[5, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
    int64 big = {%d}, int64 five = {5}> {
        [hash] h = Mul(i, big) m = Mod(h, five) y = Gather(w, m) d = Sub(y, t)
        s = Mul(d, d) loss = ReduceMean<keepdims = 0>(s) }"""


def hashed(factor: int) -> Any:
    model = amp.load(parser.parse_model(TOKENS % factor))
    return GradientDescent(0.1).minimize(amp.value(model, "loss"))


def test_integers_beyond_32_bits_are_refused_in_feeds_and_warned_of_in_models() -> None:
    feeds = {"i": np.array([1, 2**31]), "t": np.zeros((2, 2), np.float32)}
    with TrainingSession(hashed(3), ["openvino"]) as session:
        before = session.state_dict()["w"]
        with pytest.raises(FeedError, match=r"'i' has an integer beyond 32 bits.*found 1 to 2147"):
            session.run(feeds)
        np.testing.assert_array_equal(session.state_dict()["w"], before)
    feeds["i"] = np.array([1, 2])
    with (
        TrainingSession(hashed(2**40 + 1), ["openvino"]) as session,
        pytest.warns(AmpWarning, match=r"node 'hash' \(Mul\) has an integer beyond 32 bits"),
    ):
        session.run(feeds)


def test_models_of_float64_are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (double[N, 2] x) => (double loss) <double[2, 2] w = {1, 2, 3, 4}> {
            h = MatMul(x, w) loss = ReduceMean<keepdims = 0>(h) }"""
    loss = amp.value(amp.load(parser.parse_model(text)), "loss")
    with pytest.raises(StepError, match=r"state 'w': .* found float64; expected float32"):
        TrainingSession(GradientDescent(0.1).minimize(loss), ["openvino"])


def test_an_operator_that_it_lacks_is_named_with_its_node() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 2] x) => (float loss) <float[2, 2] w = {1, 2, 3, 4}> {
            h = MatMul(x, w) [volume] f = Det(x) d = Mul(h, f)
            loss = ReduceMean<keepdims = 0>(d) }"""
    loss = amp.value(amp.load(parser.parse_model(text)), "loss")
    with (
        TrainingSession(GradientDescent(0.1).minimize(loss), ["openvino"]) as session,
        pytest.raises(RunError, match=r"node 'volume' \(Det\).*run it on ONNX Runtime"),
    ):
        session.run({"x": np.ones((2, 2), np.float32)})


ON_ARM: Any = [
    {"target": "cpu-arm64"},
    {"providers": ["cpu-arm64"]},
    {"providers": ["CPUExecutionProvider"], "target": "cpu-arm64"},
]


def session(**given: Any) -> amp.TrainingSession:
    loss = amp.value(amp.load(train_models.mlp((8, 16, 3))), "loss")
    return amp.TrainingSession(amp.optimizers.Adam().minimize(loss), **given)


@pytest.mark.parametrize("given", ON_ARM)
def test_a_session_for_arm_is_refused_on_other_machines(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_limits, "is_arm", lambda: False)
    with pytest.raises(OptionError, match=r"on Arm machines only.*emulate=True") as caught:
        session(**given)
    assert "\n" not in str(caught.value)


def test_an_emulated_session_begins_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_limits, "is_arm", lambda: False)
    assert session(target="cpu-arm64", emulate=True).info.states


@pytest.mark.parametrize("given", ON_ARM)
def test_a_session_trains_on_an_arm_machine(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_limits, "is_arm", lambda: True)
    trained = session(**given)
    found = trained.run({"x": np.ones((4, 8), np.float32), "t": np.zeros(4, np.int64)})
    assert np.isfinite(found["loss"])
