"""The control of a verification: the weights rounded, and nothing else.

A model whose weights are rounded to 16 bits and that computes in float32 has errors, too. What is
as far off as that owes it to its weights, or amplifies whatever is rounded: no choice of operators
to keep float32 mends that while their weights are in 16 bits.

Evidence: weights that cancel (tests/numerics/compare/test_trusted_verdicts.py): without, the model
fails; with, it is in doubt, as rounding the weights alone gives the same error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.added import origin
from amp_rewrite.graph.streams import FileRange
from amp_rewrite.graph.tensors import ConvertedTensor, ProtoTensor, elements
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.type_attributes import is_low_tensor, widen
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds


class RoundedConstant(NamedTuple):
    """A constant of a model that a rewrite rounded.

    Attributes:
        graph: Which graph it is in: the main graph is 0, those inside nodes follow in order.
        value: The constant in the model before.
        rounded: The numbers that it became, as float32.
    """

    graph: int
    value: ir.Value
    rounded: ir.TensorProtocol

    @property
    def before(self) -> ir.TensorProtocol:
        """The numbers that it had."""
        node = self.value.producer()
        if node is not None:
            return node.attributes["value"].as_tensor()
        return cast(ir.TensorProtocol, self.value.const_value)


class WeightsAlone:
    """The original with the weights of the rewritten model, in float32."""

    def __init__(self, original: TypedModel, rewritten: ir.Model, threads: int) -> None:
        """Take both models, which are not changed; nothing is loaded yet."""
        self._original, self._rewritten, self._threads = original, rewritten, threads

    def run(self, feeds: Feeds, names: Collection[str]) -> dict[str, Any] | None:
        """Return outputs for a feed of the original; None where it cannot be run so."""
        try:
            return None if self._session is None else self._session.run(feeds, names)
        except AmpError:
            return None

    def model(self) -> TypedModel | None:
        """Return the model; None where no weight is low."""
        return with_rounded_weights(self._original, self._rewritten)

    @cached_property
    def rounds(self) -> bool:
        """Whether a weight has other numbers than in the original: in a 16-bit file none has."""
        constants = rounded_constants(self._original.model, self._rewritten)
        return any(
            not np.array_equal(each.before.numpy(), each.rounded.numpy()) for each in constants
        )

    @cached_property
    def _session(self) -> Evaluator | None:
        """The session of the control; None where no weight is low or it cannot be loaded."""
        model = self.model()
        try:
            return None if model is None else Evaluator(model, threads=self._threads)
        except AmpError:
            return None


def with_rounded_weights(original: TypedModel, rewritten: ir.Model) -> TypedModel | None:
    """Return the original with the numbers to which a rewrite rounded its constants; None for none.

    A rewrite keeps the name of a weight, or calls it a cast of what it was, and the graphs inside
    nodes stand in one order in both.
    """
    model = original.copy()
    constants = [*rounded_constants(model.model, rewritten)]
    for constant in constants:
        node = constant.value.producer()
        if node is None:
            constant.value.const_value = constant.rounded
        else:
            node.attributes["value"] = ir.AttrTensor("value", constant.rounded)
    return model if constants else None


def rounded_constants(original: ir.Model, rewritten: ir.Model) -> Iterator[RoundedConstant]:
    """Yield the constants of a model that a rewrite of it rounded."""
    pairs = zip(_graphs(original), _graphs(rewritten), strict=False)
    for number, (graph, other) in enumerate(pairs):
        low = dict(_low_constants(other))
        for name, value in graph.initializers.items():
            if _is_rounded_from(value.const_value, low.get(name)):
                yield RoundedConstant(number, value, widen(low[name]))
        for node in graph:
            low_tensor = low.get(node.outputs[0].name or "") if node.op_type == "Constant" else None
            attribute = node.attributes.get("value")
            if (
                low_tensor is not None
                and attribute is not None
                and _is_rounded_from(attribute.as_tensor(), low_tensor)
            ):
                yield RoundedConstant(number, node.outputs[0], widen(low_tensor))


def _graphs(model: ir.Model) -> list[ir.Graph]:
    return [model.graph, *model.graph.subgraphs()]


def _low_constants(graph: ir.Graph) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Yield the low weights and constants of a graph, by the names that they had before."""
    for name, value in graph.initializers.items():
        if value.const_value is not None and is_low_tensor(value.const_value):
            yield origin(name), value.const_value
    for node in graph:
        attribute = node.attributes.get("value") if node.op_type == "Constant" else None
        if attribute is not None and is_low_tensor(attribute.value):
            yield origin(node.outputs[0].name or ""), attribute.as_tensor()


def _is_rounded_from(before: ir.TensorProtocol | None, after: ir.TensorProtocol | None) -> bool:
    """Tell whether a constant can be what another one was before it was rounded.

    One with other numbers is an error of the rewrite, which its control must not share.
    """
    if before is None or after is None or before.dtype != FLOAT32.ir:
        return False
    low = dtypes.of(after.dtype.value)
    if low is None or tuple(before.shape) != tuple(after.shape):
        return False
    if _is_converted(before, after):
        return True  # when it is read: nobody could have changed it
    numbers = before.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(after.numpy().astype(np.float32) - numbers)
        limit = low.epsilon * np.abs(numbers) + 2 * low.smallest_subnormal
        beyond = ~np.isfinite(numbers) | (np.abs(numbers) > low.max)
        return bool(((off <= limit) | beyond).all())


def _is_converted(before: ir.TensorProtocol, after: ir.TensorProtocol) -> bool:
    """Tell whether a tensor is another one, and only converted."""
    source = after
    while isinstance(source, ConvertedTensor):
        source = source.source
    if source is after:
        return False
    if isinstance(source, ProtoTensor) and isinstance(before, ProtoTensor):
        return source.raw is before.raw
    place = elements(source).origin
    return isinstance(place, FileRange) and place == elements(before).origin
