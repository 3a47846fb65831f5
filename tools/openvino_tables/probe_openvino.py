#!/usr/bin/env python3
"""Write the kernel table of OpenVINO by probing: lists/kernels/OpenVINO_<version>.json.

Usage: probe_openvino.py [--output DIR]

OpenVINO compiles the models of kernel_probe.py for a CPU, each node in its own type, and runs them
on ones. Takes minutes; needs the extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
from kernel_probe import DEFAULT_OUTPUT, Probe, of_text

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError
from amp_rewrite.runtimes.openvino.compiled_model import Session
from amp_rewrite.runtimes.openvino.package import computes_in, import_runtime, runtime_version
from amp_rewrite.targets import OPENVINO

X, ROWS = "float[1,4,8] x", "=> (float[1,4,8] y)"
CONTRIB = (
    f"g ({X}, float[8,24] w, float[24] b) {ROWS}"
    " { y = com.microsoft.Attention<num_heads = 2>(x, w, b) }",
    f"g ({X}, float[8] b) {ROWS} {{ y = com.microsoft.BiasGelu(x, b) }}",
    f"g ({X}, float[8] b) {ROWS} {{ y = com.microsoft.FastGelu(x, b) }}",
    f"g ({X}) {ROWS} {{ y = com.microsoft.Gelu(x) }}",
    f"g ({X}) {ROWS} {{ y = com.microsoft.QuickGelu<alpha = 1.0>(x) }}",
    f"g ({X}, float[8,8] w) {ROWS} {{ y = com.microsoft.FusedMatMul<alpha = 0.5>(x, w) }}",
    "g (float[4,8] x, float[8,8] w, float[8] b) => (float[4,8] y)"
    ' { y = com.microsoft.FusedGemm<activation = "Relu">(x, w, b) }',
    "g (float[1,2,4,4] x, float[2,2,1,1] w, float[2] b) => (float[1,2,4,4] y)"
    ' { y = com.microsoft.FusedConv<activation = "Relu">(x, w, b) }',
    f"g ({X}, float[1,4,8] s, float[8] g, float[8] b) {ROWS}"
    " { y = com.microsoft.SkipLayerNormalization(x, s, g, b) }",
    f"g ({X}, float[1,4,8] s, float[8] g) {ROWS}"
    " { y = com.microsoft.SkipSimplifiedLayerNormalization(x, s, g) }",
    f"g ({X}, float[8] g) {ROWS} {{ y = SimplifiedLayerNormalization(x, g) }}",
    f"g ({X}, float[1,4,8] k, float[1,4,8] v) {ROWS}"
    " { y = com.microsoft.MultiHeadAttention<num_heads = 2>(x, k, v) }",
    f"g ({X}, int64[1,4] p, float[8,2] c, float[8,2] s) {ROWS}"
    " { y = com.microsoft.RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4>(x, p, c, s) }",
)
"""Calls of operators of ONNX Runtime that OpenVINO has rules for, as its optimised models have."""


def ones(value: onnx.ValueInfoProto) -> np.ndarray:
    """Return an array of ones for an input of a model."""
    given = value.type.tensor_type
    shape = [dim.dim_value for dim in given.shape.dim]
    return np.ones(shape, onnx.helper.tensor_dtype_to_np_dtype(given.elem_type))


def takes(model: onnx.ModelProto) -> bool:
    """Tell whether OpenVINO compiles a model and runs it."""
    if not all(value.type.HasField("tensor_type") for value in model.graph.input):
        return False
    feeds = {value.name: ones(value) for value in model.graph.input}
    try:
        Session(model, threads=1).run(feeds)
    except AmpError:
        return False
    return True


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the kernel table of OpenVINO.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    if not computes_in(BFLOAT16.name):
        sys.exit("the processor has no instructions for bfloat16")
    version = runtime_version(import_runtime())
    runtime, source = f"openvino {version}", "tools/openvino_tables/probe_openvino.py"
    probe = Probe(OPENVINO, takes, (BFLOAT16,)).all()
    for text in CONTRIB:
        probe.call(of_text(text))
    probe.write(options.output, runtime, version, source)


if __name__ == "__main__":
    main()
