"""Values whose contents are in the file: initializers and Constant nodes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import TABLE, Trait, having, operator

FIRST_IR_WITH_OVERRIDES = 4
"""Since this IR version an initializer that is also a graph input is a default, not a constant."""

MOST_READ = 1 << 18
"""Elements of the longest constant that is read for its own sake; it takes half a millisecond."""

LONGEST_MOVED = 4096
"""Elements of the longest one that is looked for behind what moves it: frequencies, no weight."""

_HOLDING = having(Trait.HOLDS)
_MOVING = frozenset(n for n in having(Trait.MOVES, Trait.CASTS) if TABLE[n].data == (0,))
"""Operators whose results have no other numbers than the first thing that they read."""

_NO_NUMBERS = (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)


def constant_tensor(type_graph: TypeGraph, value: int) -> StoredTensor | None:
    """Return the tensor behind a constant value to retype, or None if it is not a constant.

    An initializer that a caller may override (IR version 4 and later) is an input, not a constant.
    """
    if not type_graph.is_retyped(value):
        return None
    tensor = stored_tensor(type_graph.flat, value)
    dtypes = [base.number for base in type_graph.bases]
    return tensor if tensor is not None and tensor.dtype in dtypes else None


def stored_tensor(flat: FlatGraph, value: int) -> StoredTensor | None:
    """Return the tensor behind a constant of any type, or None if it is not a constant."""
    if flat.is_initializer(value):
        overridable = flat.ir_version >= FIRST_IR_WITH_OVERRIDES and flat.is_input(value)
        return None if overridable else flat.tensors.get(value)
    node = flat.producer[value]
    return None if node == ABSENT else flat.held(node)


class Constants:
    """The elements of a model's constants; each is looked at when it is first asked for."""

    def __init__(self, flat: FlatGraph) -> None:
        """Read nothing yet."""
        self._flat = flat
        self._arrays: dict[int, Array | None] = {}

    def array(self, value: int) -> Array | None:
        """Return the elements of a constant that is not too long, in its shape, or None."""
        if value not in self._arrays:
            tensor = stored_tensor(self._flat, value)
            if tensor is not None and (tensor.size > MOST_READ or tensor.dtype in _NO_NUMBERS):
                tensor = None
            self._arrays[value] = None if tensor is None else tensor.numpy()
        return self._arrays[value]

    def stream(self, value: int) -> Stream | None:
        """Return the elements of a float32 constant of any length, or None."""
        tensor = _float32(stored_tensor(self._flat, value))
        return None if tensor is None else tensor.stream


def moved_elements(flat: FlatGraph, value: int) -> Array | None:
    """Return the numbers of which a value consists, if a small constant says so, or None."""
    value = moved_from(flat, value)
    if value == ABSENT:
        return None
    tensor = _fill(flat, value) if is_repeated(flat, value) else stored_tensor(flat, value)
    if tensor is None or tensor.size > LONGEST_MOVED:
        return None
    elements = tensor.numpy()
    is_number = elements.dtype.kind in "biuf" or elements.dtype == BFLOAT16.numpy
    return elements.astype(np.float64) if is_number else None


def moved_from(flat: FlatGraph, value: int) -> int:
    """Return the constant whose numbers a value consists of, moved or cast; ABSENT if none is."""
    while not flat.is_initializer(value):
        node = flat.producer[value]
        if node == ABSENT:
            return ABSENT
        called = operator(flat.called(node))
        if called in _HOLDING:
            return value
        if called not in _MOVING:
            return ABSENT
        value = next(iter(flat.inputs_of(node)), ABSENT)  # SequenceEmpty reads nothing
        if value == ABSENT:
            return ABSENT
    return value


def is_constant(flat: FlatGraph, value: int) -> bool:
    """Tell whether a value is a constant of any length, moved or cast or neither."""
    source = ABSENT if value == ABSENT else moved_from(flat, value)
    return source != ABSENT and stored_tensor(flat, source) is not None


def constants_behind(flat: FlatGraph) -> dict[int, int]:
    """Return value -> the constant that `moved_from` finds for it, of all that are constants."""
    moving = [operator(called) in _MOVING for called in flat.operators]  # by operator
    held = [value for body in flat.bodies for value in body.initializers]
    held += [flat.outputs_of(node)[0] for node in flat.nodes_of("Constant")]
    sources = {value: value for value in held if stored_tensor(flat, value) is not None}
    todo = list(sources) if any(moving) else []
    while todo:
        value = todo.pop()
        for node in flat.readers(value):
            if moving[flat.operator[node]] and flat.inputs_of(node)[0] == value:
                made = flat.outputs_of(node)
                sources.update(dict.fromkeys(made, sources[value]))
                todo += made
    return sources


def is_repeated(flat: FlatGraph, value: int) -> bool:
    """Tell whether a value is what a ConstantOfShape repeats."""
    node = flat.producer[value]
    return node != ABSENT and flat.called(node)[:2] == ("", "ConstantOfShape")


def filled_tensor(type_graph: TypeGraph, value: int) -> StoredTensor | None:
    """Return a constant's contents, or what a ConstantOfShape repeats, or None."""
    flat = type_graph.flat
    if not is_repeated(flat, value):
        return constant_tensor(type_graph, value)
    return _fill(flat, value)


def _fill(flat: FlatGraph, value: int) -> StoredTensor | None:
    fill = flat.attributes(flat.producer[value]).get("value")
    return None if fill is None else fill.value


def read_constants(type_graph: TypeGraph) -> list[int]:
    """Return every float32 constant that something reads."""
    flat = type_graph.flat
    values = [value for body in flat.bodies for value in body.initializers]
    values += [flat.outputs_of(node)[0] for node in flat.nodes_of("Constant")]
    return [v for v in values if flat.uses(v) and constant_tensor(type_graph, v) is not None]


def default_tensor(type_graph: TypeGraph, value: int) -> StoredTensor | None:
    """Return what a float32 graph input holds unless a caller feeds it, or None."""
    flat = type_graph.flat
    if not type_graph.is_float32(value) or not flat.is_input(value):
        return None
    return _float32(flat.tensors.get(value))


def _float32(tensor: StoredTensor | None) -> StoredTensor | None:
    return tensor if tensor is not None and tensor.dtype == TensorProto.FLOAT else None
