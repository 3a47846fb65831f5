"""A repaired model passes `check` and a second repair changes nothing."""

from __future__ import annotations

from typing import Any

import onnx
from worker_loop import BrokenLawError

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.rewriting.raise_dangers import low_of
from amp_rewrite.rewriting.read_source import read_source


def repaired_twice(model: Any, target: str, *, run: bool = False, **options: Any) -> amp.Repair:
    """Repair a model for a target, check the result, and repair it again.

    Dangers of inputs and outputs that keep their type are no fault: `repair` names them as well.
    Of a result without 16-bit types there is nothing to repair; `check` tells of its conversion.

    Raises:
        BrokenLawError: `check` finds a danger, or the second repair changes something.
    """
    low = low_of(read_source(model, inline_functions=True))
    if low is not None:
        options["precision"] = low.name
    made = amp.repair(model, target=target, **options)
    asked: dict[str, Any] = {"target": target, "run": run, "precision": made.precision}
    found = amp.check(made.model, **asked)
    if found.computes == FLOAT32.name:
        return made
    stay = {danger.node for danger in made.stay}
    left = [f"{d.reason} of {d.node}" for d in found.dangers if d.node not in stay]
    if left or (run and not found.ok):
        raise BrokenLawError(f"check finds {left}: {found.verdict}")
    again = amp.repair(made.model, target=target, **options)
    if again.changed:
        raise BrokenLawError(f"a second repair raises {[d.node for d in again.dangers]}")
    if bytes_of(again.model) != bytes_of(made.model):
        raise BrokenLawError("a second repair writes other bytes")
    return made


def bytes_of(model: Any) -> bytes:
    """Return the bytes of a model in memory."""
    proto: onnx.ModelProto = amp.to_proto(model)
    return proto.SerializeToString(deterministic=True)
