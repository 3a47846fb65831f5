"""Add nodes and constants to a graph, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.builder.known import (
    constant_tensor,
    dims,
    rank,
    shaped_like,
    symbolic_dims,
    take_place,
    type_of,
)
from amp_rewrite.graph.metadata_keys import PART_KEY, SOURCE_KEY
from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.step_part import Part, source_key


class NodeBuilder:
    """Adds nodes at the end of one graph, under names of their own, and constants, each once."""

    annotates = True
    """Whether the types and shapes of results are recorded, which takes half of the time."""

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph | None = None,
        *,
        scope: str = "gradient",
        part: Part = Part.GRADIENT,
    ) -> None:
        """Collect the names in the model, which is not changed; `scope` begins every new name."""
        self.model = model
        self.graph = model.graph if graph is None else graph
        self.opset: int = model.graph.opset_imports.get("", 1)
        self.added: list[ir.Node] = []
        # Set by the walk: the values that depend on `wrt`; operators that it cannot pass, with the
        # reason (None: it raises); the node that is being differentiated, which new nodes name.
        self.varying: set[ir.Value] = set()
        self.stops: dict[ir.Node, str] | None = None
        self.source: ir.Node | None = None
        # Node of a copied branch or body -> the node of the model that it is a copy of.
        self.originals: dict[ir.Node, ir.Node] = {}
        self._scope, self._part = scope, part
        self._names = FreeNames(names_in(model.graph))
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self.shapes: dict[ir.Value, ir.Value] = {}
        self._in_function = False

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        outputs: int = 1,
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Append a node and return its output, or a tuple if there are several.

        None is an absent input or attribute. Attributes are Python values: numbers, strings, lists,
        arrays, graphs. The name is `<scope>/<op>_<n>` unless given.

        Raises:
            GradientError: The operator does not admit these inputs.
        """
        stem = f"{self._scope}/{op_type}"
        name = self._names.number(stem) if name is None else self.free_name(name)
        attributes_set = {
            key: _attribute(value) for key, value in attributes.items() if value is not None
        }
        # Nodes and values have name spaces of their own.
        names = [name] if outputs == 1 else [self.free_name(f"{name}:{k}") for k in range(outputs)]
        node = ir.Node(
            domain,
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes_set),
            outputs=[ir.Value(name=n) for n in names],
            name=name,
            metadata_props=self._origin(),
        )
        if self.annotates:
            annotate(node, self.model.graph.opset_imports)
        self.graph.append(node)
        self.added.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def _origin(self) -> dict[str, str]:
        """Return the metadata of a new node."""
        origin: dict[str, str] = {PART_KEY: self._part}
        return origin if self.source is None else origin | {SOURCE_KEY: source_key(self.source)}

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """Return an initializer of the main graph, or a Constant in a function; equal ones are one.

        The value is an array, a number or a sequence of numbers; by default an array keeps its
        type, integers become int64 and floats float32.
        """
        array = _array(value, dtype)
        key = (array.dtype.name, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            tensor = ir.Tensor(array, dtype=dtype)
            if self._in_function:
                found = self.op("Constant", value=tensor)
            else:
                found = self._initializer(tensor)
            self._constants[key] = found
        return found

    def _initializer(self, tensor: ir.Tensor) -> ir.Value:
        name = self._names.number(f"{self._scope}/constant")
        tensor.name = name
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        return value

    def free_name(self, stem: str) -> str:
        """Return an unused name, `stem` itself unless it is taken; take it."""
        return self._names.take(stem, first=0)

    def value(
        self, stem: str, dtype: ir.DataType, shape: Sequence[int | ir.SymbolicDim | None] = ()
    ) -> ir.Value:
        """Return a value of a name of its own, an input for a graph."""
        return ir.Value(name=self.free_name(stem), type=ir.TensorType(dtype), shape=ir.Shape(shape))

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value]) -> None:
        """Move the nodes of this builder's graph to the place of a node, whose outputs they make.

        They get its metadata; what makes an output that the node lacks is removed.
        """
        pairs = list(zip(outputs, node.outputs, strict=False))
        self.remove_unused([new for new, old in pairs if old.name or old.uses()], (0, 0))
        for added in self.graph.all_nodes():
            if added.metadata_props.pop(PART_KEY, None):  # one of this builder's
                added.metadata_props.update(node.metadata_props)
        graph, nodes = node.graph, list(self.graph)
        assert graph is not None, "the node was found in a graph"
        self.graph.remove(nodes)
        graph.insert_before(node, nodes)
        for new, old in pairs:
            take_place(new, old)
        graph.remove(node, safe=True)

    def child(self, graph: ir.Graph) -> Self:
        """Return a builder for a graph inside this one; it shares names and constants."""
        other = copy.copy(self)
        other.graph, other.added, other.shapes = graph, [], {}
        return other

    def body(self, graph: ir.Graph) -> Self:
        """Return a builder for the body of a function, which sees no value of other graphs."""
        other = self.child(graph)
        other._names, other._constants = FreeNames(names_in(graph)), {}
        other._in_function = True
        return other

    def reset(self) -> None:
        """Forget the shapes computed so far."""
        self.shapes = {}

    # What is known about a value is asked for in every rule.
    type_of = staticmethod(type_of)
    dims = staticmethod(dims)
    symbolic_dims = staticmethod(symbolic_dims)
    rank = staticmethod(rank)
    shaped_like = staticmethod(shaped_like)

    def array(self, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
        """Return the content of a constant; None for what is none.

        What is being differentiated with respect to is not a constant, nor is what depends on it.
        """
        tensor = None if value is None or value in self.varying else constant_tensor(value)
        return None if tensor is None else tensor.numpy()

    def ints(self, value: ir.Value | None) -> list[int] | None:
        """Return the content of a constant tensor of integers; None for what is none."""
        array = self.array(value)
        return None if array is None else [int(v) for v in array.reshape(-1)]

    def mark(self) -> tuple[int, int]:
        """Return how much has been added, for `remove_unused`."""
        return len(self.added), len(self._constants)

    def remove_unused(self, keep: Collection[ir.Value], since: tuple[int, int]) -> None:
        """Remove what was added since a mark and nothing uses, except the values in `keep`."""
        start, first_constant = since
        left: list[ir.Node] = []
        for node in reversed(self.added[start:]):
            if any(v in keep or v.uses() or v.is_graph_output() for v in node.outputs):
                left.append(node)
            else:
                self.graph.remove(node, safe=True)
        self.added[start:] = reversed(left)
        self.reset()
        for key, value in list(self._constants.items())[first_constant:]:
            if value not in keep and not value.uses() and not value.is_graph_output():
                del self._constants[key]
                del self.model.graph.initializers[value.name or ""]


def _attribute(value: Any) -> Any:
    """Turn numpy and enumeration values into what onnx_ir takes."""
    if isinstance(value, ir.DataType):
        return value.value
    if isinstance(value, np.ndarray):
        return ir.Tensor(value)
    return value.item() if isinstance(value, np.generic) else value


def _array(value: Any, dtype: ir.DataType | None) -> np.ndarray[Any, Any]:
    if dtype is not None:
        return np.asarray(value, dtype.numpy())
    array = np.asarray(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return array
    return array.astype(np.float32 if array.dtype.kind == "f" and array.size else np.int64)
