"""Ways to break a converted model on purpose, and the same break in the float32 model.

What a break does is measured in float32: a break that moves no output by more than the rounding of
the conversion itself breaks nothing that anybody could see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from amp_rewrite.graph.added import SUFFIX, origin
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_object import infer_types

Array = np.ndarray[Any, np.dtype[Any]]

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES = {"tensor(float)": 1, "tensor(float16)": 10, "tensor(bfloat16)": 16}

WEIGHTS: Mapping[str, Callable[[Array], Array]] = {
    "a weight zeroed": np.zeros_like,
    "a sign flipped": np.negative,
    "a scale halved": lambda numbers: numbers * 0.5,
}
"""What becomes of the numbers of a weight."""

VALUES = ("a Cast to int", "a state reset")
"""What becomes of a value: its fractions are lost, or it is zero."""

KINDS = (*WEIGHTS, *VALUES)


@dataclass(frozen=True)
class Breakage:
    """One thing that is wrong with a model.

    Attributes:
        kind: One of KINDS.
        place: The weight, by the name in the original, or the value.
    """

    kind: str
    place: str

    def __str__(self) -> str:
        """Return what is wrong, and where."""
        return f"{self.kind}: {self.place}"

    def applied(self, model: ModelProto) -> ModelProto | None:
        """Return a broken copy; None where the model has no such place."""
        broken = ModelProto()
        broken.CopyFrom(model)
        if self.kind in WEIGHTS:
            found = [t for t in _weights(broken.graph) if _name(t) == self.place]
            for tensor in found:
                _change(tensor, WEIGHTS[self.kind])
            return broken if found else None
        type_ = types_of(model).get(self.place)
        for graph in graphs_in(broken.graph):
            if type_ is not None and _change_value(graph, self.place, self.kind, type_):
                return broken
        return None


def drawn(model: ModelProto, seed: int) -> Iterator[Breakage]:
    """Yield breakages of a model in a random order that a seed decides, each kind in its turn."""
    rng = np.random.default_rng(seed)
    types = types_of(model)
    weights = sorted({_name(t) for t in _weights(model.graph)})
    values = sorted(
        output
        for graph in graphs_in(model.graph)
        for node in graph.node
        if node.op_type != "Constant" and len(node.output) == 1
        for output in node.output
        if output in types
    )
    states = sorted(n for n in _states(model.graph) if n in types)
    turns = {kind: list(rng.permutation(weights)) for kind in WEIGHTS}
    turns |= {kind: list(rng.permutation(values)) for kind in VALUES}
    turns["a state reset"] = [*rng.permutation(states), *turns["a state reset"]]
    while any(turns.values()):
        for kind, places in turns.items():
            if places:
                yield Breakage(kind, str(places.pop(0)))


def graphs_in(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs_in(attribute.g)


def types_of(model: ModelProto) -> dict[str, int]:
    """Return the types of the float values of a model, by name."""
    known = infer_types(load(model)).items()
    return {value.name or "": _TYPES[type_] for value, type_ in known if type_ in _TYPES}


def largest_move(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Return how far any output moves, relative to its largest magnitude; infinite if it is lost.

    Of integers and booleans it is the share that differs.
    """
    return max((_move(np.asarray(before[n]), np.asarray(after[n])) for n in before), default=0.0)


def _move(before: Array, after: Array) -> float:
    if before.shape != after.shape:
        return np.inf
    if not before.size:
        return 0.0
    if before.dtype.kind != "f":
        return float(np.mean(before != after))
    finite = np.isfinite(before)
    if not np.isfinite(after[finite]).all():
        return np.inf
    size = float(np.abs(before[finite]).max(initial=0.0))
    apart = float(np.abs(after[finite] - before[finite]).max(initial=0.0))
    return apart / size if size else np.inf if apart else 0.0


def _weights(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the weights that are floats: initializers, and the tensors of Constants."""
    for each in graphs_in(graph):
        yield from (t for t in each.initializer if t.data_type in _FLOATS)
        for node in each.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.t.data_type in _FLOATS:
                    attribute.t.name = node.output[0]
                    yield attribute.t


def _name(tensor: TensorProto) -> str:
    return origin(tensor.name)


def _change(tensor: TensorProto, change: Callable[[Array], Array]) -> None:
    numbers = numpy_helper.to_array(tensor)
    changed = change(numbers.astype(np.float32)).astype(numbers.dtype)
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def _states(graph: GraphProto) -> set[str]:
    """Return what recurrent operators begin with, where it is computed."""
    begins = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
    return {
        node.input[i]
        for each in graphs_in(graph)
        for node in each.node
        for i in begins.get(node.op_type, ())
        if i < len(node.input) and node.input[i]
    }


def _change_value(graph: GraphProto, name: str, kind: str, type_: int) -> bool:
    """Put nodes behind a value of a graph; tell whether it is made there."""
    for place, node in enumerate(graph.node):
        outputs: Sequence[str] = node.output
        if name not in outputs or node.name.endswith(SUFFIX):
            continue
        inner = f"{name}-whole"
        node.output[list(outputs).index(name)] = inner
        for new in reversed(_wrong(inner, name, kind, type_)):
            graph.node.insert(place + 1, new)
        return True
    return False


def _wrong(given: str, made: str, kind: str, type_: int) -> list[NodeProto]:
    if kind == "a state reset":
        return [helper.make_node("Sub", [given, given], [made], name=f"{made}-reset")]
    whole = f"{made}-int"
    return [
        helper.make_node("Cast", [given], [whole], name=f"{made}-to-int", to=TensorProto.INT32),
        helper.make_node("Cast", [whole], [made], name=f"{made}-from-int", to=type_),
    ]
