"""Operators that others spell: the spelling computes what the kernel does, and has its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_nodes import close
from gradient_table import (
    STEP,
    Array,
    Constant,
    Fed,
    Input,
    Row,
    dense,
    forward,
    runner,
)

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.prepare import prepare
from amp_rewrite.grad.rules import FORMULAS
from amp_rewrite.graph.traits import operator

MICROSOFT = "com.microsoft"


def fused(op: str, inputs: Sequence[Input], attributes: Any = None, **more: Any) -> Row:
    return Row(op, tuple(inputs), attributes or {}, domain=MICROSOFT, **more)


def ints(*shape: int, below: int, dtype: Any = np.int64) -> Fed:
    return Fed(np.random.default_rng(3).integers(0, below, shape).astype(dtype))


def packed(*shape: int) -> Constant:
    return Constant(ints(*shape, below=256, dtype=np.uint8).value)


X = (2, 3, 4)
ACTIVATIONS = [
    fused("Gelu", [X]),
    fused("BiasGelu", [X, (4,)]),
    fused("FastGelu", [X]),
    fused("FastGelu", [X, (4,)]),
    fused("QuickGelu", [X]),
    fused("QuickGelu", [X], {"alpha": 0.7}),
]
PRODUCTS = [
    fused("FusedMatMul", [(2, 3, 4), (2, 4, 5)], {"alpha": 0.3}),
    fused("FusedMatMul", [(2, 4, 3), (5, 4)], {"transA": 1, "transB": 1}),
    fused("FusedMatMul", [(4,), (2, 4, 3)], {"transA": 1}),
    fused("TransposeMatMul", [(4, 3), (5, 4)], {"transA": 1, "transB": 1, "alpha": 2.0}),
    fused("FusedGemm", [(3, 4), (4, 5), (5,)], {"activation": "Relu", "alpha": 0.5}),
    fused(
        "FusedGemm",
        [(3, 4), (5, 4)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    fused(
        "FusedConv",
        [(1, 2, 5, 5), (4, 1, 3, 3), (4,)],
        {"activation": "Relu", "group": 2, "pads": [1, 0, 1, 0]},
    ),
    fused("FusedConv", [(1, 2, 5, 5), (3, 2, 2, 2), None, (1, 3, 4, 4)], {"activation": "Tanh"}),
    fused("FusedConv", [(1, 1, 5), (2, 1, 3)], {"activation": "Sigmoid"}),
    *(
        fused(
            "FusedConv", [(1, 1, 5), (2, 1, 3)], {"activation": name, "activation_params": numbers}
        )
        for name, numbers in [
            ("LeakyRelu", [0.3]),
            ("Clip", [-0.4, 0.7]),
            ("HardSigmoid", [0.3, 0.4]),
        ]
    ),
]
NORMALIZED = [
    fused("SkipLayerNormalization", [X, X, (4,), (4,), (4,)], {"epsilon": 1e-3}, outputs=4),
    fused("SkipLayerNormalization", [X, (3, 4), (4,)], outputs=1),
    fused("SkipSimplifiedLayerNormalization", [X, X, (4,), (4,)], outputs=4),
    fused("SkipSimplifiedLayerNormalization", [X, (1, 3, 4), (4,)]),
    fused(
        "EmbedLayerNormalization",
        [
            ints(2, 3, below=5, dtype=np.int32),
            ints(2, 3, below=2, dtype=np.int32),
            (5, 4),
            (6, 4),
            (2, 4),
            (4,),
            (4,),
            ints(2, 3, below=2, dtype=np.int32),
        ],
        outputs=3,
    ),
    fused(
        "EmbedLayerNormalization",
        [
            ints(2, 3, below=5, dtype=np.int32),
            None,
            (5, 4),
            (6, 4),
            None,
            (4,),
            (4,),
            None,
            ints(2, 3, below=6, dtype=np.int32),
        ],
        outputs=2,
    ),
]
BYTES = ints(2, 6, below=200, dtype=np.uint8)
STORED = [
    Row("DequantizeLinear", (BYTES, ()), opset=16),
    Row("DequantizeLinear", (BYTES, (1,), Constant(np.array([3], np.uint8))), opset=19),
    Row("DequantizeLinear", (BYTES, (6,), ints(6, below=9, dtype=np.uint8)), opset=16),
    Row("DequantizeLinear", (BYTES, (2,)), {"axis": -2}, opset=21),
    Row(
        "DequantizeLinear",
        (BYTES, (2, 3), ints(2, 3, below=9, dtype=np.uint8)),
        {"block_size": 2},
        opset=21,
    ),
    Row("DequantizeLinear", (ints(2, 3, below=9, dtype=np.int32), ()), opset=23),
    fused("DequantizeLinear", [BYTES, (6,), ints(6, below=9, dtype=np.uint8)], {"axis": 1}),
    *(
        fused(
            "MatMulNBits",
            [(2, 3, length), packed(5, blocks, 16 * bits // 8), (5, blocks), zeros, None, bias],
            {"K": length, "N": 5, "bits": bits, "block_size": 16},
        )
        for length, blocks, bits, zeros, bias in [
            (32, 2, 4, None, None),
            (40, 3, 4, packed(5, 2), (5,)),
            (32, 2, 8, packed(5, 2), None),
        ]
    ),
]
ROWS = [*ACTIVATIONS, *PRODUCTS, *NORMALIZED, *STORED]


def spelled(row: Row, dtype: ir.DataType) -> tuple[ir.Model, list[str]]:
    """Return a row's model with the formula in place of the node, and the outputs that it has."""
    model = forward(row, dtype, static=True)
    prepare(model)
    [node], b = model.graph, Builder(model)
    results = FORMULAS[operator(node)](node, b)
    model.graph.outputs.clear()
    names: list[str] = []
    for own, result in zip(node.outputs, results, strict=False):
        own.name, name = f"own_{own.name}", own.name
        if result is not None:
            output = b.op("Identity", result)
            output.name = name
            model.graph.outputs.append(output)
            names.append(str(name))
    model.graph.remove(node, safe=True)
    return model, names[: row.differentiable]


def fed(row: Row, dtype: ir.DataType) -> dict[str, Array]:
    kind = dtype.numpy()
    found = {**row.floats(), **row.fed()}
    return {k: v.astype(kind) if v.dtype == np.float64 else v for k, v in found.items()}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_spelling_computes_what_the_kernel_does(row: Row) -> None:
    model, names = spelled(row, ir.DataType.FLOAT)
    feeds = fed(row, ir.DataType.FLOAT)
    expected = runner(forward(row, ir.DataType.FLOAT, static=True), row, ir.DataType.FLOAT)
    for one, other in zip(
        runner(model, row, ir.DataType.FLOAT)(names, feeds), expected(names, feeds), strict=True
    ):
        close(one, other)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_a_spelling_equals_the_difference_quotient(row: Row) -> None:
    model, names = spelled(row, ir.DataType.DOUBLE)
    plain, feeds = runner(model, row, ir.DataType.DOUBLE), fed(row, ir.DataType.DOUBLE)
    rng = np.random.default_rng(11)
    seeds = {
        name: rng.standard_normal(y.shape)
        for name, y in zip(names, plain(names, feeds), strict=True)
    }
    found = vjp(row, seeds)
    for name, gradient in found.items():
        assert gradient.shape == feeds[name].shape
        direction = rng.standard_normal(gradient.shape)
        ahead, behind = (
            sum(
                float(np.sum(y * u))
                for y, u in zip(
                    plain(names, {**feeds, name: np.asarray(feeds[name] + step * direction)}),
                    seeds.values(),
                    strict=True,
                )
            )
            for step in (STEP, -STEP)
        )
        scale = float(np.sum(np.abs(direction * gradient)))
        exact = float(np.sum(direction * gradient))
        assert abs((ahead - behind) / (2 * STEP) - exact) <= 64 * FLOAT32.rtol * max(scale, 1), name


def vjp(row: Row, seeds: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of a row's own node, in float32 in ONNX Runtime."""
    model = forward(row, ir.DataType.FLOAT, static=True)
    prepare(model)
    b, graph = Builder(model), model.graph
    outputs = {str(v.name): v for v in graph.outputs}
    arriving: dict[ir.Value, ir.Value] = {}
    for name in seeds:
        seed = ir.Value(name=f"u_{name}", type=ir.TensorType(ir.DataType.FLOAT))
        seed.shape = ir.Shape(seeds[name].shape)
        graph.inputs.append(seed)
        arriving[outputs[name]] = seed
    inputs = [v for v in graph.inputs if v.name in row.floats()]
    graph.outputs.clear()
    for value, gradient in zip(inputs, gradients(b, arriving, inputs), strict=True):
        assert gradient is not None, value.name
        output = b.op("Identity", dense(b, gradient))
        output.name = f"g_{value.name}"
        graph.outputs.append(output)
    feeds = fed(row, ir.DataType.FLOAT) | {f"u_{k}": v.astype("f") for k, v in seeds.items()}
    names = [f"g_{v.name}" for v in inputs]
    found = runner(model, row, ir.DataType.FLOAT)(names, feeds)
    return {str(v.name): g for v, g in zip(inputs, found, strict=True)}
