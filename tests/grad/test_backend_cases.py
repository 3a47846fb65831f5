"""The gradients of the models of onnx's own backend tests: one or a few of each operator."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from backend_cases import all_cases
from releases import before

import amp_rewrite as amp
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.prepare import prepare

CHUNKS = 8
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)

KNOWN = {
    "test_reduce_sum_empty_set": "ONNX Runtime's Expand does not make an axis of length 0 from 1",
}
if before("onnxruntime", (1, 30)):
    KNOWN |= {
        f"test_reduce_{how}_empty_set": "it sums an empty tensor over no axes up to one number"
        for how in ("max", "min", "prod")
    }
"""Cases whose gradients do not come out right, and why."""

REFUSED = 5
"""At most this share of the cases that ONNX Runtime runs may have an operator that stops gradients,
in percent."""


@cache
def cases() -> list[Any]:
    """Return the cases in opsets that have gradients."""
    return [c for c in all_cases() if c.model is not None and _is_new(c.model)]


def _is_new(model: onnx.ModelProto) -> bool:
    return {entry.domain: entry.version for entry in model.opset_import}.get("", 0) >= 16


def is_float(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.dtype in FLOATS


def differentiate(model: ir.Model, stops: dict[ir.Node, str]) -> dict[str, str]:
    """Add the gradients of the float inputs as outputs; return output name -> input name."""
    prepare(model)
    b = Builder(model)
    inputs = [v for v in model.graph.inputs if is_float(v)]
    seeds = {v: b.ones_like(v) for v in model.graph.outputs if is_float(v)}
    found = gradients(b, seeds, inputs, sparse=False, stops=stops)
    names: dict[str, str] = {}
    for value, gradient in zip(inputs, found, strict=True):
        if isinstance(gradient, ir.Value):
            output = b.op("Identity", gradient)
            model.graph.outputs.append(output)
            names[output.name or ""] = value.name or ""
    return names


def session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def runs_forward(model: onnx.ModelProto, feeds: dict[str, Any]) -> bool:
    try:
        session(model).run(None, feeds)
    except Exception:  # noqa: BLE001 whatever keeps ONNX Runtime from running it
        return False
    return True


@pytest.mark.share(4)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_gradients_of_backend_cases_have_the_shapes_and_types_of_their_inputs(chunk: int):
    ran = refused = 0
    for case in cases()[chunk::CHUNKS]:
        feeds = dict(
            zip([i.name for i in case.model.graph.input], case.data_sets[0][0], strict=False)
        )
        if case.name in KNOWN or not runs_forward(case.model, feeds):
            continue
        model, stops = amp.load(case.model), dict[ir.Node, str]()
        names = differentiate(model, stops)
        refused += bool(stops)
        results = session(amp.to_proto(model)).run(list(names), feeds) if names else []
        for result, name in zip(results, names.values(), strict=True):
            assert np.shape(result) == np.shape(feeds[name]), case.name
            assert result.dtype == feeds[name].dtype, case.name
        ran += 1
    assert ran > 0
    assert 100 * refused <= REFUSED * ran
