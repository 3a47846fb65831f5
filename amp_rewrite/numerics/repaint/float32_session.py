"""A float32 model as a function from a batch to arrays, frugal with memory."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import DataError
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.numerics.emulate.emulated_feeds import widened
from amp_rewrite.numerics.emulate.evaluator import widen_boundary
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.runtimes.model_source import stays_in_files
from amp_rewrite.runtimes.ort.sessions import FAILING, Session, session_options

_NOT_BEHIND_PROBES = ("QDQS8ToU8Transformer",)
"""An operator that ONNX Runtime 1.32 computes wrong from opset 21 on: a Reshape, which a probe
begins with, gets a QuantizeLinear of its own, whose int8 the optimisation reads as uint8, and
loading fails."""


class Float32Session:
    """A loaded model; `run` may be called any number of times.

    What measures a value runs right behind it, so that the value can be freed.
    """

    def __init__(
        self, model: ir.Model, what: str = "the model", *, with_gradients: bool = False
    ) -> None:
        """Load a model.

        Args:
            model: The model. Its 16-bit inputs and outputs become float32 if one is bfloat16, of
                which the runtime takes no arrays.
            what: The model as errors call it.
            with_gradients: Whether it has thousands of values, which come and go. Memory is kept
                for the next ones then (a third faster), and nothing is optimised: that takes half
                of a load, and saves nothing (oww_embedding .31 -> .17 s, ppocrv4_rec 2.7 -> 1.3).
        """
        self._what = what
        ends = (*model.graph.inputs, *model.graph.outputs)
        self._wide = any(value.dtype == BFLOAT16.ir for value in ends)
        if self._wide:
            widen_boundary(model, infer_types(model))
        options = session_options(
            lean=not with_gradients,
            leave_out=(*FAILING, *_NOT_BEHIND_PROBES),
            copies_weights=not stays_in_files(model),
            optimises=not with_gradients,
        )
        self._session = Session(model, options=options, what=what)
        self.outputs = self._session.outputs

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the outputs for one batch; DataError if an input is missing or unknown."""
        self._check(feeds)
        if self._wide:
            feeds = {name: widened(array) for name, array in feeds.items()}
        names = list(self.outputs if outputs is None else outputs)
        return dict(zip(names, self._session.run(feeds, names), strict=True))

    def _check(self, feeds: Feeds) -> None:
        inputs = self._session.inputs
        missing = sorted(set(inputs) - feeds.keys())
        unknown = [n for n in feeds if n not in inputs and n not in self._session.overridable]
        if missing or unknown:
            raise DataError(
                f"the data lack the input {missing[0]!r}"
                if missing
                else f"the data hold {unknown[0]!r}, which is not an input of {self._what}",
                found=", ".join(sorted(feeds)) or "nothing",
                expected=", ".join(sorted(inputs)) or "no input",
            )
