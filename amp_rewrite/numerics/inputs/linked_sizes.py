"""The sizes that inputs share with each other, from tables that they index, and from loops.

A decoder with a cache of keys and values reads a mask over the past and the new tokens together.
The axis that Scan or LSTM goes along is followed back to an input as long as operators keep it or
transpose it; else, and for a Loop, every free axis after the first one may be the sequence.

Evidence: a decoder with a cache (tests/numerics/inputs/test_linked_sizes.py): without, its mask of
33 places is one number. silero_v6_sequence, whose LSTM goes along the first axis of its input, and
the recurrences of tests/conformance/test_carried_states.py: with one step each of them passes.
magika, minilm_l3 and minilm_l3_ortfused: without the sizes of tables, row numbers are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes, image_sides, is_float

Shape = tuple[int, ...]

# Places of inputs, which no trait has: those that are caches, and the axis of the length.
_CACHES: Mapping[str, Mapping[int, int]] = {
    "Attention": {4: 2, 5: 2},
    "com.microsoft::Attention": {4: 3},
    "com.microsoft::GroupQueryAttention": {3: 2, 4: 2},
    "com.microsoft::MultiHeadAttention": {6: 2, 7: 2},
}

# operators: their first input is a sequence
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
# operators: what the condition of a Loop is made of
_COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
# operators: arithmetic between an input and a number of steps
_NUMBERS = frozenset(
    {
        *("Abs", "Add", "Ceil", "Clip", "Div", "Floor", "Max", "Min", "Mul", "Neg", "ReduceMax"),
        *("ReduceMin", "ReduceProd", "Relu", "Round", "Sub"),
    }
)
# operators: those with other axes than their first input
_OTHER_AXES = frozenset(
    {
        *("ArgMax", "ArgMin", "Expand", "Flatten", "Gather", "Loop", "Reshape", "Scan", "Squeeze"),
        *("Unsqueeze", "ConstantOfShape", "Range", "If"),
    }
)

# operators: places of inputs, which no trait has
_TABLES: Mapping[str, Mapping[int, int]] = {
    "Gather": {1: 0},
    "RotaryEmbedding": {3: 1},
    "com.microsoft::RotaryEmbedding": {1: 2},
    "com.microsoft::EmbedLayerNormalization": {0: 2, 1: 4, 8: 3},
}
"""Operator -> which of its inputs are indices, and which input is the table of each."""


@dataclass(frozen=True)
class LinkedSizes:
    """The links between the inputs of one model; `caches` are inputs -> the axis that grows."""

    specs: Mapping[str, FeedSpec]
    caches: Mapping[str, int]
    steps: Steps

    @staticmethod
    def of(model: ir.Model, specs: Mapping[str, FeedSpec]) -> LinkedSizes:
        """Look at a model, which is not changed."""
        consumers = Consumers(model)
        caches: dict[str, int] = {}
        for value in model.graph.inputs:
            spec = specs.get(value.name or "")
            if spec is None or spec.shape is None or not is_float(spec):
                continue
            axis = next(_cache_axes(consumers, value, spec.shape), None)
            caches |= {} if axis is None else {spec.name: axis}
        return LinkedSizes(specs, caches, Steps.of(model))

    def shapes(self, sizes: FreeSizes) -> dict[str, Shape]:
        """Return the shapes of the inputs, with masks that fit caches if the attempt says so."""
        along: list[tuple[str, int]] = []
        for name, axes in self.steps.axes.items() if sizes.follows_loops else ():
            spec = self.specs.get(name)
            if spec is not None and spec.shape is not None:
                sides = image_sides(spec.shape) if is_float(spec) else ()  # these are long
                along += [(name, axis) for axis in axes if axis not in sides]
        for name, axis in along:
            sizes.keep_length((self.specs[name].shape or ())[axis], sizes.steps)
        shapes = {name: sizes.shape_of(spec) for name, spec in self.specs.items()}
        for name, axis in along:
            if (self.specs[name].shape or ())[axis] is None:
                shapes[name] = (*shapes[name][:axis], sizes.steps, *shapes[name][axis + 1 :])
        if sizes.cached:
            total = self.total(shapes, sizes)
            for name, spec in self.specs.items():
                if "mask" in name.lower() and spec.shape and not isinstance(spec.shape[-1], int):
                    shapes[name] = (*shapes[name][:-1], total)
        return shapes

    def total(self, shapes: Mapping[str, Shape], sizes: FreeSizes) -> int:
        """Return the length of the past and the new tokens together; without a cache the latter."""
        past = [shapes[name][axis] for name, axis in self.caches.items()]
        if not past:
            return sizes.length
        for name, shape in shapes.items():
            is_tokens = len(shape) == 2 and not is_float(self.specs[name])
            is_embedded = len(shape) == 3 and "embed" in name.lower()
            if (is_tokens or is_embedded) and "mask" not in name.lower():
                return past[0] + shape[1]
        return past[0] + sizes.length


def _cache_axes(
    consumers: Consumers, value: ir.Value, declared: tuple[int | str | None, ...]
) -> Iterator[int]:
    """Yield the free axes along which something is put behind an input."""
    for node, index in consumers.uses(value, moves):
        axis = _CACHES.get(operator(node), {}).get(index)
        if operator(node) == "Concat" and len(declared) > 2:  # (N, ..., length, ...)
            axis_given = node.attributes.get_int("axis", 0)
            axis = axis_given + len(declared) if axis_given < 0 else axis_given
        if axis is not None and axis < len(declared) and not isinstance(declared[axis], int):
            yield axis


@dataclass(frozen=True)
class Steps:
    """Inputs -> their axes with one element a step, and inputs that are numbers of steps."""

    axes: Mapping[str, tuple[int, ...]]
    counts: frozenset[str]

    def __bool__(self) -> bool:
        """Tell whether any input says how many steps there are."""
        return bool(self.axes or self.counts)

    @staticmethod
    def of(model: ir.Model) -> Steps:
        """Look at a model, which is not changed."""
        starts = [each for node in model.graph.all_nodes() for each in _starts(node)]
        if not starts:
            return Steps({}, frozenset())
        counts = frozenset(_counts(model))
        axes: dict[str, tuple[int, ...]] = {}
        for value, axis in starts:
            found, at = _followed(value, axis)
            if at is None or found not in model.graph.inputs:
                inputs = (v for v in model.graph.inputs if v.name not in counts)
                return Steps({v.name or "": a for v in inputs if (a := _behind_first(v))}, counts)
            if at in _free(found):
                axes[found.name or ""] = (*axes.get(found.name or "", ()), at)
        return Steps({name: tuple(dict.fromkeys(each)) for name, each in axes.items()}, counts)


def _starts(node: ir.Node) -> Iterator[tuple[ir.Value | None, int | None]]:
    """Yield the sequences that a node goes along, and the axis; (None, None) of a Loop."""
    kind = operator(node)
    if kind in _RECURRENT:
        yield node.inputs[0], node.attributes.get_int("layout", 0)
    elif kind == "Scan":
        count = node.attributes.get_int("num_scan_inputs", 1)
        batches = 1 if node.inputs and node.inputs[0] is None else 0  # that of opset 8
        axes = node.attributes.get_ints("scan_input_axes") or [batches] * count
        yield from zip(node.inputs[len(node.inputs) - count :], axes, strict=True)
    elif kind == "Loop":
        yield None, None


def _followed(value: ir.Value | None, axis: int | None) -> tuple[ir.Value, int | None]:
    """Return where a value comes from, and which axis it is there; None if that is not known."""
    at = axis
    while value is not None and at is not None:
        node = value.producer()
        if node is None:
            return value, at + len(value.shape or ()) if at < 0 else at
        if operator(node) == "Transpose":
            order = node.attributes.get_ints("perm")
            at = None if order is None or at >= len(order) else order[at]
        elif operator(node) in _OTHER_AXES:
            at = None
        value = max(node.inputs, key=_rank, default=None)
    return value or ir.Value(), None


def _rank(value: ir.Value | None) -> int:
    return -1 if value is None or value.shape is None else value.shape.rank()


def _free(value: ir.Value) -> list[int]:
    """Return the axes of a value whose length is not recorded."""
    return [at for at, length in enumerate(value.shape or ()) if not isinstance(length, int)]


def _behind_first(value: ir.Value) -> tuple[int, ...]:
    """Return the free axes but that of a batch: the first one, unless it is the only one."""
    shape = () if value.shape is None else value.shape
    free = [at for at in _free(value) if "batch" not in str(shape[at]).lower()]
    return tuple([at for at in free if at] or free)


def _counts(model: ir.Model) -> Iterator[str]:
    """Yield the inputs of one number that Loops count to."""
    consumers = Consumers(model)
    loops = [node for node in model.graph.all_nodes() if operator(node) == "Loop"]
    bodies = {node.attributes["body"].as_graph() for node in loops}
    for value in model.graph.inputs:
        uses = consumers.uses(value, lambda n, i: moves(n, i) or operator(n) in _NUMBERS)
        if loops and any(
            (operator(node) == "Loop" and index == 0)
            or (operator(node) in _COMPARISONS and node.graph in bodies)
            for node, index in uses
        ):
            yield value.name or ""


def index_limits(model: ir.Model) -> dict[str, int]:
    """Return, for inputs that index constant tables or become one-hot, the smallest size."""
    consumers = Consumers(model)
    limits: dict[str, int] = {}
    for value in model.graph.inputs:
        sizes = [size for node, i in consumers.uses(value, moves) for size in _sizes(node, i)]
        if sizes:
            limits[value.name or ""] = min(sizes)
    return limits


def _sizes(node: ir.Node, index: int) -> Iterator[int]:
    """Yield how many rows an input of a node chooses from, if it is known to choose."""
    kind, place = operator(node), _TABLES.get(operator(node), {}).get(index)
    if kind == "Equal":  # what is compared with 0, 1, ... n - 1 becomes one-hot
        classes = known_tensor(node.inputs[1 - index])
        if classes is not None and classes.size > 1:
            numbers = classes.numpy().reshape(-1)
            if numbers.dtype.kind in "iu" and np.array_equal(numbers, np.arange(numbers.size)):
                yield numbers.size
    elif kind == "OneHot" and index == 0:
        depth = known_tensor(node.inputs[1])
        if depth is not None:
            yield int(depth.numpy().reshape(-1)[0])
    elif place is not None and place < len(node.inputs):
        table = known_tensor(node.inputs[place])
        axis = node.attributes.get_int("axis", 0) if kind == "Gather" else 0
        if table is not None and table.shape.rank() and table.shape.numpy()[axis]:
            yield table.shape.numpy()[axis]
