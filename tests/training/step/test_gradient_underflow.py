"""Shares of gradients that are zero or subnormal, in the type that they were computed in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import FetchError
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step
from amp_rewrite.training.step.gradient_underflow import SAMPLE, UNDERFLOW, underflow_variables
from amp_rewrite.training.step.read_info import read_info

pytestmark = [
    pytest.mark.filterwarnings("ignore:a float16 step without a loss scale"),
    pytest.mark.filterwarnings("ignore:.* on a CPU is slower:amp_rewrite.errors.AmpWarning"),
]

LINE = """<ir_version: 8, opset_import: ["": 17]> g (float[N, WIDTH] x) => (float loss)
    { y = MatMul(x, w) loss = ReduceSum<keepdims = 0>(y) }"""
"""The gradient of w is the sum of the examples."""

TABLE = """<ir_version: 8, opset_import: ["": 17]>
    g (int64[N] rows, float[N, WIDTH] x) => (float loss)
    { found = Gather(w, rows) y = Mul(found, x) loss = ReduceSum<keepdims = 0>(y) }"""
"""The gradient of row i of w is the sum of the examples that read it."""

SMALL = FLOAT16.smallest_normal / 8
MIXED = np.array([[0, SMALL, 1, 2, SMALL, 1, 1, 1]], np.float32)


def step(
    text: str = LINE,
    weight: tuple[int, ...] = (8, 1),
    scale: float | None = None,
    precision: str = "float16",
    accumulate: int = 1,
) -> Any:
    model = parser.parse_model(text.replace("WIDTH", str(max(weight))))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(weight, np.float32), "w"))
    optimizer: Any = amp.optimizers.GradientDescent(0.01)
    if scale is not None:
        optimizer = amp.LossScaleOptimizer(optimizer, scale)
    op = optimizer.minimize(amp.value(amp.load(model), "loss"), accumulate=accumulate)
    return build_step(op, precision=precision)


def shares(model: Any, *batches: dict[str, Any]) -> list[float]:
    with TrainingSession(model, emulate=True) as session:
        assert underflow_variables(session.info) == ("w",)
        found = [session.run(feeds, [UNDERFLOW])[UNDERFLOW] for feeds in batches]
    return found[-1][0].tolist()


def test_zeros_and_subnormal_elements_are_counted_in_the_type_of_the_gradient() -> None:
    assert shares(step(), {"x": MIXED}) == [1 / 8, 2 / 8]
    assert shares(step(precision="float32"), {"x": MIXED}) == [1 / 8, 0]
    assert shares(step(precision="bfloat16"), {"x": MIXED}) == [1 / 8, 0]


def test_what_a_loss_scale_lifts_above_the_least_normal_number_does_not_count() -> None:
    assert shares(step(scale=4), {"x": MIXED}) == [1 / 8, 2 / 8]
    assert shares(step(scale=8), {"x": MIXED}) == [1 / 8, 0]


def test_what_rounds_to_zero_is_zero() -> None:
    tiny = np.full((1, 8), FLOAT16.smallest_subnormal / 4, np.float32)
    assert shares(step(), {"x": tiny}) == [1, 0]


def test_each_batch_of_an_update_counts_by_itself() -> None:
    zeros = np.zeros((1, 8), np.float32)
    model = step(accumulate=2)
    assert shares(model, {"x": MIXED + 1}, {"x": zeros}) == [1, 0]
    assert shares(model, {"x": zeros}, {"x": MIXED}) == [1 / 8, 2 / 8]


@pytest.mark.parametrize("width", [4090, SAMPLE, 4100, 10 * SAMPLE, 99_990])
def test_a_sample_of_a_long_gradient_sees_every_column_alike(width: int) -> None:
    x = np.ones((1, width), np.float32)
    x[:, ::10] = 0
    zero, small = shares(step(weight=(width, 1)), {"x": x})
    assert zero == pytest.approx(0.1, abs=0.001)
    assert small == 0


@pytest.mark.parametrize("rows", [4, 3000])
def test_of_a_table_the_rows_that_were_read_count(rows: int) -> None:
    x = np.tile(np.array([0, 0, 0, 1], np.float32), (rows, 5))
    text = TABLE.replace("WIDTH", "20")
    zero, _ = shares(step(text, (5000, 20)), {"rows": np.arange(rows), "x": x})
    assert zero == pytest.approx(0.75, abs=0.005)


def test_a_gradient_without_elements_has_shares_of_0() -> None:
    text = LINE.replace("WIDTH", "0")
    assert shares(step(text, (0, 1)), {"x": np.zeros((1, 0), np.float32)}) == [0, 0]


def test_a_step_that_does_not_know_its_gradients_is_an_error() -> None:
    model = step()
    info = replace(read_info(model), gradients=None)
    model.metadata_props[STEP_KEY] = info.to_json()
    with (
        TrainingSession(model) as session,
        pytest.raises(FetchError, match="which values carry its gradients"),
    ):
        session.run({"x": MIXED}, [UNDERFLOW])


def test_nothing_is_added_to_a_step_that_is_not_asked() -> None:
    with TrainingSession(step()) as session:
        found = session.run({"x": MIXED}, ["loss"])
    assert list(found) == ["loss"]
