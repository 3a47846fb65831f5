"""The intervals of constants: short ones are read, long ones are known by their statistics."""

from __future__ import annotations

from onnx import TensorProto

from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph, Tensor
from amp_rewrite.graph.intervals import interval as i
from amp_rewrite.graph.intervals.interval import Interval
from amp_rewrite.graph.intervals.moving import numbers
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.weight_stats import MeasuredConstants

MOST_READ = 1 << 18
"""Elements of the longest constant that is read for its own sake; it takes half a millisecond."""


class Constants:
    """What is known of a model's constants; each is looked at when it is first asked for."""

    def __init__(self, flat: FlatGraph, measured: MeasuredConstants) -> None:
        """Read nothing yet.

        Args:
            flat: The model.
            measured: The statistics of long constants, which are measured for other reasons, too.
        """
        self._flat = flat
        self._measured = measured
        self._arrays: dict[int, Array | None] = {}

    def tensor(self, value: int) -> Tensor | None:
        """Return what an initializer or a Constant node holds, of any type, or None."""
        flat = self._flat
        if flat.is_initializer(value):
            overridable = flat.ir_version >= FIRST_IR_WITH_OVERRIDES and flat.is_input(value)
            return None if overridable or value in flat.bound else flat.initializer(value)
        node = flat.producer[value]
        return None if node == ABSENT else flat.held(node)

    def array(self, value: int) -> Array | None:
        """Return the elements of a constant that is not too long, in its shape, or None."""
        if value not in self._arrays:
            tensor = self.tensor(value)
            short = tensor is not None and tensor.size <= MOST_READ and _is_numeric(tensor)
            self._arrays[value] = tensor.numpy() if tensor is not None and short else None
        return self._arrays[value]

    def stream(self, value: int) -> Stream | None:
        """Return the elements of a float32 constant of any length, or None."""
        tensor = self.tensor(value)
        is_float = tensor is not None and tensor.dtype == TensorProto.FLOAT
        return self._flat.elements(tensor) if tensor is not None and is_float else None

    def interval(self, value: int) -> Interval | None:
        """Return the interval of a constant; None for what is none, or holds no real numbers."""
        array = self.array(value)
        if array is not None:
            return numbers(array)
        stream = self.stream(value)
        if stream is None:
            return None
        stats = self._measured.stats(value, lambda: stream)
        if stats.infs:
            return i.ANY
        return i.symmetric(stats.max_abs)._replace(reach=stats.max_abs)


def _is_numeric(tensor: Tensor) -> bool:
    return tensor.dtype not in (
        TensorProto.STRING,
        TensorProto.COMPLEX64,
        TensorProto.COMPLEX128,
    )
