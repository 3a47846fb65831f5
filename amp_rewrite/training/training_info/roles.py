"""What the mutable tensors of a training algorithm are: variables, slots, counters."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.graph.metadata_keys import ROLES_KEY
from amp_rewrite.training.builder.known import is_float
from amp_rewrite.training.training_info.lower import is_gradient, is_optimizer

_SCALARS = 2  # R and T
_SLOTS = {"Adagrad": 1, "Adam": 2, "Momentum": 1}


@dataclass(frozen=True)
class Roles:
    """What a training algorithm is made of.

    Attributes:
        states: Initializer -> its role, as `grad.State` knows it.
        loss: The name of the value that is minimized, or None if it is not known.
        fetches: Name that a session knows -> value.
        loss_scale: The configuration of the loss scale, or None.
        loss_scales: Those of several losses.
    """

    states: Mapping[str, str] = field(default_factory=dict)
    loss: str | None = None
    fetches: Mapping[str, str] = field(default_factory=dict)
    loss_scale: Mapping[str, Any] | None = None
    loss_scales: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> str:
        """Return the roles as deterministic JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Roles:
        """Return the roles that `to_json` wrote.

        Raises:
            TrainingInfoError: It did not.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise TrainingInfoError(
                "the metadata of the algorithm cannot be read", where=ROLES_KEY, found=error
            ) from error


def find_roles(graph: ir.Graph, updates: Mapping[str, str], own: Collection[str]) -> Roles:
    """Infer roles from the training operators of a combined graph, and from types.

    R of an optimizer is a learning rate and T, before or after its update, the global step; its
    tensors are variables, their gradients, and slots. What no optimizer reads is a variable if it
    is of a floating-point type, else a slot. What a Gradient differentiates is the loss, else the
    only floating-point scalar among the outputs that are no update.
    """
    states: dict[str, str] = {}
    updated = {following: name for name, following in updates.items()}
    losses: dict[str | None, None] = {}
    for node in graph:
        if is_gradient(node):
            losses.setdefault(node.attributes.get_string("y"))
        elif is_optimizer(node):
            _of_optimizer(node, states, updated, graph)
    for name in updates:
        value = graph.initializers[name]
        states.setdefault(name, "variable" if is_float(value) else "slot")
    if not losses:
        outputs = {v.name: v for v in graph.outputs}
        losses = dict.fromkeys(name for name in own if _may_be_loss(outputs.get(name)))
    loss = next(iter(losses)) if len(losses) == 1 else None
    kept = {n: r for n, r in states.items() if n in updates or r == "learning_rate"}
    return Roles(kept, loss, {} if loss is None else {"loss": loss})


def _of_optimizer(
    node: ir.Node, states: dict[str, str], updated: Mapping[str, str], graph: ir.Graph
) -> None:
    count = (len(node.inputs) - 2) // (2 + _SLOTS[node.op_type])
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        name = str(value.name)
        if index == 1:
            name = updated.get(name, name)
        initializer = graph.initializers.get(name)
        if initializer is None:
            continue
        if index >= _SCALARS:
            role = "variable" if index - _SCALARS < count else "slot"
        elif initializer.shape is not None and len(initializer.shape):
            role = "slot"  # a session sets and reads scalars only
        else:
            role = ("learning_rate", "global_step")[index]
        states.setdefault(name, role)


def _may_be_loss(value: ir.Value | None) -> bool:
    if value is None or value.dtype is None or value.shape is None:
        return False
    return value.dtype.is_floating_point() and not len(value.shape)
