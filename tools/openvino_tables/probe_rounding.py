#!/usr/bin/env python3
"""Write what OpenVINO rounds once: lists/fusions/rounding_openvino_<version>.json, by probing.

Usage: probe_rounding.py [--output DIR]

OpenVINO runs models of two nodes in bfloat16 and tells which of them it computed as one. Takes a
minute; needs the extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.parser

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError
from amp_rewrite.kernels.rounding_table import FACTOR, OF_TENSORS, RECIPROCAL
from amp_rewrite.runtimes.openvino.compiled_model import Session
from amp_rewrite.runtimes.openvino.package import computes_in, import_runtime, runtime_version

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "lists" / "fusions"

ALONE = (
    *("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
    *("LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid"),
    *("Softplus", "Softsign", "Sqrt", "Tanh"),
    *("com.microsoft::FastGelu", "com.microsoft::Gelu"),
)
NORM = "BatchNormalization"
BIASED = "com.microsoft::BiasGelu"
PAIRED = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub")

ROWS, IMAGE = (1, 64, 64), (1, 64, 8, 8)
HEADS = {
    "Conv": (IMAGE, "Conv(x, w)", (64, 64, 1, 1), (1, 64, 1, 1)),
    "ConvTranspose": (IMAGE, "ConvTranspose(x, w)", (64, 64, 1, 1), (1, 64, 1, 1)),
    "Gemm": ((64, 64), "Gemm(x, w)", (64, 64), (64,)),
    "MatMul": (ROWS, "MatMul(x, w)", (64, 64), (64,)),
    "MatMul" + OF_TENSORS: (ROWS, "MatMul(x, x)", (1,), (1,)),
    "ReduceMean": ((64, 64), "ReduceMean(x, axis)", (1,), (1,)),
    "ReduceSum": ((64, 64), "ReduceSum(x, axis)", (1,), (1,)),
}
"""Operator -> the shape of its input, a call, the shape of its weights and of a constant."""

NUMBERS: dict[str, float] = {"none": 0.0, "six": 6.0}
"""Constants that calls read."""

CUT = {"Div": RECIPROCAL, "HardSigmoid": "alpha", "LeakyRelu": "alpha", "Mul": FACTOR}
"""Operators whose constants are not rounded to nearest, as emulate/folded_weights.py tells."""

FOLDED = {"Conv": [1, 2], "ConvTranspose": [1, 2], "Gemm": [1, 2], "MatMul": [1]}
"""Inputs into which constant factors go, as emulate/folded_weights.py tells."""


HEADER = '<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]> '


def model_of(shape: tuple[int, ...], body: str, **constants: tuple[int, ...]) -> onnx.ModelProto:
    """Return a bfloat16 model from x, and from z of the same shape if that is read, to y."""
    made = [*shape[:-1], 1] if "Reduce" in body else list(shape)
    dims, read = list(shape), ", bfloat16" + str(made) + " z" if "z" in body else ""
    text = f"g (bfloat16{dims} x{read}) => (bfloat16{made} y) <int64[1] axis = {{-1}}> {{ {body} }}"
    model = onnx.parser.parse_model(HEADER + text.replace("::", "."))
    random = np.random.default_rng(0)
    arrays = {name: 1 + random.random(size) for name, size in constants.items()}
    arrays |= {name: np.array(number) for name, number in NUMBERS.items() if name in body}
    for name, numbers in arrays.items():
        content = numbers.astype(BFLOAT16.numpy).tobytes()
        weight = onnx.helper.make_tensor(name, BFLOAT16.number, numbers.shape, content, raw=True)
        model.graph.initializer.append(weight)
    return model


def is_one(model: onnx.ModelProto) -> bool:
    """Tell whether what makes the value a is computed together with what reads it."""
    session = Session(model, threads=1, profile=True)
    feeds = {
        value.name: np.ones(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim], BFLOAT16.numpy
        )
        for value in model.graph.input
    }
    session.run(feeds)
    covered = [node.covers for node in session.ran_nodes()]
    with_end = [names for names in covered if "y" in names]
    return bool(with_end) and not any("a" in names for names in covered if "y" not in names)


def behind(head: str) -> dict[str, list[str]]:
    """Return the operators that are computed together with a product before them."""
    shape, call, weights, constant = HEADS[head]
    kinds = {
        "alone": [(op, f"y = {op}(a)") for op in ALONE],
        "constant": [(op, f"y = {op}(a, c)") for op in (*PAIRED, BIASED)],
        "tensor": [(op, f"y = {op}(a, z)") for op in PAIRED if op != "PRelu"],
    }
    if len(shape) > len(ROWS):
        kinds["constant"].append((NORM, f"y = {NORM}(a, n, n, n, n)"))
    found = {
        kind: [op for op, text in calls if takes(shape, call, text, weights, constant)]
        for kind, calls in kinds.items()
    }
    return {kind: list(dict.fromkeys(names)) for kind, names in found.items()}


def takes(
    shape: tuple[int, ...],
    call: str,
    text: str,
    weights: tuple[int, ...],
    constant: tuple[int, ...],
) -> bool:
    """Tell whether one more operator is computed together with a product."""
    try:
        return is_one(model_of(shape, f"a = {call} {text}", w=weights, c=constant, n=(64,)))
    except AmpError:
        return False


def together() -> list[str]:
    """Return the operators of one element that are computed together with an Abs before them."""
    calls = [(op, f"y = {op}(a)") for op in ALONE] + [(op, f"y = {op}(a, z)") for op in PAIRED]
    calls.append(("Clip", "y = Clip(a, none, six)"))
    found: list[str] = []
    for op, text in calls:
        try:
            if is_one(model_of(ROWS, f"a = Abs(x) {text}")):
                found.append(op)
        except AmpError:
            continue
    if is_one(model_of(IMAGE, f"a = Abs(x) y = {NORM}(a, n, n, n, n)", n=(64,))):
        found.append(NORM)
    return sorted(found)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write what OpenVINO rounds once.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    if not computes_in(BFLOAT16.name):
        sys.exit("the processor has no instructions for bfloat16")
    version = runtime_version(import_runtime())
    table = {
        "version": 1,
        "runtime": f"openvino {version}",
        "source": "tools/openvino_tables/probe_rounding.py",
        "together": together(),
        "behind": {head: behind(head) for head in HEADS},
        "folded": FOLDED,
        "cut": CUT,
    }
    path = options.output / f"rounding_openvino_{version.rpartition('.')[0]}.json"
    path.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    print(path)


if __name__ == "__main__":
    main()
