"""`check`: is a model safe in the types that it has?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.numerics.safety_report import SafetyReport
from amp_rewrite.rewriting.api import RewriteResult, rewrite, rewrite_freely
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.dangers import Danger, dangers, form_dangers, odd_types
from amp_rewrite.rewriting.mend import mend_types
from amp_rewrite.rewriting.paint.given_notes import given_notes
from amp_rewrite.rewriting.plan.options import (
    KEEP,
    Changes,
    RewriteOptions,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.plan.paint_context import lists_of
from amp_rewrite.rewriting.raise_dangers import form_of, low_of, low_types
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.runtimes.ort.isolated_load import LoadResult, load_of_source

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.compare.verify_report import VerifyReport
    from amp_rewrite.numerics.inputs.batches import Data
    from amp_rewrite.rewriting.widen import WideForm

Progress = Callable[[str], None]


@with_option_names
def check(
    model: Source,
    data: Data | None = None,
    options: RewriteOptions | None = None,
    *,
    run: bool = True,
    stress: bool | None = None,
    providers: Sequence[str] = (),
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> SafetyReport:
    """Tell whether a model in 16 bits is safe in the types that it has.

    The model is read as the float32 model that it stands for. What the rules of a rewrite would not
    make low is named; and the model, emulated in the arithmetic of the target, is compared with its
    float32 form, in which the weights are the same. Of a float32 model it is said what a conversion
    would have to keep.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, .npz or .csv files or folders of .npz files; None makes up plausible inputs.
        options: For which target, and lists and rules. The precision counts for a float32 model.
        run: Whether the model is run at all; False asks the rules alone.
        stress: Try stress inputs too; None does so if there are no data.
        providers: Run it on these execution providers as well, as for `verify`: they must hold.
        progress: Called with what begins.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> unsafe = amp.rewrite("model.onnx", allow_nodes=["exp"]).model
        >>> report = amp.check(unsafe, data, run=False)
        >>> report.ok, [danger.node for danger in report.dangers]
        (False, ['exp'])
    """
    chosen = changed(options, **changes)
    run = arguments.switch("run", run)
    progress = arguments.function("progress", progress)
    devices = arguments.texts("providers", providers)
    if devices:
        from amp_rewrite.numerics.compare.verify import device_providers

        device_providers(devices)
    return Checked.of(model, run=run).judge(
        chosen, data, stress=stress, providers=devices, progress=progress
    )


@dataclass(frozen=True)
class Checked:
    """A model that was read, to be judged for one target or for several.

    Attributes:
        flat: The model, its types mended.
        low: Its 16-bit type; None if it has none.
        odd: What was at odds in the file.
        is_run: Whether it is to be run.
        loading: What ONNX Runtime made of the model; None if that was not asked.
    """

    flat: FlatProto
    low: DType | None
    odd: tuple[Danger, ...]
    is_run: bool
    loading: LoadResult | None

    @staticmethod
    def of(model: Source, *, run: bool) -> Checked:
        """Read a model and, if it is to be run, let ONNX Runtime load it.

        Raises:
            AmpError: The model is wrong.
        """
        mended = mend_types(read_source(model, inline_functions=True))
        flat, loading = mended.flat, load_of_source(model) if run else None
        return Checked(flat, low_of(flat), odd_types(mended.odd), run, loading)

    def judge(
        self,
        options: RewriteOptions,
        data: Data | None,
        *,
        stress: bool | None,
        providers: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> SafetyReport:
        """Tell whether the model is safe on the target of the options; arguments: `check`."""
        flat, low, odd = self.flat, self.low, self.odd
        options = replace(options, strict=False, store=FLOAT32.name)
        if low is None:
            report = _of_float32(flat, for_model(options, flat))
            report = replace(report, is_run=self.is_run, loading=self.loading)
            return replace(report, computes=report.precision, dangers=odd) if odd else report
        chosen = for_model(replace(options, precision=low.name), flat)
        flat.customs = lists_of(chosen).customs
        form = form_of(flat, low)
        result, shown = judged(form, chosen), None
        lacks = self.loading is not None and self.loading.lacks_operator
        if self.is_run and (providers or not lacks):
            given_model = form.given_model
            ways: dict[str, Any] = {"stress": stress, "providers": providers, "progress": progress}
            shown = compared(form, given_model, data, chosen, **ways)
        context, target = result.context, chosen.chosen_target
        found = form_dangers(form, result.painting, context, target, wide_ends=False)
        return SafetyReport(
            low.name,
            target,
            low.name,
            low_nodes(result),
            (*odd, *found.raised, *found.stay),
            shown,
            result,
            is_run=self.is_run,
            loading=self.loading,
            unjudged={other.name: n for other, n in low_types(flat).items() if other != low},
        )


def judged(form: WideForm, options: RewriteOptions) -> RewriteResult:
    """Return what the rules leave of the painting that a model came with."""
    return rewrite_freely(form.model, replace(options, overflow=KEEP))


def low_nodes(result: RewriteResult) -> int:
    """Return how many nodes of a model in 16 bits compute in the type that was judged."""
    low, graph = result.context.given, result.context.type_graph
    if low is None:
        return 0
    notes = given_notes(graph.flat)
    return len({notes[n].node for n in np.unique(graph.node[low]).tolist()} - {ABSENT})


def compared(
    form: WideForm,
    model: Source,
    data: Data | None,
    options: RewriteOptions,
    *,
    rtol: float | None = None,
    stress: bool | None,
    providers: Sequence[str] = (),
    progress: Progress | None,
) -> VerifyReport:
    """Compare a model in 16 bits, emulated, with the float32 form of the one that was read."""
    from amp_rewrite.numerics.compare.verify import compared_models

    return compared_models(
        form.model,
        model,
        data,
        rtol=rtol,
        stress=stress,
        input_ranges=options.input_ranges,
        providers=providers,
        target=options.chosen_target,
        progress=progress,
    )


def _of_float32(flat: FlatProto, options: RewriteOptions) -> SafetyReport:
    """Say of a model without low types what a conversion would have to keep."""
    from amp_rewrite.graph.io.read import read_model

    result = rewrite(read_model(flat), options, overflow=KEEP)
    target = options.chosen_target
    found_dangers = dangers(result.context, result.painting, target)
    return SafetyReport(options.precision, target, FLOAT32.name, 0, found_dangers, None, result)
