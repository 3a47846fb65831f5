"""From a TrainOp to ModelProto.training_info."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.metadata_keys import ROLES_KEY
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.graph.traverse import inputs_of, remove_unused_nodes
from amp_rewrite.training.graph.weights import modernise
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.dropout import COUNTER
from amp_rewrite.training.step.step import check_train_op
from amp_rewrite.training.step.step_info import CONSTANT_UNLESS_UPDATED
from amp_rewrite.training.training_info.initialization import write_initialization
from amp_rewrite.training.training_info.roles import Roles

if TYPE_CHECKING:
    from amp_rewrite.training.optimizers.train_op import TrainOp

Array = np.ndarray[Any, Any]

_OLDEST_IR = 7
"""The IR version that introduced training_info."""


def write_training_info(
    train_op: TrainOp, values: Mapping[str, Array] | None = None
) -> onnx.ModelProto:
    """Return the inference model with a training step in the standard's own format.

    The algorithm holds what the inference graph does not compute: the loss, gradients and updates,
    in operators of ai.onnx, and what training computes in another way, such as Dropout. Every state
    with an update is bound to it. Roles and names go into the metadata of the algorithm, so that
    `read_training_info` gives an equal TrainOp. An initialization graph sets slots and counters
    back.

    Args:
        train_op: What `Optimizer.minimize` returned; not changed.
        values: State name -> its present value, for instance `session.state_dict()`; training then
            goes on from there, and there is no initialization graph. None takes initial values.
            The counter of Dropout's random numbers has no place in the format and is left out.

    Raises:
        StepError: `train_op` is not a training step.
        OptionError: `values` is not a mapping.
        DataError: A value is not an array.
        TrainingInfoError: A value is not that of a state, or has another shape.
        SaveError: The weights held in memory are too large for a protobuf message.
    """
    check_train_op(train_op)
    if values is not None:
        values = arguments.mapping("values", values, what="arrays by the names of states")
    initial = _initial(train_op, values)
    forward = train_op.graph.forward()
    modernise(forward)
    _assign(forward, initial)
    copied = _copied(train_op, initial)
    _keep_needed(copied)
    apart = _Apart(copied.model.graph, forward.graph)
    proto = to_proto(forward)
    proto.ir_version = max(proto.ir_version, _OLDEST_IR)
    del proto.training_info[:]
    _write(proto, copied, apart)
    if values is None:
        own = {t.name for t in proto.training_info[0].algorithm.initializer}
        write_initialization(
            proto.training_info[0],
            {name: initial[name] for name in initial if name in own & copied.updates.keys()},
        )
    return proto


def _initial(train_op: TrainOp, values: Mapping[str, Array] | None) -> dict[str, ir.TensorProtocol]:
    """Return initializer -> its tensor, for every state."""
    states = train_op.graph.states
    unknown = sorted(map(str, set(values or ()) - {*states, COUNTER}))
    if unknown:
        raise TrainingInfoError(
            "no state has this name", where=unknown[0], expected=f"one of {', '.join(states)}"
        )
    tensors: dict[str, ir.TensorProtocol] = {}
    for name, state in states.items():
        initial = state.initial
        if values is not None and name in values:
            initial = arguments.array(name, values[name])
        if tuple(initial.shape) != state.shape:
            raise TrainingInfoError(
                "the value does not fit the state",
                where=name,
                found=tuple(initial.shape),
                expected=state.shape,
            )
        key = str(state.value.name)
        if isinstance(initial, np.ndarray):
            if initial.dtype != state.dtype.numpy():
                raise TrainingInfoError(
                    "the value has another type than the state",
                    where=name,
                    found=initial.dtype,
                    expected=dtype_name(state.dtype),
                )
            initial = ir.tensor(initial, dtype=state.dtype, name=key)
        tensors[key] = initial
    return tensors


def _assign(model: ir.Model, tensors: Mapping[str, ir.TensorProtocol]) -> None:
    for name, tensor in tensors.items():
        value = model.graph.initializers.get(name)
        if value is not None:
            value.const_value = tensor


@dataclass
class _Copied:
    """A copy of a training graph, and what a training_info says about it.

    Attributes:
        model: The copy.
        updates: Initializer -> its value after the step.
        fetches: Name that a session knows -> value.
        loss: What is minimized.
        roles: Initializer that is a state -> its role.
        loss_scale: The configuration of the loss scale, or None.
        loss_scales: Those of several losses.
    """

    model: ir.Model
    updates: dict[str, ir.Value]
    fetches: dict[str, ir.Value]
    loss: ir.Value | None
    roles: dict[str, str]
    loss_scale: Mapping[str, Any] | None
    loss_scales: Sequence[Mapping[str, Any]]


def _copied(train_op: TrainOp, initial: Mapping[str, ir.TensorProtocol]) -> _Copied:
    model = clone(train_op.graph.model)
    _assign(model, initial)
    values = values_by_name(model.graph)
    states = train_op.graph.states
    keys = {name: str(state.value.name) for name, state in states.items()}
    kept = {name: state.value for name, state in states.items() if state.kept}
    updates = {**train_op.updates, **{n: v for n, v in kept.items() if n not in train_op.updates}}
    return _Copied(
        model=model,
        updates={keys[name]: values[str(v.name)] for name, v in updates.items()},
        fetches={name: values[str(v.name)] for name, v in train_op.fetches.items()},
        loss=None if train_op.loss is None else values[train_op.loss.name],
        roles={
            keys[name]: state.role
            for name, state in states.items()
            if name in updates or state.role not in CONSTANT_UNLESS_UPDATED
        },
        loss_scale=train_op.loss_scale,
        loss_scales=train_op.loss_scales,
    )


def _keep_needed(copied: _Copied) -> None:
    """Remove what neither updates nor fetches need."""
    graph = copied.model.graph
    graph.outputs.clear()
    wanted = [*copied.updates.values(), *copied.fetches.values()]
    wanted += [] if copied.loss is None else [copied.loss]
    graph.outputs.extend(dict.fromkeys(wanted))
    remove_unused_nodes(graph)
    for name, value in list(graph.initializers.items()):
        if not (value.uses() or value.is_graph_output() or name in copied.updates):
            del graph.initializers[name]


class _Apart:
    """A training graph of which what the inference graph computes is known.

    Attributes:
        graph: The training graph; values that only it computes have names of their own.
        shared: The nodes that the inference graph computes.
        names: The names of the inference graph.
        outputs: The names of its outputs.
    """

    def __init__(self, graph: ir.Graph, inference: ir.Graph) -> None:
        """Compare the graphs, and rename values of the first."""
        self.graph = graph
        self.names = set(values_by_name(inference))
        self.outputs = {str(v.name) for v in inference.outputs}
        self.shared = _shared_nodes(graph, inference)
        self._free = FreeNames(self.names | set(values_by_name(graph)))
        for node in graph:
            if node in self.shared:
                continue
            for value in node.outputs:
                if value.name in self.names:
                    value.name = self._free.take(f"{value.name}/training")

    def as_output(self, value: ir.Value) -> ir.Value:
        """Return a value that may be bound: it, or a copy where the algorithm did not make it."""
        producer = value.producer()
        if producer is not None and (producer not in self.shared or value.name in self.outputs):
            return value
        name = self._free.take(f"{value.name}/next")
        node = ir.node("Identity", [value], name=name)
        copy = node.outputs[0]
        copy.name, copy.type, copy.shape = name, value.type, value.shape
        self.graph.append(node)
        return copy


def _shared_nodes(training: ir.Graph, inference: ir.Graph) -> set[ir.Node]:
    """Return the nodes of a training graph that compute what nodes of the inference graph do.

    Those have (1) the same operator and attributes, (2) the same names of inputs and outputs, and
    (3) inputs, those of their subgraphs included, that are shared as well.
    """
    originals = {_key(node): node for node in inference}
    names = {v.name for v in (*inference.inputs, *inference.initializers.values())}
    ends = (*training.inputs, *training.initializers.values())
    values = {value for value in ends if value.name in names}
    shared: set[ir.Node] = set()
    for node in training:
        other = originals.get(_key(node))
        if other is None or any(v not in values for v in inputs_of(node)):
            continue
        if _content(node) == _content(other):
            shared.add(node)
            values.update(node.outputs)
    return shared


def _key(node: ir.Node) -> tuple[object, ...]:
    inputs = tuple(v and v.name for v in node.inputs)
    return (node.op_identifier(), inputs, tuple(v.name for v in node.outputs))


def _content(node: ir.Node) -> bytes:
    """Return operator, inputs, outputs and attributes as bytes; names and notes are left out."""
    proto = ir.serde.serialize_node(node)
    for field in ("name", "doc_string", "metadata_props"):
        proto.ClearField(field)
    attributes = sorted(proto.attribute, key=lambda attribute: attribute.name)
    del proto.attribute[:]
    proto.attribute.extend(attributes)
    return proto.SerializeToString(deterministic=True)


def _write(proto: onnx.ModelProto, copied: _Copied, apart: _Apart) -> None:
    """Append a training_info to the inference model."""
    info = proto.training_info.add()
    bound = {key: apart.as_output(value) for key, value in copied.updates.items()}
    fetched = [*copied.fetches.values(), *([] if copied.loss is None else [copied.loss])]
    wanted = dict.fromkeys([*(v for v in fetched if v.producer() is not None), *bound.values()])
    graph = copied.model.graph
    graph.outputs.clear()
    graph.outputs.extend(wanted)
    for name in graph.initializers.keys() & apart.names:  # the inference graph holds their content
        del graph.initializers[name]
    for key, value in bound.items():
        info.update_binding.add(key=key, value=str(value.name))
    whole = to_proto(copied.model)
    _write_algorithm(info.algorithm, whole.graph, copied, apart)
    for imported in whole.opset_import:
        if imported.domain not in {entry.domain for entry in proto.opset_import}:
            proto.opset_import.append(imported)
    functions = {(f.domain, f.name, f.overload) for f in proto.functions}
    proto.functions.extend(
        f for f in whole.functions if (f.domain, f.name, f.overload) not in functions
    )


def _write_algorithm(
    algorithm: onnx.GraphProto, whole: onnx.GraphProto, copied: _Copied, apart: _Apart
) -> None:
    algorithm.name = "training"
    pairs = zip(whole.node, copied.model.graph, strict=True)
    algorithm.node.extend(proto for proto, node in pairs if node not in apart.shared)
    algorithm.initializer.extend(whole.initializer)
    algorithm.sparse_initializer.extend(whole.sparse_initializer)
    algorithm.input.extend(v for v in whole.input if v.name not in apart.names)
    algorithm.output.extend(v for v in whole.output if v.name not in apart.outputs)
    algorithm.value_info.extend(v for v in whole.value_info if v.name not in apart.names)
    present = apart.names | {t.name for t in whole.initializer}
    roles = Roles(
        states={name: role for name, role in copied.roles.items() if name in present},
        loss=None if copied.loss is None else str(copied.loss.name),
        fetches={name: str(value.name) for name, value in copied.fetches.items()},
        loss_scale=copied.loss_scale,
        loss_scales=copied.loss_scales,
    )
    algorithm.metadata_props.add(key=ROLES_KEY, value=roles.to_json())
