"""Read what a step model says about itself; what it names exists, once and in the right shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx_ir as ir

from amp_rewrite.base.fields import Misfit
from amp_rewrite.errors import StepError
from amp_rewrite.grad.builder.known import may_have
from amp_rewrite.graph import elements
from amp_rewrite.graph.added import origin
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.step_metadata import check_description, step_description
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

_Shape = tuple[int, ...]

_SCALARS = ("loss_scale", "good_steps", "skipped_steps", "consecutive_skips", "grads_finite")
"""Fetches that are single numbers."""


def check_info(info: StepInfo, graph: ir.Graph, where: object) -> None:
    """Refuse a description that does not fit its graph."""
    for find in (_inputs, _outputs, _values, _types, _scalars, _rows, _averages, _adapters):
        for misfit in find(info, graph):
            raise StepError(
                f"the metadata {STEP_KEY!r} of the model do not fit its graph: {misfit.key}",
                where=where,
                found=misfit.found,
                expected=misfit.expected,
                remedy="build the step again",
            )


def _inputs(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find what is not an input of the graph, and inputs that are described twice or not at all."""
    described = Counter((*info.names, *info.inputs))
    inputs = Counter(str(value.name) for value in graph.inputs)
    for name in (described - inputs) + (inputs - described):
        yield Misfit(
            "inputs",
            f"{name!r} missing, or described twice",
            "each input of the graph as a state or an input",
        )


def _outputs(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find next values that several states share."""
    for name, count in Counter(state.output for state in info.states).items():
        if count > 1:
            yield Misfit("states", f"{count} with the output {name!r}", "one each")


def _values(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find names of values that the graph does not have."""
    values = values_by_name(graph)
    for key, name in _named(info):
        if name not in values:
            yield Misfit(key, repr(name), "the name of a value")


def _types(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find states that differ from their inputs and next values, as far as these are known."""
    values = values_by_name(graph)
    for index, state in enumerate(info.states):
        for key, name in (("name", state.name), ("output", state.output)):
            value, expected = values[name], f"{state.dtype} {list(state.shape)}"
            dtype = elements.tensor(value.dtype) if value.dtype else None  # UNDEFINED is 0
            if dtype not in (None, f"tensor({state.dtype})") or not may_have(value, state.shape):
                yield Misfit(f"states[{index}].{key}", f"{name!r}, {dtype} {value.shape}", expected)


def _scalars(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find numbers of a loss scale that are tensors."""
    values = values_by_name(graph)
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
    for key in ("fetches", "gradients", "gradient_rows"):
        names: Mapping[str, str] | None = getattr(info, key)
        yield from ((f"{key}.{name}", value) for name, value in (names or {}).items())


def _rows(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find rows of gradients that there are not, and of what is no tensor of the graph."""
    for name in info.gradient_rows or {}:
        if name not in (info.gradients or {}) or name not in graph.initializers:
            yield Misfit("gradient_rows", repr(name), "the name of a variable that has a gradient")


def _averages(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find averages that are not states, or not those of a state of their shape."""
    shapes = _shapes(info)
    for name, average in (info.averages or {}).items():
        if name not in shapes:
            yield Misfit("averages", repr(name), "the name of a state")
        elif shapes.get(average) != shapes[name]:
            expected = f"a state of the shape {list(shapes[name])}"
            yield Misfit(f"averages.{name}", repr(average), expected)


def _adapters(info: StepInfo, graph: ir.Graph) -> Iterator[Misfit]:
    """Find adapters whose two states are not there, or do not fit each other and the weight."""
    shapes = _shapes(info)
    weights = {origin(name): value.shape for name, value in graph.initializers.items()}
    for index, adapter in enumerate(info.adapters):
        for key in ("a", "b"):
            name = getattr(adapter, key)
            if name not in shapes:
                yield Misfit(f"adapters[{index}].{key}", repr(name), "the name of a state")
                return
        a, b, weight = shapes[adapter.a], shapes[adapter.b], weights.get(adapter.weight)
        lengths = [list(a), list(b), None if weight is None else list(weight)]
        if not _fits(adapter, a, b, None if weight is None else tuple(weight.numpy())):
            yield Misfit(
                f"adapters[{index}]",
                f"A, B and the weight of the shapes {lengths[0]}, {lengths[1]} and {lengths[2]}",
                f"(in, {adapter.rank}), ({adapter.rank}, out) and "
                f"{'(out, in)' if adapter.output_first else '(in, out)'}",
            )


def _fits(adapter: Adapter, a: _Shape, b: _Shape, weight: _Shape | None) -> bool:
    """Return whether `A B` can be added to a weight, which may be stored elsewhere (None)."""
    if len(a) != 2 or len(b) != 2 or not a[1] == b[0] == adapter.rank:
        return False
    change = (b[1], a[0]) if adapter.output_first else (a[0], b[1])
    return weight is None or weight == change


def _shapes(info: StepInfo) -> dict[str, _Shape]:
    """Return the shapes of the states by name."""
    return {state.name: state.shape for state in info.states}


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
    info = _info(content)
    check_info(info, model.graph, where)
    return info


def _info(content: dict[str, Any]) -> StepInfo:
    states: list[dict[str, Any]] = content.pop("states")
    inputs: Iterable[str] = content.pop("inputs")
    for state in states:
        state["shape"] = tuple(state["shape"])
    adapters: list[dict[str, Any]] = content.pop("adapters", [])
    return StepInfo(
        states=tuple(StateInfo(**state) for state in states),
        adapters=tuple(Adapter(**adapter) for adapter in adapters),
        inputs=tuple(inputs),
        **content,
    )
