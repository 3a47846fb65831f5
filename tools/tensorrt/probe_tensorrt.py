#!/usr/bin/env python3
"""Write the kernel table of TensorRT by probing: lists/kernels/TensorRT_<version>.json.

Usage: probe_tensorrt.py [--output DIR]

TensorRT-RTX parses and builds the models of kernel_probe.py. Takes some minutes; needs what
tensorrt_judge.py needs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from kernel_probe import DEFAULT_OUTPUT, Probe
from tensorrt_judge import Judge

PROVIDER = "TensorRT"


def probe_of(judge: Judge) -> Probe:
    """Return a probe that asks whether an engine can be made of a model."""

    def builds(model: onnx.ModelProto) -> bool:
        return bool(judge.judge(model.SerializeToString(), build=True).built)

    return Probe(PROVIDER, builds)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the kernel table of TensorRT.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    judge = Judge()
    runtime, source = f"TensorRT-RTX {judge.version}", "tools/tensorrt/probe_tensorrt.py"
    probe_of(judge).all().write(options.output, runtime, judge.version, source)


if __name__ == "__main__":
    main()
