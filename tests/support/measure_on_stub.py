"""Measure a small model on the CUDA provider's stub, with made-up times: run by its interpreter.

    measure_on_stub.py FOLDER ...     FOLDER: where packages are that the stub's environment lacks

Nothing computes there, so that times mean nothing: the profile is read as it is, but for how long
nodes took. A JSON line tells what came of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

sys.path += sys.argv[1:]  # behind the stub's own packages, of which onnxruntime is one

import numpy as np
import onnx
import onnx.parser

import amp_rewrite as amp
from amp_rewrite.numerics import measured_conversion
from amp_rewrite.numerics.measure.contest import Budget, Times
from amp_rewrite.numerics.measured_conversion import CUT, Measurement
from amp_rewrite.runtimes.ort import sessions
from amp_rewrite.runtimes.ort.profiles import read_profile
from amp_rewrite.runtimes.session import RanNode
from amp_rewrite.targets import CUDA

SIZE = 64
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[64,64] x) => (float[64,64] y) {
    h = MatMul(x, w) a = Add(h, b) s = Softmax(a) k = MatMul(s, w)
    z = Relu(k) m = MatMul(z, v) t = Add(m, b) y = MatMul(t, w) }"""
SLOW = "m"
"""The product that takes longer in float16 than in float32, whatever a real device does."""

MILLISECONDS = {"float32": 10.0, CUT: 4.0}


def model() -> onnx.ModelProto:
    """Return the model, with weights."""
    found = onnx.parser.parse_model(MODEL)
    for name, shape in (("w", (SIZE, SIZE)), ("v", (SIZE, SIZE)), ("b", (SIZE,))):
        held = np.random.default_rng(0).normal(0, 0.1, shape).astype(np.float32)
        found.graph.initializer.append(onnx.numpy_helper.from_array(held, name))
    return found


def made_up(path: str, results: Mapping[str, tuple[str, ...]]) -> tuple[RanNode, ...]:
    """Return the nodes of a real profile, with times that are made up."""
    return tuple(
        RanNode(n.name, n.op, n.provider, _took(n), n.type, n.covers, n.results)
        for n in read_profile(path, results)
    )


def _took(node: RanNode) -> int:
    if "MatMul" not in node.op and "Gemm" not in node.op:
        return 2
    is_slow = any(result.startswith(SLOW) or result == "t" for result in node.results)
    return 500 if is_slow and node.type == "float16" else 100 if node.type == "float16" else 400


def timed(forms: Mapping[str, Any], budget: Budget, *_: object) -> dict[str, Times]:
    """Run all forms once, and make up their times."""
    for run in forms.values():
        budget.take(run)
    return {name: Times((MILLISECONDS.get(name, 8.0) / 1000,)) for name in forms}


def main() -> None:
    """Print what was measured."""
    sessions.read_profile = made_up
    measured_conversion.timed_in_turn = timed
    given, feeds = model(), {"x": np.ones((SIZE, SIZE), np.float32)}
    first = amp.convert(given, [feeds], target="cuda")

    def judge(result: amp.RewriteResult) -> amp.Conversion:
        return amp.convert(given, [feeds], result.options)

    found = Measurement(given, first, feeds, CUDA, judge, lambda _: None).fastest()
    choice = found.choice
    assert choice is not None
    low = found.result.plan.retyped
    flat = found.result.flat
    told = {
        "chosen": choice.chosen,
        "lines": choice.lines,
        "low": sorted(flat.value_names[value] for value in low),
        "nodes": {k: dict(v) for k, v in choice.costs.nodes.items()},
        "together": choice.costs.together,
        "casts": {row.to: row.rate.call for row in choice.costs.casts},
        "device": [choice.device, choice.costs.driver, choice.runtime],
        "otherwise": choice.otherwise,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
