"""Random numbers that are a function of a counter."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.random_numbers import RandomNumbers, first


def numbers(site: int, step: int, size: int) -> np.ndarray:
    text = '<ir_version: 8, opset_import: ["": 17]> g (int64 step, int64 n) => () {}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    step_value, n = model.graph.inputs
    b = Builder(model)
    found = first(b, RandomNumbers(b, step_value).rows(site, n), n, b.reshape(n, [1]))
    model.graph.outputs.append(found)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = {"step": np.array(step), "n": np.array(size)}
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize("size", [0, 1, 255, 257, 100_000])
def test_there_are_as_many_as_asked_for(size: int) -> None:
    found = numbers(0, 3, size)
    assert (found.shape, found.dtype) == ((size,), np.dtype(np.int32))


def test_they_are_uniform_and_independent_of_place_site_and_step() -> None:
    given = [numbers(site, step, 100_000) for site, step in ((0, 0), (1, 0), (0, 1), (1, 1))]
    uniform = np.array(given, np.float64) / 2**32 + 0.5
    counts = np.stack([np.histogram(row, 64, (0, 1))[0] for row in uniform])
    np.testing.assert_allclose(counts, 100_000 / 64, rtol=0.12)  # 5 deviations
    shifted = np.vstack([uniform, uniform[0, np.r_[1:100_000, 0]]])
    others = np.asarray(np.corrcoef(shifted))[~np.eye(5, dtype=bool)]
    assert np.abs(others).max() < 0.016  # 5 deviations
    assert min(len(np.unique(row)) for row in given) > 99_900


def test_they_are_the_same_for_the_same_step() -> None:
    np.testing.assert_array_equal(numbers(2, 7, 1000), numbers(2, 7, 1000))
    np.testing.assert_array_equal(numbers(2, 7, 1000)[:10], numbers(2, 7, 10))
