"""Rewriting ONNX text: parse, rewrite, check every invariant, rewrite again, print."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.parser
import onnx.printer
import pytest
from invariants import verify_invariants
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import LOW
from amp_rewrite.graph.metadata_keys import PART_KEY, SOURCE_KEY, STEP_KEY
from amp_rewrite.oplists import OpLists, load_lists

HEADER = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>'

SIXTEEN_BITS = frozenset(low.number for low in LOW.values())


def needs_opset(opset: int) -> pytest.MarkDecorator:
    """Return a mark that skips a test where the installed onnx is older than an opset."""
    newest = onnx.defs.onnx_opset_version()
    return pytest.mark.skipif(newest < opset, reason=f"this onnx ends at opset {newest}")


@cache
def lists_of(precision: str) -> OpLists:
    """Parse the built-in lists once, not for each of hundreds of models."""
    return load_lists(None, precision=precision, target="cuda")


def parse(text: str) -> onnx.ModelProto:
    """Parse a model; a text that starts with a graph gets `HEADER`."""
    text = text.strip()
    return onnx.parser.parse_model(text if text.startswith("<") else f"{HEADER}\n{text}")


def rewritten(source: str | onnx.ModelProto, **options: Any) -> amp.RewriteResult:
    """Rewrite a model for target schema; every invariant holds, and twice is once."""
    model = parse(source) if isinstance(source, str) else source
    before = model.SerializeToString(deterministic=True)
    precision = options.setdefault("precision", "float16")
    options.setdefault("target", "schema")
    options.setdefault("lists", lists_of(precision))
    result = amp.rewrite(model, **options)
    assert model.SerializeToString(deterministic=True) == before, "the input was modified"
    keep = options.get("keep_io_types", True)
    violations = verify_invariants(amp.load(model), result.model, keep_io_types=keep)
    assert not violations, "\n".join([*map(str, violations), text_of(result)])
    again = amp.rewrite(result.model, **_again(options, result))
    assert not again.changed, f"a second rewrite changes the model:\n{text_of(again)}"
    assert amp.to_proto(again.model) == amp.to_proto(result.model)
    return result


def _again(options: Mapping[str, Any], result: amp.RewriteResult) -> dict[str, Any]:
    """Return the options without the names of ends and nodes that the rewrite removed."""
    names = {node.name for node in result.model.graph.all_nodes()}
    kept = [name for name in options.get("preserve", ()) if name in names]
    return {**options, "preserve": kept}


def text_of(result: amp.RewriteResult) -> str:
    """Return the rewritten graph as text."""
    return onnx.printer.to_text(amp.to_proto(result.model).graph)


def reasons(result: amp.RewriteResult) -> dict[str, str]:
    """Return node (its operator if that is unique) -> the reason of its first variable."""
    nodes = [n for n in result.report.nodes if n.variables and n.op != "Constant"]
    operators = [n.op for n in nodes]
    return {
        (n.op if operators.count(n.op) == 1 else n.name): next(iter(n.variables.values())).reason
        for n in nodes
    }


def actions(result: amp.RewriteResult) -> dict[str, str]:
    """Return constant out of range -> what became of it."""
    return {r.name: r.action for r in result.report.weights.overflow}


def initializer(result: amp.RewriteResult, name: str) -> np.ndarray:
    """Return the contents of an initializer of the rewritten model."""
    graph = amp.to_proto(result.model).graph
    return next(numpy_helper.to_array(t) for t in graph.initializer if t.name == name)


def assert_rewrites(before: str | onnx.ModelProto, after: str, **options: Any) -> amp.RewriteResult:
    """Check that one text becomes the other; equal texts mean an unchanged model.

    In `after` an added value may be written short: `x_fp16` is "x-CastToFp16-0" or "x-Fp16-0". The
    types of inner values count if `after` gives any.
    """
    model = parse(before) if isinstance(before, str) else before
    result = rewritten(model, **options)
    expected, found = parse(after).graph, amp.to_proto(result.model).graph
    if not expected.value_info:
        del found.value_info[:]
    assert lines(found) == lines(expected), "\n".join(lines(found))
    assert result.changed == (lines(model.graph) != lines(expected))
    return result


def lines(graph: onnx.GraphProto) -> list[str]:
    """Return the graph printed line by line, with the names of added nodes and values short."""
    text = onnx.printer.to_text(_with_numbers(graph)).replace("-AutoMixedPrecision", "")
    text = re.sub(r'\["[^"]*CastTo[^"]*"\] ', "", text)
    text = re.sub(r'"([^"]+)-(?:CastTo)?((?:F|B)[pf]\d\d)-0"', _short, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _with_numbers(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return a copy whose 16-bit tensors are stored as numbers; onnx 1.20 prints no others."""
    copied = onnx.GraphProto()
    copied.CopyFrom(graph)
    attributes = [a for node in copied.node for a in node.attribute]
    for tensor in (*copied.initializer, *(a.t for a in attributes if a.HasField("t"))):
        if tensor.data_type in SIXTEEN_BITS and tensor.raw_data:
            tensor.int32_data.extend(np.frombuffer(tensor.raw_data, np.uint16).tolist())
            tensor.ClearField("raw_data")
    return copied


def _short(name: re.Match[str]) -> str:
    return f"{name[1]}_{name[2].lower()}"


def step(text: str, parts: Mapping[str, str], loss: str = "") -> onnx.ModelProto:
    """Parse a training step.

    Args:
        text: The model.
        parts: Node -> its part, such as "update", or "gradient of NODE".
        loss: The name of the loss.
    """
    model = parse(text)
    for node in model.graph.node:
        part, _, source = parts.get(node.name, "").partition(" of ")
        if part:
            node.metadata_props.add(key=PART_KEY, value=part)
        if source:
            node.metadata_props.add(key=SOURCE_KEY, value=source)
    if loss:
        model.metadata_props.add(key=STEP_KEY, value=json.dumps({"loss": loss}))
    return model


def feeds_of(model: onnx.ModelProto, seed: int = 0, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Return a normally distributed array for every float32 input, ones for the others."""
    rng = np.random.default_rng(seed)
    initialized = {i.name for i in model.graph.initializer}
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in initialized or not value.type.HasField("tensor_type"):
            continue
        shape = [d.dim_value or 2 for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        noise = scale * rng.standard_normal(shape)
        feeds[value.name] = noise.astype(dtype) if dtype.kind == "f" else np.ones(shape, dtype)
    return feeds


def assert_close(
    result: amp.RewriteResult,
    source: str | onnx.ModelProto,
    feeds: Mapping[str, Any] | None = None,
    factor: float = 4.0,
) -> dict[str, Any]:
    """Check that the emulated result is finite wherever float32 is, and close to it."""
    model = parse(source) if isinstance(source, str) else source
    given = feeds_of(model) if feeds is None else feeds
    low = result.options.low
    expected, found = amp.evaluate(model, given), amp.evaluate(amp.to_proto(result.model), given)
    assert list(found) == list(expected)
    for name, reference in expected.items():
        a, b = np.asarray(reference, np.float64), np.asarray(found[name], np.float64)
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=1.0))
        np.testing.assert_allclose(b, a, rtol=factor * low.rtol, atol=factor * low.atol * scale)
    return found
