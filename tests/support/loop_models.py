"""Models with loops in ONNX text: their gradients, run and checked by difference quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from gradient_table import STEP, dense

from amp_rewrite import to_proto
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.prepare import prepare

Array = np.ndarray[Any, Any]


def model_of(text: str, opset: int = 18) -> ir.Model:
    header = f'<ir_version: 8, opset_import: ["": {opset}]> g '
    return ir.from_proto(onnx.parser.parse_model(header + text))


def differentiated(model: ir.Model, wrt: list[str]) -> list[Any]:
    """Add outputs g_<name>: the gradients of sum(u * y) over the float outputs y, with inputs u."""
    prepare(model)
    b, graph = Builder(model), model.graph
    seeds: dict[ir.Value, ir.Value] = {}
    for output in list(graph.outputs):
        if output.dtype is not None and output.dtype.is_floating_point():
            seeds[output] = ir.Value(name=f"u_{output.name}", type=output.type, shape=output.shape)
            graph.inputs.append(seeds[output])
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    found = gradients(b, seeds, [values[name] for name in wrt])
    for name, gradient in zip(wrt, found, strict=True):
        assert gradient is not None, name
        output = b.op("Identity", dense(b, gradient))
        output.name = f"g_{name}"
        graph.outputs.append(output)
    onnx.checker.check_model(to_proto(model), full_check=True)
    return found


def run(model: ir.Model, feeds: dict[str, Any]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session: Any = onnxruntime.InferenceSession(
        to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def check(text: str, feeds: dict[str, Any], opset: int = 18) -> ir.Model:
    """Compare the gradients of float feeds with difference quotients, in float64.

    The outputs have to be those that the model had before.
    """
    model = model_of(text.replace("float[", "double[").replace("float ", "double "), opset)
    wrt = [name for name, x in feeds.items() if np.asarray(x).dtype == np.float64]
    plain = run(model, feeds)
    rng = np.random.default_rng(3)
    seeds = {
        f"u_{k}": rng.standard_normal(y.shape) for k, y in plain.items() if y.dtype.kind == "f"
    }
    differentiated(model, wrt)
    found = run(model, {**feeds, **seeds})
    for name, y in plain.items():
        np.testing.assert_allclose(found[name], y, rtol=FLOAT32.rtol, atol=FLOAT32.atol)

    def loss(changed: dict[str, Any]) -> float:
        results = run(model, {**feeds, **seeds, **changed})
        return float(sum(np.sum(results[k[2:]] * u) for k, u in seeds.items()))

    for name in wrt:
        x, gradient = np.asarray(feeds[name]), found[f"g_{name}"]
        assert gradient.shape == x.shape
        v = rng.standard_normal(x.shape)
        numeric = (loss({name: x + STEP * v}) - loss({name: x - STEP * v})) / (2 * STEP)
        scale = float(np.sum(np.abs(v * gradient)))
        exact = float(np.sum(v * gradient))
        assert abs(numeric - exact) <= FLOAT32.rtol * scale + FLOAT32.atol, name
    return model


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)
