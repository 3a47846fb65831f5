"""Stochastic rounding: which numbers come out, and how often."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.random_numbers import RandomNumbers
from amp_rewrite.optimizers.stochastic_rounding import stochastic, uniform

KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MANY = 20_000


@pytest.fixture(scope="module", params=KINDS)
def rounding(request):
    """Return a type, and the runtime's rounding to it, in float32."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x, int64 step) => () {}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    x, step = model.graph.inputs
    b = Builder(model)
    low = ir.DataType[request.param.upper()]
    result = stochastic(b, x, low, uniform(b, RandomNumbers(b, step), 0, x))
    model.graph.outputs.append(b.cast(result, ir.DataType.FLOAT))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())

    def run(x: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {"x": x, "step": np.array(5)})[0])

    return KINDS[request.param], run


@pytest.mark.parametrize(
    "number", [1.001, -1.003, 0.9999, 1.0001, 255.9, 256.3, 3.0519e-5, -1e-5, 60010.0]
)
def test_the_mean_is_the_number_and_both_results_are_its_neighbours(rounding, number) -> None:
    kind, run = rounding
    x = np.float32(number)
    found = run(np.full(MANY, x, np.float32))
    nearest = np.float32(x.astype(kind))
    up, down = (np.nextafter(x.astype(kind), kind.type(end)) for end in (np.inf, -np.inf))
    expected = sorted({float(nearest), float(up if nearest < x else down)})
    assert np.unique(found).tolist() == expected
    deviation = (expected[1] - expected[0]) / 2 / MANY**0.5
    assert abs(found.astype(np.float64).mean() - float(x)) < 5 * deviation


def test_every_number_of_the_type_stays_as_it_is(rounding) -> None:
    kind, run = rounding
    every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    if kind == KINDS["bfloat16"]:  # smaller ones are subnormal in float32, which a CPU may flush
        every = every[~(np.abs(every) < np.finfo(np.float32).smallest_normal)]
    np.testing.assert_array_equal(run(every), every)


def test_what_is_nearer_to_a_finite_number_does_not_overflow(rounding) -> None:
    kind, run = rounding
    largest = float(ml_dtypes.finfo(kind).max)
    beyond = np.float32(largest * (1 + float(ml_dtypes.finfo(kind).eps) / 8))
    np.testing.assert_array_equal(run(np.full(100, beyond)), np.float32(largest))
