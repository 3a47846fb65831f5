"""What a training step says about itself in its metadata, as far as rewriting needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

STEP_KEY = "amp_rewrite.step"
"""The key of `metadata_props` under which a step model describes itself."""


def step_description(model: ir.Model) -> dict[str, Any]:
    """Return what a training step says about itself; empty for any other model."""
    return _decoded(model.metadata_props.get(STEP_KEY, "{}"))


def _decoded(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def state_names(model: ir.Model) -> frozenset[str]:
    """Return the names of the states of a training step; none for any other model."""
    states = step_description(model).get("states", ())
    return frozenset(str(s["name"]) for s in states if isinstance(s, dict) and "name" in s)


def describe_precision(model: ir.Model, precision: str) -> None:
    """Let a training step say what it computes in; other models are left alone."""
    description = step_description(model)
    if description:
        description["precision"] = precision
        model.metadata_props[STEP_KEY] = json.dumps(description, sort_keys=True)


def without_precision(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return a model's metadata without what a rewrite changes in them: a step's precision."""
    if STEP_KEY not in metadata:
        return dict(metadata)
    description = _decoded(metadata[STEP_KEY])
    description.pop("precision", None)
    return {**metadata, STEP_KEY: description}
