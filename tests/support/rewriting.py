"""Rewriting ONNX text: parse, rewrite, check every invariant, rewrite again, print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer

import amp_rewrite as amp
from amp_rewrite.graph.invariants.check_model import verify_invariants
from amp_rewrite.oplists import OpLists, load_lists

HEADER = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>'


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


def assert_rewrites(before: str, after: str, **options: Any) -> amp.RewriteResult:
    """Check that one text becomes the other; equal texts mean an unchanged model."""
    result = rewritten(before, **options)
    expected, found = lines(onnx.printer.to_text(parse(after).graph)), lines(text_of(result))
    assert found == expected, "\n".join(found)
    unchanged = lines(onnx.printer.to_text(parse(before).graph)) == expected
    assert result.changed == (not unchanged)
    return result


def lines(graph: str) -> list[str]:
    """Return the printed graph line by line, without value_info and the suffix of added names."""
    short = graph.replace("-AutoMixedPrecision", "")
    short = re.sub(r'\["[^"]*CastTo[^"]*"\] ', "", short)
    return [" ".join(line.split()) for line in short.splitlines() if line.strip()]


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
