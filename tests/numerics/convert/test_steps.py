"""The steps of a conversion: each model is read, typed and painted once; what Python and the
command do is the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.cli import main
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.rewriting.paint.pipeline import paint

BLOCK = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,N,8] x) => (float[2,N,8] y) <float[8,8] w = {%s}, float[8,8] v = {%s}> {
  [a] q = MatMul(x, w)
  [b] r = %s(q)
  [c] s = MatMul(r, v)
  [d] y = Add(s, x) }"""

CONV = """<ir_version: 9, opset_import: ["" : 18]>
g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,3,3] w = {%s}> {
  [a] h = Conv <pads = [1, 1, 1, 1]> (x, w)
  [b] y = Relu(h) }"""


def numbers(count: int, seed: int, size: float = 0.2) -> str:
    return ",".join(f"{n:.4f}" for n in np.random.default_rng(seed).normal(0, size, count))


def block(middle: str, size: float = 0.2) -> onnx.ModelProto:
    return onnx.parser.parse_model(BLOCK % (numbers(64, 0, size), numbers(64, 1, size), middle))


def data(shape: tuple[int, ...], size: float = 1.0) -> np.ndarray:
    return (size * np.random.default_rng(2).normal(0, 1, shape)).astype(np.float32)


def conv() -> onnx.ModelProto:
    return onnx.parser.parse_model(CONV % numbers(108, 3))


SMALL, LARGE = (2, 3, 8), data((2, 3, 8), 9000.0)
CASES: dict[str, tuple[onnx.ModelProto, np.ndarray, dict[str, Any], list[str]]] = {
    "default": (block("Relu"), data(SMALL), {}, []),
    "deny": (block("Exp"), data(SMALL), {"deny_nodes": ["b"]}, ["--deny-node", "b"]),
    "overflow": (block("Relu", 0.9), LARGE, {"overflow": "keep"}, ["--overflow", "keep"]),
    "rtol": (block("Tanh"), data(SMALL), {"rtol": 1e-4}, ["--rtol", "1e-4"]),
    "bfloat16": (block("Erf"), data(SMALL), {"precision": "bfloat16"}, ["--precision", "bfloat16"]),
    "target": (block("Sigmoid"), data(SMALL), {"target": "webgpu"}, ["--target", "webgpu"]),
    "ends": (block("Neg"), data(SMALL), {"keep_io_types": False}, ["--no-keep-io-types"]),
    "arm": (block("Relu"), data(SMALL), {"target": "cpu-arm64"}, ["--target", "cpu-arm64"]),
    "openvino": (
        conv(),
        data((1, 3, 8, 8)),
        {"precision": "bfloat16", "target": "openvino"},
        ["--precision", "bfloat16", "--target", "openvino"],
    ),
    "opset": (conv(), data((1, 3, 8, 8)), {"opset": 20}, ["--opset", "20"]),
}


@pytest.mark.parametrize("case", CASES)
def test_python_writes_the_file_that_the_command_writes(case: str, tmp_path: Path) -> None:
    model, x, options, words = CASES[case]
    given, feeds = tmp_path / "m.onnx", tmp_path / "x.npz"
    onnx.save(model, given)
    np.savez(feeds, x=x)
    by_command, by_python = tmp_path / "command.onnx", tmp_path / "python.onnx"
    report = tmp_path / "report.json"
    taken = ("convert", given, "-o", by_command, "--data", feeds, "--write-failed", *words)
    taken = (*taken, "--report", report)
    with pytest.raises(SystemExit):
        main([*map(str, taken)])
    made = amp.convert(given, feeds, **options)
    made.save(by_python, write_failed=True)
    assert by_python.read_bytes() == by_command.read_bytes()
    assert made.report.to_dict()["opset_raised"] == json.loads(report.read_text())["opset_raised"]


def counted(counts: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **options: Any) -> Any:
        counts[name] += 1
        return function(*arguments, **options)

    return called


@pytest.mark.parametrize("case", ["default", "overflow", "target"])
def test_one_conversion_reads_types_and_paints_a_model_once(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amp_rewrite.graph import build_type_graph, infer
    from amp_rewrite.graph.io import read_flat
    from amp_rewrite.rewriting.plan import paint_context

    model, x, options, _ = CASES[case]
    path, counts = tmp_path / "m.onnx", Counter[str]()
    onnx.save(model, path)
    typed: list[FlatGraph] = []

    def inferred(graph: FlatGraph, *arguments: Any) -> Any:
        typed.append(graph)
        return infer_before(graph, *arguments)

    infer_before = infer.infer
    monkeypatch.setattr(infer, "infer", inferred)
    for module, name, function in (
        (read_flat, "_parse", read_flat._parse),  # pyright: ignore[reportPrivateUsage]
        (paint_context, "build_type_graph", build_type_graph.build_type_graph),
        (paint_context, "paint", paint),
    ):
        monkeypatch.setattr(module, name, counted(counts, name, function))
    made = amp.convert(path, {"x": x}, **options)
    assert made.verification.feeds == 1
    assert counts["_parse"] == 1
    assert counts["build_type_graph"] <= 2
    assert counts["paint"] <= 2
    assert len(typed) == len({id(graph) for graph in typed}), "a form was typed twice"
