"""What inputs take from each other: masks over cache and tokens, and axes along which loops go.

A decoder with a cache of keys and values (KV cache) reads a mask over the past and the new tokens
together. Declared shapes often do not say so: each free dimension has a name of its own there, or
none.

Evidence: a decoder with a cache (tests/numerics/inputs/test_linked_sizes.py): without, one number
is the mask of 33 places; with, the mask has as many as the cache and the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes, image_sides, is_float
from amp_rewrite.numerics.inputs.steps import Steps

Shape = tuple[int, ...]

# Places of inputs, which no trait has: those that are caches, and the axis of the length.
_CACHES: Mapping[str, Mapping[int, int]] = {
    "Attention": {4: 2, 5: 2},
    "com.microsoft::Attention": {4: 3},
    "com.microsoft::GroupQueryAttention": {3: 2, 4: 2},
    "com.microsoft::MultiHeadAttention": {6: 2, 7: 2},
}


@dataclass(frozen=True)
class LinkedSizes:
    """How the inputs of one model belong together.

    Attributes:
        specs: The inputs.
        caches: Input that is a cache -> the axis along which it grows.
        steps: What says how many steps loops take.
    """

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
        along = list(self._step_axes()) if sizes.follows_loops else []
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

    def _step_axes(self) -> Iterator[tuple[str, int]]:
        """Yield the inputs that steps go along, and the axis; the sides of images are long."""
        for name, axes in self.steps.axes.items():
            spec = self.specs.get(name)
            if spec is None or spec.shape is None:
                continue
            sides = image_sides(spec.shape) if is_float(spec) else ()
            yield from ((name, axis) for axis in axes if axis not in sides)

    def total(self, shapes: Mapping[str, Shape], sizes: FreeSizes) -> int:
        """Return the length of the past and the new tokens together; without a cache the latter."""
        past = [shapes[name][axis] for name, axis in self.caches.items()]
        if not past:
            return sizes.length
        return past[0] + self._count_new_tokens(shapes, sizes)

    def _count_new_tokens(self, shapes: Mapping[str, Shape], sizes: FreeSizes) -> int:
        """Return how many new tokens there are: the second axis of what is one number a token."""
        for name, shape in shapes.items():
            is_tokens = len(shape) == 2 and not is_float(self.specs[name])
            is_embedded = len(shape) == 3 and "embed" in name.lower()
            if (is_tokens or is_embedded) and "mask" not in name.lower():
                return shape[1]
        return sizes.length


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
