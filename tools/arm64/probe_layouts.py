#!/usr/bin/env python3
"""Say which operators ONNX Runtime does not load in float16 on Arm, and at which opsets.

Usage: probe_layouts.py [OPERATOR ...]

ONNX Runtime moves channels to the last axis around convolutions, and leaves some operators there
without a kernel. Each operator of NODES is put between two convolutions, at each of OPSETS, and
loaded on the Arm processor (AMP_REWRITE_ARM64, see make_arm64.py). What is found here stands in
UNLOADABLE of tools/kernel_rows.py.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import onnx
import onnx.parser
from arm_processor import check_machine, open_on_arm
from onnx import numpy_helper

from amp_rewrite.errors import AmpError, RunError
from amp_rewrite.graph.io.load import load

OPSETS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)

_ONE_INPUT = (
    *("GlobalAveragePool", "GlobalMaxPool", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Elu"),
    *("Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Softmax"),
    *("Identity", "Sqrt", "Exp", "Neg", "Abs", "Reciprocal", "Clip"),
)

NODES = {
    **{op: f"n = {op}(h)" for op in _ONE_INPUT},
    **{op: f"n = {op}(h, h)" for op in ("Add", "Sub", "Mul", "Div", "Sum", "MatMul")},
    "MaxPool": "n = MaxPool<kernel_shape = [2, 2]>(h)",
    "AveragePool": "n = AveragePool<kernel_shape = [2, 2]>(h)",
    "Conv": "n = Conv(h, w)",
    "ConvTranspose": "n = ConvTranspose(h, w)",
    "BatchNormalization": "n = BatchNormalization(h, s, s, s, s)",
    "Add of a constant": "n = Add(h, one)",
    "Add of an input": "n = Add(h, x)",
    "Gelu, spelled out": "d = Div(h, root) e = Erf(d) f = Add(e, one) p = Mul(h, f) "
    "n = Mul(p, half)",
    "BiasGelu, spelled out": "b = Add(h, one) d = Div(b, root) e = Erf(d) f = Add(e, one) "
    "p = Mul(b, f) n = Mul(p, half)",
    "SiLU, spelled out": "d = Sigmoid(h) n = Mul(h, d)",
}

_CONSTANTS = {
    "w": np.full((4, 4, 1, 1), 0.5),
    "s": np.full(4, 0.5),
    "one": np.ones(1),
    "half": np.full(1, 0.5),
    "root": np.full(1, 2**0.5),
}


def model(nodes: str, opset: int) -> onnx.ModelProto:
    """Return a float16 model with nodes between two convolutions; x is (1, 4, 8, 8)."""
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float16[1,4,8,8] x) => '
        f"(float16[A,B,C,D] y) {{ h = Conv(x, w) {nodes} y = Conv(n, w) }}"
    )
    for name, array in _CONSTANTS.items():
        tensor = numpy_helper.from_array(array.astype(np.float16), name)
        made.graph.initializer.append(tensor)
    return made


def probe(nodes: str, opset: int) -> str:
    """Return "loads", why it does not, or "" where ONNX has no such node at the opset."""
    made = model(nodes, opset)
    try:
        onnx.checker.check_model(made)
        loaded = load(made)
    except (onnx.checker.ValidationError, AmpError):
        return ""
    try:
        open_on_arm(loaded)
    except RunError as error:
        return error.found or error.what
    return "loads"


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each operator and answer; return 1 if there is no Arm processor."""
    parser = argparse.ArgumentParser(description="Probe float16 operators between convolutions.")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    names: list[str] = parser.parse_args(arguments).operators or list(NODES)
    try:
        check_machine()
        for name in names:
            found: dict[str, list[int]] = {}
            for opset in OPSETS:
                found.setdefault(probe(NODES[name], opset), []).append(opset)
            for answer, opsets in found.items():
                if answer:
                    print(f"{name} at {', '.join(map(str, opsets))}: {answer}", flush=True)
    except AmpError as error:
        print(f"probe_layouts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
