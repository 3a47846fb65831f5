"""Recurrences that exporters unrolled stay float32; layers that share their weights do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse, rewritten

import amp_rewrite as amp

TURN = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]) * 0.999
NUMBERS = {"a": np.kron(np.eye(4), TURN), "pole": np.full(8, 0.999), "b": np.eye(8) * 0.5}

# Each makes x{i} of x{j}, (1, 8), and of e, which layers give.
STEPS = {
    "MatMul": "p{i} = MatMul(x{j}, a) x{i} = Add(p{i}, e)",
    "Gemm": "x{i} = Gemm(x{j}, a, e)",
    "Mul": "p{i} = Mul(pole, x{j}) x{i} = Sub(p{i}, e)",
    "Einsum": 'p{i} = Einsum<equation = "ij,jk->ik">(x{j}, a) x{i} = Add(p{i}, e)',
    "a is turned": "t{i} = Transpose<perm = [1,0]>(a) p{i} = MatMul(x{j}, t{i}) "
    "x{i} = Add(e, p{i})",
    "a on the left": "u{i} = Transpose(x{j}) q{i} = MatMul(a, u{i}) p{i} = Transpose(q{i}) "
    "x{i} = Sum(p{i}, e)",
    "two weights": "q{i} = MatMul(x{j}, a) p{i} = MatMul(q{i}, b) x{i} = Add(p{i}, e)",
}
LAYERS = {
    "a bounded function": "p{i} = MatMul(x{j}, a) s{i} = Add(p{i}, e) x{i} = Tanh(s{i})",
    "Relu": "p{i} = MatMul(x{j}, a) s{i} = Add(p{i}, e) x{i} = Relu(s{i})",
    "normalization": "p{i} = MatMul(x{j}, a) s{i} = Add(p{i}, x{j}) "
    "x{i} = LayerNormalization(s{i}, pole)",
    "beside each other": "x{i} = MatMul(e, a)",
}


def model(step: str, steps: int) -> onnx.ModelProto:
    body = " ".join(step.format(i=k + 1, j=k) for k in range(steps))
    found = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] u) => (float[1,8] y)
        {{ [feed] e = MatMul(u, w) [start] x0 = MatMul(u, v) {body}
        [read] y = MatMul(x{steps}, c) }}"""
    )
    numbers, rng = dict(NUMBERS), np.random.default_rng(0)
    for name, shape in {"w": (16, 8), "v": (16, 8), "c": (8, 8)}.items():
        numbers[name] = rng.standard_normal(shape) / 4
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in numbers.items()]
    found.graph.initializer.extend(tensors)
    return found


def carried(result: amp.RewriteResult) -> list[str]:
    nodes = result.report.nodes
    return [n.op for n in nodes if "carried-state" in {v.reason for v in n.variables.values()}]


@pytest.mark.parametrize("step", STEPS)
def test_a_weight_that_multiplies_what_it_made_stays_float32(step: str) -> None:
    result = rewritten(model(STEPS[step], 12), target="cuda")
    assert len([op for op in carried(result) if op in {"MatMul", "Gemm", "Mul", "Einsum"}]) >= 12
    low = {n.name for n in result.report.nodes if n.variables["T"].dtype == "float16"}
    assert {"feed", "start", "read"} <= low


@pytest.mark.parametrize("step", STEPS)
def test_a_few_steps_are_left_alone(step: str) -> None:
    assert not carried(rewritten(model(STEPS[step], 4), target="cuda"))


@pytest.mark.parametrize("step", LAYERS)
def test_layers_that_share_a_weight_are_left_alone(step: str) -> None:
    result = rewritten(model(LAYERS[step], 12), target="cuda")
    assert not carried(result)
    assert result.report.summary.compute_converted == 1


def test_a_layer_between_two_products_ends_the_way() -> None:
    source = model(STEPS["MatMul"], 12)
    for node in source.graph.node:  # a weight of its own for each second step
        if node.input[1] == "a" and int(node.output[0][1:]) % 2:
            node.input[1] = f"a{node.output[0]}"
            array = np.eye(8, dtype=np.float32)
            source.graph.initializer.append(numpy_helper.from_array(array, node.input[1]))
    assert not carried(rewritten(source, target="cuda"))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_an_oscillator_of_many_steps_is_right(precision: Any) -> None:
    source = model(STEPS["MatMul"], 80)
    result = amp.rewrite(source, precision=precision)
    feeds = {"u": np.ones((1, 16), np.float32)}
    wanted, found = (amp.evaluate(m, feeds)["y"] for m in (source, result.model))
    error = np.linalg.norm(wanted - found) / np.linalg.norm(wanted)
    assert error < (0.002 if precision == "float16" else 0.01)
