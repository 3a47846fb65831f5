"""Read what a step model says about itself; what it names exists, once and in the right shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.base.fields import Misfit
from amp_rewrite.errors import StepError
from amp_rewrite.grad.builder.known import may_have
from amp_rewrite.graph import elements
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.step_metadata import check_description, step_description
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

_SCALARS = ("loss_scale", "good_steps", "skipped_steps", "consecutive_skips", "grads_finite")
"""Fetches that are single numbers."""


def _misfits(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find what of a description does not fit its graph."""
    described = Counter((*info.names, *info.inputs))
    inputs = Counter(str(value.name) for value in graph.inputs)
    for name in (described - inputs) + (inputs - described):
        found = f"{name!r} missing, or described twice"
        yield Misfit("inputs", found, "each input of the graph as a state or an input")
    for name, count in Counter(state.output for state in info.states).items():
        if count > 1:
            yield Misfit("states", f"{count} with the output {name!r}", "one each")
    values = values_by_name(graph)
    for key, name in _named(info):
        if name not in values:
            yield Misfit(key, repr(name), "the name of a value")
    yield from _types(info, values)
    shapes = {state.name: state.shape for state in info.states}
    for name, average in (info.averages or {}).items():
        if name not in shapes:
            yield Misfit("averages", repr(name), "the name of a state")
        elif shapes.get(average) != shapes[name]:
            expected = f"a state of the shape {list(shapes[name])}"
            yield Misfit(f"averages.{name}", repr(average), expected)


def _types(info: StepInfo, values: Mapping[str, ir.Value]) -> Iterator[Misfit]:
    """Find states and scalars that differ from their values, as far as these are known."""
    for index, state in enumerate(info.states):
        for key, name in (("name", state.name), ("output", state.output)):
            value, expected = values[name], f"{state.dtype} {list(state.shape)}"
            dtype = elements.tensor(value.dtype) if value.dtype else None  # UNDEFINED is 0
            if dtype not in (None, f"tensor({state.dtype})") or not may_have(value, state.shape):
                yield Misfit(f"states[{index}].{key}", f"{name!r}, {dtype} {value.shape}", expected)
    for name, value in info.fetches.items():
        if name in _SCALARS and not may_have(values[value], ()):
            yield Misfit(f"fetches.{name}", repr(value), "the name of a scalar")


def _named(info: StepInfo) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of every value that a description names."""
    for index, state in enumerate(info.states):
        yield f"states[{index}].output", state.output
    for key in ("loss", "seed", "boundary"):
        name: str | None = getattr(info, key)
        if name is not None:
            yield key, name
    for key in ("fetches", "gradients"):
        names: Mapping[str, str] | None = getattr(info, key)
        yield from ((f"{key}.{name}", value) for name, value in (names or {}).items())


def read_info(model: ir.Model, where: object = None) -> StepInfo:
    """Return the description of a step model."""
    if STEP_KEY not in model.metadata_props:
        raise StepError(
            "not a training step",
            where=where,
            found=f"a model without metadata {STEP_KEY!r}",
            remedy="make a step with amp-rewrite train-step, or with build_step",
        )
    check_description(model, where, complete=True)
    content = step_description(model)
    del content["version"]
    entries: list[dict[str, Any]] = content.pop("states")
    states = tuple(replace(StateInfo(**s), shape=tuple(s["shape"])) for s in entries)
    info = StepInfo(states=states, inputs=tuple(content.pop("inputs")), **content)
    for misfit in _misfits(info, model.graph):
        raise StepError(
            f"the metadata {STEP_KEY!r} of the model do not fit its graph: {misfit.key}",
            where=where,
            found=misfit.found,
            expected=misfit.expected,
            remedy="build the step again",
        )
    return info
