"""Builds the painting cases of painting.json, a line each, as ONNX models."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FILE = Path(__file__).with_name("painting.json")
SEED = 1234
ELEMENTS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
MODES = {
    "fp16_cuda": ("float16", None),
    "fp16_cpu": ("float16", "fp16_cpu"),
    "bf16": ("bfloat16", "bf16"),
}


@cache
def document() -> dict[str, Any]:
    return json.loads(FILE.read_text("utf-8"))


def lists_of(mode: str) -> dict[str, Any]:
    """Return the four lists of a mode: the file's lists with the mode's differences."""
    lists = {name: list(ops) for name, ops in document()["lists"].items()}
    difference = MODES[mode][1]
    if difference is not None:
        for key, ops in document()["lists_diff"][difference]["diff_from_fp16_cuda"].items():
            if key == "note":
                continue
            name, action = key.split("_")
            if action == "remove":
                lists[name] = [op for op in lists[name] if op not in ops]
            else:
                lists[name] += ops
    return lists


def build(case: dict[str, Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model of a case and its graph inputs' values."""
    rng = np.random.default_rng(SEED)
    feeds = {v["name"]: _array(v, rng) for v in case.get("graph_inputs", [])}
    weights = [(v["name"], _array(v, rng)) for v in case.get("initializers", [])]
    graph = helper.make_graph(
        [_node(n) for n in case["nodes"]],
        case["name"],
        [_value(v) for v in case.get("graph_inputs", [])],
        [_value(v) for v in case["outputs"]],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    imports = [helper.make_opsetid("", case["opset"])]
    functions = [_function(f, case["opset"]) for f in case.get("functions", [])]
    imports += [helper.make_opsetid(d, 1) for d in sorted({f.domain for f in functions})]
    return (
        helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10),
        feeds,
    )


def _array(spec: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    data, shape = spec["data"], spec["shape"]
    dtype = np.dtype(ml_dtypes.bfloat16 if spec["dtype"] == "bfloat16" else spec["dtype"])
    match data["kind"]:
        case "fill":
            return np.full(shape, data["value"]).astype(dtype)
        case "eye":
            return np.eye(*shape).astype(dtype)
        case "uniform":
            return rng.uniform(data["low"], data["high"], shape).astype(dtype)
        case _:
            return np.array(data["values"]).reshape(shape).astype(dtype)


def _value(spec: dict[str, Any]) -> onnx.ValueInfoProto:
    dtype = spec["dtype"]
    if dtype.startswith("seq("):
        element = ELEMENTS[dtype[4:-1]]
        return helper.make_tensor_sequence_value_info(spec["name"], element, spec.get("shape"))
    return helper.make_tensor_value_info(spec["name"], ELEMENTS[dtype], spec.get("shape"))


def _node(spec: dict[str, Any]) -> onnx.NodeProto:
    attributes = {name: _attribute(v) for name, v in spec.get("attrs", {}).items()}
    return helper.make_node(
        spec["op"],
        spec["inputs"],
        spec.get("outputs", [spec["name"]]),
        name=spec["name"],
        domain=spec.get("domain", ""),
        **attributes,
    )


def _attribute(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return ELEMENTS[value["dtype"]]
    graph = value["graph"]
    return helper.make_graph(
        [_node(n) for n in graph["nodes"]],
        graph["name"],
        [_value(v) for v in graph["inputs"]],
        [_value(v) for v in graph["outputs"]],
        [
            numpy_helper.from_array(_array(v, np.random.default_rng(SEED)), v["name"])
            for v in graph.get("initializers", [])
        ],
    )


def _function(spec: dict[str, Any], opset: int) -> onnx.FunctionProto:
    return helper.make_function(
        spec["domain"],
        spec["name"],
        spec["inputs"],
        spec["outputs"],
        [_node(n) for n in spec["nodes"]],
        [helper.make_opsetid("", opset)],
    )
