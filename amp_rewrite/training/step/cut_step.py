"""Cut a step down to what was asked for: outputs, what they need, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import FetchError
from amp_rewrite.grad.backward_loop import drop_unused_history
from amp_rewrite.grad.builder.known import copy_of, input_of, maker, take_place
from amp_rewrite.graph import elements
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.graph.traverse import nodes_in, remove_unused_nodes
from amp_rewrite.numerics.emulate.type_attributes import LOW_MEMBERS
from amp_rewrite.training.step.step_info import StepInfo

_THEN, _ELSE = "then_branch", "else_branch"


def values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return the values of the main graph that can be fetched, by name."""
    values = {v.name: v for v in graph.initializers.values() if v.name}
    values.update({v.name: v for v in graph.inputs if v.name})
    for node in graph:
        values.update({v.name: v for v in node.outputs if v.name})
    return values


def cut_step(
    model: ir.Model,
    info: StepInfo,
    fetches: Iterable[str],
    *,
    updates: bool = True,
    defaults: bool = True,
) -> StepInfo:
    """Leave the part of a step that computes `fetches` and the next state; describe it.

    It is an ordinary ONNX model whose outputs are the fetches, in order, and then the next states,
    if `updates`. What a rewritten step computes in float16 or bfloat16 is fetched as float32, which
    numpy knows. Without `defaults` the model is small, and every state must be fed.
    """
    names = list(dict.fromkeys(fetches))
    graph = model.graph
    values = values_by_name(graph)
    targets = [_resolve(values, info, name) for name in names]
    next_states = [(s, values[s.output]) for s in info.states] if updates else []
    graph.outputs.clear()
    taken = {state.output for state, _ in next_states}
    outputs: dict[str, str] = {}
    for name, target in zip(names, targets, strict=True):
        if info.precision != FLOAT32.name and target.dtype in LOW_MEMBERS:
            wide = f"{name}:{FLOAT32.name}"
            cast = ir.node("Cast", [target], {"to": FLOAT32.ir.value}, name=f"fetch/{wide}")
            cast.outputs[0].name, cast.outputs[0].shape = wide, target.shape
            cast.outputs[0].type = ir.TensorType(FLOAT32.ir)
            graph.append(cast)
            target = cast.outputs[0]
        value = _as_output(graph, target, taken, f"{name}:value")
        graph.outputs.append(value)
        outputs[name] = str(value.name)
    for _, value in next_states:
        graph.outputs.append(value)
    remove_unused(graph)
    remove_inputs(graph, {s.name for s, _ in next_states})
    declare_types(model, graph.outputs)
    kept = values_by_name(graph).keys()
    gradients = info.gradients and {k: v for k, v in info.gradients.items() if v in kept}
    described = replace(
        info,
        states=tuple(s for s in info.states if s.name in kept),
        inputs=tuple(name for name in info.inputs if name in kept),
        fetches=outputs,
        seed=info.seed if info.seed in kept else None,
        boundary=info.boundary if info.boundary in kept else None,
        gradients=gradients,
    )
    if not defaults:
        for name in described.names:
            graph.initializers.pop(name).const_value = None
    model.metadata_props[STEP_KEY] = described.to_json()
    return described


def _resolve(values: dict[str, ir.Value], info: StepInfo, name: str) -> ir.Value:
    value = values.get(info.fetches.get(name, name))
    if value is not None:
        return value
    names = sorted({*info.fetches, *values})
    select = "fetch one of these; values inside a conditional update need conditional='select'"
    raise FetchError(
        f"the step computes no value {name!r}",
        found=f"{len(names)} other names",
        expected=f"one of {', '.join(sorted(info.fetches))} or the name of a value of the step",
        remedy=did_you_mean(name, names) or select,
    )


def _as_output(graph: ir.Graph, value: ir.Value, taken: set[str], name: str) -> ir.Value:
    """Return `value`, or a copy of it where a value cannot be this output itself."""
    passed_through = value.producer() is None
    if not passed_through and value.name not in taken:
        taken.add(str(value.name))
        return value
    copy = copy_of(value, name, node=f"fetch/{name}")
    graph.append(maker(copy))
    taken.add(name)
    return copy


def remove_unused(graph: ir.Graph) -> None:
    """Remove nodes and initializers that no output needs, and what loops give out for none."""
    remove_unused_nodes(graph)
    drop_unused_history(graph)
    for name, value in list(graph.initializers.items()):
        if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
            del graph.initializers[name]


def remove_inputs(graph: ir.Graph, updated: Collection[str] = ()) -> None:
    """Remove inputs that nothing reads; a state that is updated stays, read or not."""
    unused = [v for v in graph.inputs if not v.uses() and v.name not in updated]
    for value in unused:
        graph.inputs.remove(value)
        graph.initializers.pop(str(value.name), None)


def declare_types(model: ir.Model, values: Iterable[ir.Value]) -> None:
    """Record the types of values that become inputs and outputs, where they can be inferred."""
    missing = [value for value in values if value.type is None]
    types = infer_types(model) if missing else {}
    for value in missing:
        if value in types:
            value.type = elements.to_ir(types[value])


@dataclass(frozen=True)
class Stage:
    """A part of a step: a model that reads states, data, and values of earlier stages or sums.

    `enters` are the names of the latter, and `leaves` those of its outputs.
    """

    model: ir.Model
    enters: tuple[str, ...]
    leaves: tuple[str, ...]


def stage_of(model: ir.Model, enters: Iterable[ir.Value], leaves: Sequence[ir.Value]) -> Stage:
    """Return the part of a step of known types that computes some values from others."""
    part = clone(model)
    graph = part.graph
    values = values_by_name(graph)
    graph.outputs.clear()
    graph.outputs.extend(values[str(v.name)] for v in leaves)
    names = [str(v.name) for v in enters]
    for name in names:
        old = values[name]
        new = ir.Value(name=name, type=old.type, shape=old.shape)
        old.name = f"{name}:outside"
        graph.inputs.append(new)
        ir.convenience.replace_all_uses_with(old, new)
    remove_unused(graph)
    remove_inputs(graph)
    return Stage(part, tuple(names), tuple(str(v.name) for v in leaves))


def resolve_updates(model: ir.Model, boundary: str, *, last: bool) -> None:
    """Leave what one batch of an update computes, in place; what another one needs is unused then.

    So shards sum no gradients before the last batch, for no If or Where asks for them. `boundary`
    names the value that tells whether a batch is the last one.
    """
    graph = model.graph
    decided = {values_by_name(graph)[boundary]: last}
    for node in list(graph):
        truths = [decided.get(v) for v in node.inputs if v is not None]
        if node.domain or all(known_truth is None for known_truth in truths):
            continue
        if node.op_type == "Not":
            decided[node.outputs[0]] = not truths[0]
        elif node.op_type == "Or" and True in truths:
            decided[node.outputs[0]] = True
        elif node.op_type == "And" and False in truths:
            decided[node.outputs[0]] = False
        elif node.op_type == "Where" and truths[0] is not None:
            _replace(graph, node, [input_of(node, 1 if truths[0] else 2)])
        elif node.op_type == "If":
            _replace(graph, node, _taken_out(graph, node, _THEN if truths[0] else _ELSE))
    for value, truth in decided.items():
        _replace(graph, maker(value), [_constant(graph, maker(value), truth)])


def _taken_out(graph: ir.Graph, node: ir.Node, name: str) -> list[ir.Value]:
    """Move the nodes of a branch of an If in front of it; return what the branch gave out."""
    branch = node.attributes[name].as_graph()
    outputs = list(branch.outputs)
    branch.outputs.clear()
    nodes = list(branch)
    branch.remove(nodes)
    graph.insert_before(node, nodes)
    return outputs


def _constant(graph: ir.Graph, node: ir.Node, truth: bool) -> ir.Value:
    constant = ir.node("Constant", [], {"value": ir.tensor(np.array(truth))})
    graph.insert_before(node, constant)
    constant.outputs[0].name = f"{node.outputs[0].name}:decided"
    constant.outputs[0].type, constant.outputs[0].shape = node.outputs[0].type, ir.Shape(())
    return constant.outputs[0]


def _replace(graph: ir.Graph, node: ir.Node, values: list[ir.Value]) -> None:
    """Put values in the place of a node's outputs, whose names are kept."""
    origin = dict(node.metadata_props)
    for inside in nodes_in(node):
        for index in range(len(inside.inputs)):
            inside.replace_input_with(index, None)  # for reading keeps a value
    for old, value in zip(node.outputs, values, strict=True):
        copy = ir.node("Identity", [value], metadata_props=origin)
        graph.insert_before(node, copy)
        take_place(copy.outputs[0], old)
    graph.remove(node, safe=True)
