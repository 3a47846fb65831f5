"""Add nodes to a graph, one after the other, with types, shapes and names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.annotate import annotate
from amp_rewrite.builder.constant_contents import constant_tensor
from amp_rewrite.errors import GradientError
from amp_rewrite.graph.part import PART_KEY, SOURCE_KEY, Part, source_key

Dim = int | str | None
"""A length, the name of one, or unknown."""


class NodeBuilder:
    """Adds nodes at the end of one graph.

    Attributes:
        model: The model that the graph belongs to.
        graph: Where nodes go.
        opset: The model's version of ai.onnx.
        added: Every node added so far, in order.
        varying: The values that depend on what is being differentiated with respect to; the walk
            sets it.
        source: The node that is being differentiated, which nodes added then name; the walk sets
            it.
    """

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph | None = None,
        *,
        scope: str = "gradient",
        part: Part = Part.GRADIENT,
    ) -> None:
        """Infer missing types and shapes of the model, once, and collect its names.

        Args:
            model: Is changed: calls of functions that have no rule are inlined.
            graph: One of the model's graphs; None is the main one.
            scope: The prefix of every name given.
            part: What the nodes belong to; each is marked with it.
        """
        # Here, since preparing asks the rules, which are written in terms of builders.
        from amp_rewrite.training.prepare import prepare

        prepare(model)
        self.model = model
        self.graph = model.graph if graph is None else graph
        self.opset: int = model.graph.opset_imports.get("", 1)
        self.added: list[ir.Node] = []
        self.varying: set[ir.Value] = set()
        self.source: ir.Node | None = None
        self._scope, self._part = scope, part
        self._names = set(_names(model.graph))
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._in_function = False
        self.reset()

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        outputs: int = 1,
        domain: str = "",
        name: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Append a node.

        Args:
            op_type: The operator.
            *inputs: None is an absent optional input.
            outputs: How many outputs the node has.
            domain: The operator's domain.
            name: A name for the node instead of `<scope>/<op>_<n>`.
            **attributes: Python values (numbers, strings, lists, arrays, graphs); None is absent.

        Returns:
            The output if there is one, else a tuple of them.

        Raises:
            GradientError: The operator does not admit these inputs.
        """
        name = self.free_name(name or f"{self._scope}/{op_type}", numbered=name is None)
        given = {key: _attribute(value) for key, value in attributes.items() if value is not None}
        # Nodes and values have name spaces of their own.
        names = [name] if outputs == 1 else [self.free_name(f"{name}:{k}") for k in range(outputs)]
        node = ir.Node(
            domain,
            op_type,
            inputs,
            ir.convenience.convert_attributes(given),
            outputs=[ir.Value(name=n) for n in names],
            name=name,
            metadata_props=self._origin(),
        )
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

        Args:
            value: An array, a number or a sequence of numbers.
            dtype: Its type; by default an array's own, int64 for integers, float32 for floats.
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
        name = self.free_name(f"{self._scope}/constant", numbered=True)
        tensor.name = name
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        return value

    def free_name(self, stem: str, *, numbered: bool = False) -> str:
        """Return an unused name, `stem` itself unless numbered or taken; take it."""
        if not numbered and stem not in self._names:
            self._names.add(stem)
            return stem
        n = self._counts.get(stem, 0)
        while (name := f"{stem}_{n}") in self._names:
            n += 1
        self._counts[stem] = n + 1
        self._names.add(name)
        return name

    def child(self, graph: ir.Graph) -> Self:
        """Return a builder for a graph inside this one; it shares names and constants."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.graph, other.added = graph, []
        other.reset()
        return other

    def body(self, graph: ir.Graph) -> Self:
        """Return a builder for the body of a function, which sees no value of other graphs."""
        other = self.child(graph)
        other._names, other._counts, other._constants = set(_names(graph)), {}, {}
        other._in_function = True
        return other

    def reset(self) -> None:
        """Forget what may be used in this builder's graph only."""

    def type_of(self, value: ir.Value) -> ir.DataType:
        """Return a value's element type.

        Raises:
            GradientError: It is not known.
        """
        if value.dtype is None:
            raise GradientError(
                "the element type of a value is not known",
                where=f"value {value.name!r}",
                remedy="record its type in the model's value_info",
            )
        return value.dtype

    def dims(self, value: ir.Value) -> tuple[int | None, ...] | None:
        """Return the lengths of a value's axes, None where not static; None for unknown rank."""
        symbolic = self.symbolic_dims(value)
        if symbolic is None:
            return None
        return tuple(d if isinstance(d, int) else None for d in symbolic)

    def symbolic_dims(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Return the lengths of a value's axes; equal names are equal lengths."""
        if value.shape is None:
            return None
        return tuple(d if isinstance(d, int) else d.value for d in value.shape.dims)

    def rank(self, value: ir.Value) -> int | None:
        """Return a value's rank if it is known."""
        return None if value.shape is None else len(value.shape.dims)

    def shaped_like(self, value: ir.Value, like: ir.Value) -> ir.Value:
        """Record that `value` has the shape of `like`, which inference may not see; return it."""
        theirs, ours = self.symbolic_dims(like), self.symbolic_dims(value)
        if theirs is None or value is like:
            return value
        if ours is None or len(ours) != len(theirs):
            value.shape = ir.Shape(theirs)
        else:
            pairs = zip(ours, theirs, strict=True)
            value.shape = ir.Shape(a if isinstance(a, int) or b is None else b for a, b in pairs)
        return value

    def array(self, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
        """Return the content of a constant; None for what is none.

        What is being differentiated with respect to is no constant, nor is what depends on it.
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
        """Remove nodes and constants that were added and that nothing uses.

        Args:
            keep: Values that stay without a use.
            since: The mark before which everything stays.
        """
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


def _names(graph: ir.Graph) -> Iterator[str]:
    """Yield the names of a graph's values and of those in graphs inside it."""
    yield from (v.name or "" for v in graph.inputs)
    yield from graph.initializers
    for node in graph:
        yield from (v.name or "" for v in node.outputs)
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from _names(attribute.as_graph())
