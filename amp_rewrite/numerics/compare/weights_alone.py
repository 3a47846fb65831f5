"""The control of a verification: the weights rounded, and nothing else.

A model whose weights are rounded to 16 bits and that computes in float32 has errors, too. What is
as far off as that owes it to its weights, or amplifies whatever is rounded: no choice of operators
to keep float32 helps while their weights are in 16 bits.

Evidence: weights that cancel (tests/numerics/compare/test_trusted_verdicts.py): without, the model
fails; with, it is in doubt, as rounding the weights alone gives the same error.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.added import origin
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.type_attributes import is_low_tensor, widen
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Feeds

Constants = dict[str, tuple[ir.Value, ir.TensorProtocol]]


class WeightsAlone:
    """The original with the weights of the rewritten model, in float32; neither is changed."""

    def __init__(self, original: TypedModel, rewritten: ir.Model, threads: int) -> None:
        """Take both models; nothing is loaded yet."""
        self._original, self._rewritten, self._threads = original, rewritten, threads

    def run(self, feeds: Feeds, names: Collection[str]) -> dict[str, Any] | None:
        """Return outputs for a feed of the original; None where it cannot be run so."""
        try:
            return None if self._session is None else self._session.run(feeds, names)
        except AmpError:
            return None

    @cached_property
    def _session(self) -> Evaluator | None:
        """The session; None where no weight is low or it cannot be loaded."""
        model = _with_rounded_weights(self._original, self._rewritten)
        try:
            return None if model is None else Evaluator(model, threads=self._threads)
        except AmpError:
            return None


def _with_rounded_weights(original: TypedModel, rewritten: ir.Model) -> TypedModel | None:
    """Return the original with the numbers to which a rewrite rounded its constants; None for none.

    A rewrite keeps the name of a weight, or calls it a cast of what it was, and the graphs inside
    nodes stand in one order in both.
    """
    model, is_changed = original.copy(), False
    graphs = ([m.graph, *m.graph.subgraphs()] for m in (model.model, rewritten))
    for graph, other in zip(*graphs, strict=False):
        low = {origin(n): t for n, (_, t) in _constants(other).items() if is_low_tensor(t)}
        for name, (value, tensor) in _constants(graph).items():
            if name not in low or not _is_rounded_from(tensor, low[name]):
                continue
            is_changed, node = True, value.producer()
            if node is None:
                value.const_value = widen(low[name])
            else:
                node.attributes["value"] = ir.AttrTensor("value", widen(low[name]))
    return model if is_changed else None


def _constants(graph: ir.Graph) -> Constants:
    """Return the weights and the tensors of Constants in a graph, by name."""
    found: Constants = {
        name: (value, value.const_value)
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
    for node in graph:
        attribute = node.attributes.get("value") if node.op_type == "Constant" else None
        if attribute is not None:
            found[node.outputs[0].name or ""] = node.outputs[0], attribute.as_tensor()
    return found


def _is_rounded_from(before: ir.TensorProtocol, after: ir.TensorProtocol) -> bool:
    """Tell whether a constant can be what another one was before it was rounded.

    One with other numbers is an error of the rewrite, which its control must not share.
    """
    low = dtypes.of(after.dtype.value)
    if before.dtype != FLOAT32.ir or low is None or tuple(before.shape) != tuple(after.shape):
        return False
    numbers = before.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(after.numpy().astype(np.float32) - numbers)
        limit = low.epsilon * np.abs(numbers) + 2 * low.smallest_subnormal
        beyond = ~np.isfinite(numbers) | (np.abs(numbers) > low.max)
        return bool(((off <= limit) | beyond).all())
