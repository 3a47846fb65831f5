"""`check`: is a model safe in the types that it has?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.inputs.batches import first_batch
from amp_rewrite.numerics.lost_weights import lost_weights
from amp_rewrite.numerics.safety_report import OWN_FORM, SafetyReport
from amp_rewrite.rewriting.api import RewriteResult, rewrite, rewrite_freely
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.dangers import ROUNDED, Danger, dangers, form_dangers, odd_types
from amp_rewrite.rewriting.mend import mend_types
from amp_rewrite.rewriting.paint.given_notes import given_notes
from amp_rewrite.rewriting.paint.wide_ends import wide_ends
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
from amp_rewrite.rewriting.widen import wide_form
from amp_rewrite.runtimes.ort.isolated_load import load_of_source

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
    original: Source | None = None,
    run: bool = True,
    stress: bool | None = None,
    providers: Sequence[str] = (),
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> SafetyReport:
    """Check whether a model in 16 bits is safe in the types that it has.

    The rules of a rewrite name what should be float32; and the model, emulated in the arithmetic of
    the target, is compared with its own float32 form, which has the same weights, or with the
    original. For a float32 model, the report has what would be unsafe in `precision`.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, .npz or .csv files or folders of .npz files; None makes up plausible inputs.
        options: For which target, and lists and rules. The precision counts for a float32 model.
        original: The float32 model that it was made of: a path, an onnx_ir model or a ModelProto.
            Without it, weights that look clipped leave the verdict in doubt.
        run: Whether the model is run at all; False asks the rules alone.
        stress: Try stress inputs too; None does so if there are no data.
        providers: Run it on these execution providers as well, as for `verify`.
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
    mended = mend_types(read_source(model, inline_functions=True))
    flat, odd = mended.flat, odd_types(mended.odd)
    low, loading = low_of(flat), load_of_source(model) if run else None
    chosen = replace(chosen, strict=False)
    if low is None:
        chosen = for_model(chosen, flat)
        result, target = rewrite(flat, chosen, overflow=KEEP), chosen.chosen_target
        found = odd or dangers(result.context, result.painting, target)
        computes = chosen.precision if odd else FLOAT32.name
        return SafetyReport(
            chosen.precision, target, computes, 0, found, None, is_run=run, loading=loading
        )
    chosen = for_model(replace(chosen, precision=low.name), flat)
    flat.customs = lists_of(chosen).customs
    form, (_, *others) = form_of(flat, low), low_types(flat)
    able = targets.find(chosen.chosen_target).precisions
    beside = (wide_form(flat, [t], noted=True) for t in others if t.name in able)
    forms = [form, *(each for each in beside if each is not None)]
    nodes, found = zip(*(_by_rules(each, chosen, data) for each in forms), strict=True)
    shown = None
    if run and (devices or loading is None or not loading.lacks_operator):
        ways: dict[str, Any] = {"stress": stress, "providers": devices, "progress": progress}
        whole = form_of(flat, low, *others) if others else form
        shown = compared(whole, flat, data, chosen, original=original, **ways)
    precision = " and ".join(each.name for each in (low, *others))
    return SafetyReport(
        precision,
        chosen.chosen_target,
        precision,
        sum(nodes),
        (*odd, *chain.from_iterable(found)),
        shown,
        is_run=run,
        loading=loading,
        against=name_of(original),
        weights=lost_weights(flat),
    )


def _by_rules(
    form: WideForm, options: RewriteOptions, data: Data | None
) -> tuple[int, tuple[Danger, ...]]:
    """Return how many nodes of a form compute in its 16-bit type, and the dangers of these."""
    (low,) = form.context.type_graph.bases
    chosen = replace(options, precision=low.name)
    result, target = judged(form, chosen), chosen.chosen_target
    found = form_dangers(form, result.painting, result.context, target, wide_ends=False)
    return low_nodes(result), (*found.raised, *found.stay, *_rounded(result, data))


def _rounded(result: RewriteResult, data: Data | None) -> Iterator[Danger]:
    """Yield the float32 inputs whose digits count and for which the data are 16-bit."""
    first, graph, low = first_batch(data), result.context.type_graph, result.context.low
    names = graph.flat.value_names
    given = {
        v
        for v in graph.flat.main.inputs
        if graph.is_float32(v) and getattr(first.get(names[v]), "dtype", None) == low.numpy
    }
    for value, why in wide_ends(result.context, given).items():
        told = f"is given numbers that were rounded to {low.name}"
        yield Danger(names[value], "input", (), ROUNDED, told, why, "")


def name_of(original: Source | None) -> str:
    """Return what a report calls what a model is compared with."""
    if original is None:
        return OWN_FORM
    return os.fspath(original) if isinstance(original, str | os.PathLike) else "the original"


def judged(form: WideForm, options: RewriteOptions) -> RewriteResult:
    """Return what the rules leave of the painting that a model came with."""
    return rewrite_freely(form.flat, replace(options, overflow=KEEP))


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
    original: Source | None = None,
    rtol: float | None = None,
    stress: bool | None,
    providers: Sequence[str] = (),
    progress: Progress | None,
) -> VerifyReport:
    """Compare a model in 16 bits, emulated, with its original, or with its own float32 form."""
    from amp_rewrite.numerics.compare.verify import compared_models

    return compared_models(
        form.flat if original is None else original,
        model,
        data,
        rtol=rtol,
        stress=stress,
        input_ranges=options.input_ranges,
        providers=providers,
        target=options.chosen_target,
        progress=progress,
    )
