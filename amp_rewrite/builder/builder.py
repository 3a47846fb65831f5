"""Add nodes to a graph, one after the other: operators by name, whatever the opset."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.annotate import annotate
from amp_rewrite.builder.known import (
    constant_tensor,
    dims,
    rank,
    same_shape,
    shaped_like,
    symbolic_dims,
    type_of,
)
from amp_rewrite.errors import GradientError
from amp_rewrite.graph.keys import PART_KEY, SOURCE_KEY
from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.part import Part, source_key

Operand = ir.Value | float
"""A value, or a number that takes the type of the other operand."""
Axes = ir.Value | Sequence[int] | None
"""Axes; None is all of them."""
Shape = ir.Value | Sequence[int]

_AXES_INPUT = 18
"""The opset from which every reduction takes its axes as an input; ReduceSum has it from 13."""
_ALLOWZERO = 14
_INT64_MAX = int(np.iinfo(np.int64).max)


class Builder:
    """Adds nodes at the end of one graph; its methods hide what differs between opsets.

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
        """Collect the names in the model, which is not changed.

        Args:
            model: The model.
            graph: One of the model's graphs; None is the main one.
            scope: The prefix of every name given.
            part: What the nodes belong to; each is marked with it.
        """
        self.model = model
        self.graph = model.graph if graph is None else graph
        self.opset: int = model.graph.opset_imports.get("", 1)
        self.added: list[ir.Node] = []
        self.varying: set[ir.Value] = set()
        self.source: ir.Node | None = None
        self._scope, self._part = scope, part
        self._names = FreeNames(names_in(model.graph))
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._shapes: dict[ir.Value, ir.Value] = {}
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
        stem = f"{self._scope}/{op_type}"
        name = self._names.number(stem) if name is None else self.free_name(name)
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

    def child(self, graph: ir.Graph) -> Self:
        """Return a builder for a graph inside this one; it shares names and constants."""
        other = copy.copy(self)
        other.graph, other.added, other._shapes = graph, [], {}
        return other

    def body(self, graph: ir.Graph) -> Self:
        """Return a builder for the body of a function, which sees no value of other graphs."""
        other = self.child(graph)
        other._names, other._constants = FreeNames(names_in(graph)), {}
        other._in_function = True
        return other

    def reset(self) -> None:
        """Forget the shapes computed so far."""
        self._shapes = {}

    # What is known about a value is asked for in every rule.
    type_of = staticmethod(type_of)
    dims = staticmethod(dims)
    symbolic_dims = staticmethod(symbolic_dims)
    rank = staticmethod(rank)
    shaped_like = staticmethod(shaped_like)

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

    def operand(self, value: Operand, like: Operand) -> ir.Value:
        """Return a number as a scalar of the type of `like`; a value as it is."""
        if isinstance(value, ir.Value):
            return value
        dtype = self.type_of(like) if isinstance(like, ir.Value) else None
        return self.constant(value, dtype)

    def _binary(self, op: str, x: Operand, y: Operand) -> ir.Value:
        return self.op(op, self.operand(x, y), self.operand(y, x))

    def add(self, x: Operand, y: Operand) -> ir.Value:
        """Return x + y."""
        return self._binary("Add", x, y)

    def sub(self, x: Operand, y: Operand) -> ir.Value:
        """Return x - y."""
        return self._binary("Sub", x, y)

    def mul(self, x: Operand, y: Operand) -> ir.Value:
        """Return x * y."""
        return self._binary("Mul", x, y)

    def div(self, x: Operand, y: Operand) -> ir.Value:
        """Return x / y."""
        return self._binary("Div", x, y)

    def pow(self, x: Operand, y: Operand) -> ir.Value:
        """Return x ** y."""
        return self._binary("Pow", x, y)

    def maximum(self, x: Operand, y: Operand) -> ir.Value:
        """Return the larger of x and y, element by element."""
        return self._binary("Max", x, y)

    def minimum(self, x: Operand, y: Operand) -> ir.Value:
        """Return the smaller of x and y, element by element."""
        return self._binary("Min", x, y)

    def equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x == y."""
        return self._binary("Equal", x, y)

    def less(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x < y."""
        return self._binary("Less", x, y)

    def less_or_equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x <= y."""
        return self._binary("LessOrEqual", x, y)

    def greater(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x > y."""
        return self._binary("Greater", x, y)

    def greater_or_equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x >= y."""
        return self._binary("GreaterOrEqual", x, y)

    def logical_and(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return x and y."""
        return self.op("And", x, y)

    def logical_not(self, x: ir.Value) -> ir.Value:
        """Return not x."""
        return self.op("Not", x)

    def neg(self, x: ir.Value) -> ir.Value:
        """Return -x."""
        return self.op("Neg", x)

    def abs(self, x: ir.Value) -> ir.Value:
        """Return the absolute value."""
        return self.op("Abs", x)

    def sign(self, x: ir.Value) -> ir.Value:
        """Return -1, 0 or 1."""
        return self.op("Sign", x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        """Return the square root."""
        return self.op("Sqrt", x)

    def exp(self, x: ir.Value) -> ir.Value:
        """Return e ** x."""
        return self.op("Exp", x)

    def log(self, x: ir.Value) -> ir.Value:
        """Return the natural logarithm."""
        return self.op("Log", x)

    def tanh(self, x: ir.Value) -> ir.Value:
        """Return the hyperbolic tangent."""
        return self.op("Tanh", x)

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """Return 1 / (1 + e ** -x)."""
        return self.op("Sigmoid", x)

    def reciprocal(self, x: ir.Value) -> ir.Value:
        """Return 1 / x."""
        return self.op("Reciprocal", x)

    def square(self, x: ir.Value) -> ir.Value:
        """Return x * x."""
        return self.op("Mul", x, x)

    def where(self, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
        """Return x where the condition holds, else y."""
        return self.op("Where", condition, self.operand(x, y), self.operand(y, x))

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return x in another type; x itself if it has that type."""
        return x if x.dtype is dtype else self.op("Cast", x, to=dtype)

    def cast_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the type of `like`."""
        return self.cast(x, self.type_of(like))

    def matmul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the (batched) matrix product."""
        return self.op("MatMul", x, y)

    def reduce(self, op: str, x: ir.Value, axes: Axes, *, keepdims: bool = True) -> ir.Value:
        """Return a reduction over `axes`; over nothing if they are an empty sequence.

        Raises:
            GradientError: The axes are known at run time only, and the opset admits no such axes.
        """
        if isinstance(axes, Sequence) and not axes:
            return x
        keep = int(keepdims)
        if axes is None:
            return self.op(op, x, keepdims=keep)
        if self.opset >= _AXES_INPUT or op == "ReduceSum":
            given = axes if isinstance(axes, ir.Value) else self.constant(list(axes))
            noop = 1 if isinstance(axes, ir.Value) else None
            return self.op(op, x, given, keepdims=keep, noop_with_empty_axes=noop)
        known = self.ints(axes) if isinstance(axes, ir.Value) else list(axes)
        if known is None:
            raise GradientError(
                f"{op} takes no computed axes before opset {_AXES_INPUT}",
                where=f"value {x.name!r}",
                remedy="convert the model with onnx.version_converter",
            )
        return self.op(op, x, axes=known, keepdims=keep) if known else x

    def reduce_sum(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the sum over axes."""
        return self.reduce("ReduceSum", x, axes, keepdims=keepdims)

    def reduce_mean(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the mean over axes."""
        return self.reduce("ReduceMean", x, axes, keepdims=keepdims)

    def shape(self, x: ir.Value) -> ir.Value:
        """Return the shape of x: 1-D int64; a constant where it is static."""
        dims = self.dims(x)
        if dims is not None and None not in dims:
            return self.constant(np.array(dims, np.int64))
        if x not in self._shapes:
            self._shapes[x] = self.op("Shape", x)
        return self._shapes[x]

    def dim(self, x: ir.Value, axis: int) -> ir.Value:
        """Return the length of one axis, which may be negative: 1-D int64 of one element."""
        dims = self.dims(x)
        if dims is not None and dims[axis] is not None:
            return self.constant([dims[axis]])
        return self.op("Gather", self.shape(x), self.constant([axis]), axis=0)

    def size(self, x: ir.Value) -> ir.Value:
        """Return the number of elements: an int64 scalar."""
        dims = self.dims(x)
        if dims is not None and None not in dims:
            return self.constant(int(np.prod(np.array(dims, np.int64))))
        return self.op("Size", x)

    def vector(self, values: Shape) -> ir.Value:
        """Return a sequence of integers as a 1-D int64 constant; a value as it is."""
        if isinstance(values, ir.Value):
            return values
        return self.constant(np.array(list(values), np.int64))

    def reshape(self, x: ir.Value, shape: Shape) -> ir.Value:
        """Return x in another shape, in which -1 stands for what is left and 0 for an axis of x."""
        if not isinstance(shape, ir.Value) and self.dims(x) == tuple(shape):
            return x
        return self.op("Reshape", x, self.vector(shape))

    def reshape_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the shape of `like`."""
        if same_shape(x, like):
            return x
        dims = self.dims(like)
        if dims is not None and dims.count(None) <= 1 and 0 not in dims:
            shape = self.vector([-1 if d is None else d for d in dims])
            return self.shaped_like(self.op("Reshape", x, shape), like)
        return self.shaped_like(self.reshape_exactly(x, self.shape(like)), like)

    def reshape_exactly(self, x: ir.Value, shape: ir.Value) -> ir.Value:
        """Return x in a computed shape, in which 0 is a length (from opset 14 on)."""
        return self.op("Reshape", x, shape, allowzero=1 if self.opset >= _ALLOWZERO else None)

    def size_from(self, x: ir.Value, axis: int) -> ir.Value:
        """Return the product of the lengths from an axis on: 1-D int64 of one element."""
        dims = self.dims(x)
        if dims is not None and None not in dims[axis:]:
            return self.constant([int(np.prod(np.array(dims[axis:], np.int64)))])
        lengths = self.slice(self.shape(x), [axis], [_INT64_MAX])
        return self.op("ReduceProd", lengths, keepdims=1)

    def expand(self, x: ir.Value, shape: Shape) -> ir.Value:
        """Return x broadcast to a shape."""
        return self.op("Expand", x, self.vector(shape))

    def expand_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x broadcast to the shape of `like`, of which it has no axis longer."""
        if same_shape(x, like):
            return x
        if 0 in (self.dims(like) or ()):
            # ONNX Runtime 1.31.1 drops an Expand from length 1 to 0.
            return self.zeros(self.shape(like), self.type_of(x))
        return self.shaped_like(self.expand(x, self.shape(like)), like)

    def unsqueeze(self, x: ir.Value, axes: Shape) -> ir.Value:
        """Return x with new axes of length 1."""
        if not isinstance(axes, ir.Value) and not axes:
            return x
        return self.op("Unsqueeze", x, self.vector(axes))

    def squeeze(self, x: ir.Value, axes: Shape) -> ir.Value:
        """Return x without axes of length 1."""
        if not isinstance(axes, ir.Value) and not axes:
            return x
        return self.op("Squeeze", x, self.vector(axes))

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Return x with its axes in another order; x itself if it is the same."""
        if list(perm) == list(range(len(perm))):
            return x
        return self.op("Transpose", x, perm=list(perm))

    def zeros(self, shape: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return zeros of a computed shape."""
        return self.op("ConstantOfShape", shape, value=np.zeros(1, dtype.numpy()))

    def full_like(self, x: ir.Value, number: float) -> ir.Value:
        """Return a tensor of x's shape and type, filled with a number."""
        fill = np.array([number], self.type_of(x).numpy())
        filled = self.op("ConstantOfShape", self.shape(x), value=fill)
        return self.shaped_like(filled, x)

    def zeros_like(self, x: ir.Value) -> ir.Value:
        """Return zeros of x's shape and type."""
        return self.full_like(x, 0)

    def ones_like(self, x: ir.Value) -> ir.Value:
        """Return ones of x's shape and type."""
        return self.full_like(x, 1)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values one behind the other along an axis."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def split(self, x: ir.Value, lengths: Shape, axis: int, outputs: int) -> tuple[ir.Value, ...]:
        """Return pieces of given lengths along an axis."""
        pieces = self.op("Split", x, self.vector(lengths), axis=axis, outputs=outputs)
        return pieces if isinstance(pieces, tuple) else (pieces,)

    def slice(
        self,
        x: ir.Value,
        starts: Shape,
        ends: Shape,
        axes: Shape | None = None,
        steps: Shape | None = None,
    ) -> ir.Value:
        """Return a part of x, as numpy's basic slicing does."""
        optional = [None if v is None else self.vector(v) for v in (axes, steps)]
        while optional and optional[-1] is None:
            optional.pop()
        return self.op("Slice", x, self.vector(starts), self.vector(ends), *optional)

    def gather(self, x: ir.Value, indices: ir.Value, axis: int = 0) -> ir.Value:
        """Return the slices of x at indices along an axis."""
        return self.op("Gather", x, indices, axis=axis)

    def range(self, start: ir.Value | int, limit: ir.Value | int, step: int = 1) -> ir.Value:
        """Return start, start + step, ... below limit: 1-D int64; values are int64 scalars."""
        values = [v if isinstance(v, ir.Value) else self.constant(v) for v in (start, limit, step)]
        return self.op("Range", *values)


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
