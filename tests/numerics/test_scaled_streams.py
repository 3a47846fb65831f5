"""A stream that leaves float16 is float16 from its embedding on: what was scaled is painted so."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from residual_models import NORMS, residual_decoder

import amp_rewrite as amp
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.report.float32_left import float32_left

LAYERS, WORDS = 8, 32
FUSED = NORMS[:3]
PEAKS = {"biases": {}, "weights": {"heavy": True}}


def feeds() -> list[dict[str, Any]]:
    return [{"x": np.arange(8) * 3}]


def stream(norm: str, dtype: Any = np.float32, **how: Any) -> onnx.ModelProto:
    """Return a decoder whose stream begins at an embedding, and whose first norm reads that."""
    return residual_decoder(LAYERS, norm=norm, dtype=dtype, words=WORDS, **how)


def silently(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function that is to warn of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", amp.AmpWarning)
        return function(*arguments, overflow="scale", **options)


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def check_whole(found: Any, model: onnx.ModelProto, casts: int) -> None:
    """Check that all is float16 but for an output's Cast, and that no node was added."""
    made = amp.to_proto(found.model)
    assert operators(made) == operators(model) + Counter(Cast=casts)
    assert not [t.name for t in made.graph.initializer if t.data_type == TensorProto.FLOAT]
    assert not float32_left(read_source(made, inline_functions=True))


@pytest.mark.parametrize("peak", PEAKS)
@pytest.mark.parametrize("norm", FUSED)
def test_conversion_of_a_stream_adds_the_cast_of_the_output_alone(norm: str, peak: str):
    model = stream(norm, **PEAKS[peak])
    found = silently(amp.convert, model, feeds())
    assert found.ok
    check_whole(found, model, 1)


@pytest.mark.parametrize("peak", PEAKS)
@pytest.mark.parametrize("norm", FUSED)
def test_a_repaired_stream_has_no_cast(norm: str, peak: str):
    model = stream(norm, np.float16, **PEAKS[peak])
    found = silently(amp.repair, model, feeds())
    assert found.ok
    assert found.scaling is not None
    check_whole(found, model, 0)


@pytest.mark.parametrize("peak", PEAKS)
def test_without_data_the_made_up_inputs_do_it_and_nobody_is_warned(peak: str):
    model = stream(FUSED[0], **PEAKS[peak])
    check_whole(silently(amp.convert, model), model, 1)
    low = stream(FUSED[0], np.float16, **PEAKS[peak])
    check_whole(silently(amp.repair, low, verify=True), low, 0)


@pytest.mark.parametrize("norm", FUSED)
def test_what_bounds_alone_show_is_painted_as_scaled(norm: str):
    model = residual_decoder(2, norm=norm, words=WORDS, peak=2e5)  # biases of 100,000
    found = silently(amp.rewrite, model)
    assert found.scaling is not None
    check_whole(found, model, 1)
    first = next(node for node in found.report.nodes if node.op == norm)
    assert "what was scaled" in amp.explain(found, first.name)


@pytest.mark.parametrize("peak", PEAKS)
def test_a_norm_that_is_written_out_has_two_casts(peak: str):
    converted = silently(amp.convert, stream("written", **PEAKS[peak]), feeds())
    repaired = silently(amp.repair, stream("written", np.float16, **PEAKS[peak]), feeds())
    assert converted.ok
    assert repaired.ok
    assert operators(amp.to_proto(converted.model))["Cast"] == 2 * (LAYERS + 1) + 1
    assert operators(amp.to_proto(repaired.model))["Cast"] == 2 * (LAYERS + 1)


def test_scale_takes_fewer_float32_nodes_for_a_cast_more():
    model = residual_decoder(2, norm="written", words=WORDS)
    table = model.graph.initializer[0]
    array = onnx.numpy_helper.to_array(table).copy()
    array[:, 5] = 1e5
    table.CopyFrom(onnx.numpy_helper.from_array(array, table.name))
    kept, found = (amp.convert(model, feeds(), overflow=o, stress=False) for o in ("keep", "scale"))
    assert found.result.scaling is not None
    assert found.report.summary.nodes_converted > kept.report.summary.nodes_converted
    assert found.report.summary.casts_added == kept.report.summary.casts_added + 1
    assert "and adds 1 cast" in found.report.to_text()


def test_a_stream_that_fits_is_painted_as_before():
    kept, found = (amp.rewrite(stream(FUSED[2], peak=80.0), overflow=o) for o in ("keep", "scale"))
    assert amp.to_proto(found.model) == amp.to_proto(kept.model)
