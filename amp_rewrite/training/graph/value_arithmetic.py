"""Arithmetic on values of a graph as Python writes it: each operation adds nodes to the graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import OptionError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import dims

Axis = int | Sequence[int] | None
"""One axis, several, or all of them; negative ones count from the end."""

V = TypeVar("V", bound="Arithmetic")


class Arithmetic(ABC):
    """Computations with a value: Python's operators, and methods named as numpy's.

    The other operand is a value of the same graph, a number or an array of numbers; numbers take
    the type of the value. Shapes broadcast as in numpy. A method returns a new value, and raises a
    GradientError if the operator does not admit its inputs.
    """

    value: ir.Value
    __array_ufunc__ = None  # numpy leaves `array + value` to the value

    @property
    @abstractmethod
    def _builder(self) -> Builder:
        """The builder that adds the nodes."""

    @abstractmethod
    def _with(self, value: ir.Value) -> Self:
        """Return another value of the same graph."""

    @abstractmethod
    def _operand(self, other: Any) -> ir.Value:
        """Return a value of the same graph, or a constant of this value's type."""

    @staticmethod
    def _binary(operation: str, *, turned: bool = False) -> Callable[[V, Any], V]:
        """Return a method of Python's operators: self with another operand, or the reverse."""

        def compute(self: V, other: Any) -> V:
            own, operand = self.value, self._operand(other)
            add_node = getattr(self._builder, operation)
            return self._with(add_node(operand, own) if turned else add_node(own, operand))

        return compute

    __add__, __radd__ = _binary("add"), _binary("add", turned=True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", turned=True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", turned=True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", turned=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", turned=True)
    __matmul__, __rmatmul__ = _binary("matmul"), _binary("matmul", turned=True)
    __lt__, __le__ = _binary("less"), _binary("less_or_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_or_equal")

    def __neg__(self) -> Self:
        """Return -self."""
        return self._with(self._builder.neg(self.value))

    def __abs__(self) -> Self:
        """Return the magnitude."""
        return self.abs()

    def __bool__(self) -> bool:
        """Return True: there is a value. A comparison is an error: it is not known yet."""
        if self.value.dtype is ir.DataType.BOOL:
            raise OptionError(
                "a comparison is neither true nor false while the graph is built",
                where=self.value.name,
                remedy="use .where(condition, other), which chooses when the graph runs",
            )
        return True

    def __getitem__(self, index: Any) -> Self:
        """Return a part, as numpy's basic indexing does; an index may be a value of integers.

        Args:
            index: An integer, a slice, None (a new axis of length 1), ..., a value or an array of
                integers (the elements at these places of the axis), or a tuple of those.
        """
        entries = index if isinstance(index, tuple) else (index,)
        return self._with(indexed(self._builder, self.value, [self._entry(e) for e in entries]))

    def __iter__(self) -> Iterator[Self]:
        """Yield the parts along the first axis, whose length must be known, as numpy does."""
        lengths = dims(self.value)
        length = lengths[0] if lengths else None
        if length is None:
            raise OptionError(
                "a value whose first axis has no known length cannot be iterated over",
                where=self.value.name,
                found="no known shape" if lengths is None else f"shape {list(lengths)}",
                remedy="use its methods, such as .sum(), .mean() and .max(), or a slice",
            )
        return (self[index] for index in range(length))

    def __contains__(self, item: object) -> bool:
        """Refuse `item in value`, which is known when the graph runs."""
        raise OptionError(
            "whether a value contains a number is known when the graph runs",
            where=self.value.name,
            found=f"{item!r:.60} in a value",
            remedy="use value.equal(item), and .where or .max on it",
        )

    def _entry(self, entry: Any) -> Any:
        """Return a value or an array that is an index as a value of the graph."""
        if isinstance(entry, Arithmetic):
            return self._operand(entry)
        if isinstance(entry, np.ndarray | list) and np.asarray(entry).dtype.kind in "iu":
            return self._builder.constant(np.asarray(entry, np.int64))
        return entry

    def equal(self, other: Any) -> Self:
        """Return where self equals other: bool; `==` compares Python objects."""
        return self._with(self._builder.equal(self.value, self._operand(other)))

    def abs(self) -> Self:
        """Return the magnitude."""
        return self._with(self._builder.abs(self.value))

    def sign(self) -> Self:
        """Return -1, 0 or 1."""
        return self._with(self._builder.sign(self.value))

    def exp(self) -> Self:
        """Return e ** self."""
        return self._with(self._builder.exp(self.value))

    def log(self) -> Self:
        """Return the natural logarithm."""
        return self._with(self._builder.log(self.value))

    def sqrt(self) -> Self:
        """Return the square root."""
        return self._with(self._builder.sqrt(self.value))

    def square(self) -> Self:
        """Return self * self."""
        return self._with(self._builder.square(self.value))

    def tanh(self) -> Self:
        """Return the hyperbolic tangent."""
        return self._with(self._builder.tanh(self.value))

    def sigmoid(self) -> Self:
        """Return 1 / (1 + e ** -self)."""
        return self._with(self._builder.sigmoid(self.value))

    def softplus(self) -> Self:
        """Return ln(1 + e ** self)."""
        return self._with(self._builder.op("Softplus", self.value))

    def relu(self) -> Self:
        """Return the larger of self and 0."""
        return self._with(self._builder.op("Relu", self.value))

    def softmax(self, axis: int = -1) -> Self:
        """Return e ** self over its sum along an axis."""
        return self._with(self._builder.op("Softmax", self.value, axis=_integer("axis", axis)))

    def log_softmax(self, axis: int = -1) -> Self:
        """Return the natural logarithm of the softmax."""
        return self._with(self._builder.op("LogSoftmax", self.value, axis=_integer("axis", axis)))

    def maximum(self, other: Any) -> Self:
        """Return the larger of self and other, element by element."""
        return self._with(self._builder.maximum(self.value, self._operand(other)))

    def minimum(self, other: Any) -> Self:
        """Return the smaller of self and other, element by element."""
        return self._with(self._builder.minimum(self.value, self._operand(other)))

    def clip(self, low: Any = None, high: Any = None) -> Self:
        """Return self, at least `low` and at most `high`; None is no limit."""
        raised = self if low is None else self.maximum(low)
        return raised if high is None else raised.minimum(high)

    def where(self, condition: Self, other: Any) -> Self:
        """Return self where a condition (bool) holds, else other."""
        if not isinstance(condition, Arithmetic):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "a condition is a value of the graph",
                where=self.value.name,
                found=repr(condition),
                remedy="compare a value: x > 0",
            )
        chosen = self._operand(condition)
        return self._with(self._builder.where(chosen, self.value, self._operand(other)))

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Self:
        """Return the sum over axes."""
        return self._reduced("ReduceSum", axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Self:
        """Return the mean over axes."""
        return self._reduced("ReduceMean", axis, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Self:
        """Return the largest element over axes."""
        return self._reduced("ReduceMax", axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Self:
        """Return the smallest element over axes."""
        return self._reduced("ReduceMin", axis, keepdims=keepdims)

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return the elements in another shape, in which -1 stands for what is left."""
        return self._with(self._builder.reshape(self.value, _integers("a shape", shape)))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """Return the axes in another order; the reverse one if none is given."""
        order = _integers("axes", axes)
        if not order:
            rank = self._builder.rank(self.value)
            if rank is None:
                raise OptionError(
                    "the axes to reverse are not known",
                    where=self.value.name,
                    remedy="give the order of the axes",
                )
            order = list(range(rank))[::-1]
        return self._with(self._builder.transpose(self.value, order))

    def astype(self, dtype: ir.DataType | str) -> Self:
        """Return the elements in another type, for example "float32"."""
        wanted = dtype if isinstance(dtype, ir.DataType) else _TYPES.get(str(dtype))
        if wanted is None:
            raise OptionError("unknown type", found=repr(dtype), expected=" or ".join(_TYPES))
        return self._with(self._builder.cast(self.value, wanted))

    def _reduced(self, op: str, axis: Axis, *, keepdims: bool) -> Self:
        axes = None if axis is None else _integers("axes", (axis,))
        kept = arguments.switch("keepdims", keepdims)
        return self._with(self._builder.reduce(op, self.value, axes, keepdims=kept))


_TYPES = {
    dtype_name(ir.DataType[name]): ir.DataType[name]
    for name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT32", "INT64", "BOOL")
}
"""Types by the names that users know."""


def _integer(what: str, number: object) -> int:
    return arguments.integer(what, number, low=-(2**63))


def _integers(what: str, numbers: Sequence[object]) -> list[int]:
    """Return integers that were given one by one, or as one sequence."""
    first = numbers[0] if len(numbers) == 1 else None
    items = first if isinstance(first, Sequence) and not isinstance(first, str) else numbers
    return [_integer(what, item) for item in items]


def numbers_of(operand: object, where: str) -> np.ndarray[Any, Any]:
    """Return a number, or an array of numbers, that meets a value in an operation."""
    try:
        array = np.asarray(operand)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise OptionError(
            "not a number, an array of numbers or a value of the graph",
            where=where,
            found=f"an object of type {type(operand).__name__}",
        )
    return array


_LAST = int(np.iinfo(np.int64).max)
_FIRST = int(np.iinfo(np.int64).min)
_INDEX_TYPES = (ir.DataType.INT32, ir.DataType.INT64)


def indexed(b: Builder, x: ir.Value, entries: Sequence[Any]) -> ir.Value:
    """Return x[entries]: integers, slices, None, at most one `...`, and values of integers."""
    entries = _without_ellipsis(b, x, entries)
    x = _sliced(b, x, entries)
    axis = 0
    for entry in entries:
        if isinstance(entry, ir.Value):
            x = b.gather(x, entry, axis)
            axis += b.rank(entry) or 0
        elif entry is None:
            x = b.unsqueeze(x, [axis])
            axis += 1
        elif isinstance(entry, slice):
            axis += 1
        else:
            x = b.squeeze(x, [axis])
    return x


def _without_ellipsis(b: Builder, x: ir.Value, entries: Sequence[Any]) -> list[Any]:
    """Return one entry for each axis that is indexed, `...` being written out."""
    indices = [_entry(b, x, entry) for entry in entries]
    axes = sum(entry is not None and entry is not ... for entry in indices)
    rank = b.rank(x)
    if rank is not None and axes > rank:
        raise OptionError(
            "more indices than axes", where=x.name, found=axes, expected=f"at most {rank}"
        )
    places = [k for k, entry in enumerate(indices) if entry is ...]
    if not places:
        return indices
    if rank is None or len(places) > 1:
        raise OptionError(
            "an index with ... is not clear",
            where=x.name,
            found="an unknown number of axes" if rank is None else f"{len(places)} times ...",
            remedy="write one index for each axis",
        )
    at = places[0]
    return [*indices[:at], *[slice(None)] * (rank - axes), *indices[at + 1 :]]


def _entry(b: Builder, x: ir.Value, entry: Any) -> Any:
    """Return an index as it is, an integer as Python's."""
    if entry is None or entry is ...:
        return entry
    if isinstance(entry, ir.Value):
        if b.type_of(entry) in _INDEX_TYPES and b.rank(entry) is not None:
            return entry
    elif isinstance(entry, slice):
        parts = (entry.start, entry.stop, entry.step)
        if all(part is None or _is_integer(part) for part in parts) and entry.step != 0:
            return entry
    elif _is_integer(entry):
        return int(entry)
    raise OptionError(
        "not an index",
        where=x.name,
        found=f"the value {entry.name!r}" if isinstance(entry, ir.Value) else repr(entry),
        expected="integers, slices, None, ... or a value of int32 or int64 of known rank",
    )


def _is_integer(entry: object) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _sliced(b: Builder, x: ir.Value, entries: Sequence[Any]) -> ir.Value:
    """Return x cut along all axes that have an integer or a slice; no axis is dropped yet."""
    bounds: list[tuple[int, int, int, int]] = []
    axis = 0
    for entry in entries:
        if isinstance(entry, int):
            bounds.append((entry, _LAST if entry == -1 else entry + 1, axis, 1))
        elif isinstance(entry, slice) and entry != slice(None):
            step = 1 if entry.step is None else int(entry.step)
            start, stop = (0, _LAST) if step > 0 else (_LAST, _FIRST)
            start = start if entry.start is None else int(entry.start)
            stop = stop if entry.stop is None else int(entry.stop)
            bounds.append((start, stop, axis, step))
        axis += entry is not None
    if not bounds:
        return x
    starts, stops, axes, steps = (list(column) for column in zip(*bounds, strict=True))
    return b.slice(x, starts, stops, axes, steps)
