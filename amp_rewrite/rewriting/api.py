"""`rewrite`: load, paint, plan, apply, report. On top of the rooms that do the work.

Messages are rewritten. A model of onnx_ir is written as messages before, which refer to its
tensors, and objects are made of what was rewritten when somebody asks for the model.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import onnx

from amp_rewrite import targets
from amp_rewrite.base.printable import one_line
from amp_rewrite.dtypes import LOW, OTHERS
from amp_rewrite.errors import AmpWarning, OnlyError, OptionError, StrictError, warn
from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.graph.sizes import Shape, Sizes
from amp_rewrite.rewriting.apply.planned import Planned, noop_casts
from amp_rewrite.rewriting.apply.written_metadata import for_model, written_metadata
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.paint.painting import Painting, overflows
from amp_rewrite.rewriting.paint.pipeline import Course
from amp_rewrite.rewriting.plan.casts import CastPlan, plan_casts
from amp_rewrite.rewriting.plan.options import (
    SCALE,
    Changes,
    RewriteOptions,
    changed,
    require_dimensions,
    with_option_names,
)
from amp_rewrite.rewriting.plan.paint_context import lists_of, paint_context, painted
from amp_rewrite.rewriting.read_source import is_object, mentions, read_source
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.rewriting.report.shortcomings import (
    cast_defaults,
    first_likely_overflow,
    unmatched_warning,
)
from amp_rewrite.rewriting.report.write_text import log_folder, write_report

if TYPE_CHECKING:
    from amp_rewrite.graph.dataflow import TypeGraph
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.rewriting.report.explain import Reported
    from amp_rewrite.rewriting.report.rewrite_report import Report
    from amp_rewrite.rewriting.scaling.needs import Measured, Needs
    from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled


_BY_AN_ESTIMATE = "by an estimate"


@dataclass(frozen=True)
class RewriteResult(Planned, Shown):
    """The result of a rewrite.

    Attributes:
        flat: The nodes and values of the model that was given, by number.
        options: What was asked for.
        context: What the painting passes knew; its type graph describes the model before.
        painting: The color of every vertex, and why.
        plan: What was changed.
        removed: The model's own Casts, by node, that became no-ops and were removed.
        timings: Step -> seconds: "load", "type_graph", "painting", "casts", and "scaling" if
            something leaves the range.
        scaling: What was multiplied by powers of two, or None; `flat` is the scaled model then.
        refused: What leaves the range and is not scaled, where nothing is.
        end_casts: How many Casts `flat` has before the plan, so that what was in 16 bits is
            float32: inputs and outputs, and what keeps ONNX Runtime from loading the model.
        course: How the painting began, if it was not given.
    """

    flat: FlatGraph
    options: RewriteOptions
    context: PaintContext
    painting: Painting
    plan: CastPlan
    removed: tuple[int, ...]
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    scaling: Scaling | None = None
    refused: tuple[Unscaled, ...] = ()
    end_casts: int = 0
    course: Course | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.report.in_short())

    def lines(self) -> Iterator[str]:
        """Return the lines of the report."""
        return self.report.lines()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report, version 1."""
        return self.report.to_dict()

    def annotate(self) -> None:
        """Note in the metadata of every node what it computes in, and why, for viewers (Netron).

        What is saved from now on has the notes, and so has `model`; an object that `model` gave
        before has none.
        """
        from amp_rewrite.rewriting.report.explain import node_notes, note_nodes

        note_nodes(self.flat, node_notes(self.report))
        for made in ("_model", "rewritten"):  # of the messages without notes
            self.__dict__.pop(made, None)

    def _metadata(self) -> dict[str, str]:
        return written_metadata(self.flat, self.plan, self.options.chosen_target)

    @property
    def painted(self) -> tuple[TypeGraph, Painting, CastPlan]:
        """The type graph, what is low in it, and what changes."""
        return self.context.type_graph, self.painting, self.plan

    @property
    def changed(self) -> bool:
        """Whether the rewritten model differs from the input."""
        return not self.plan.is_empty or self.end_casts > 0

    @property
    def report(self) -> Report:
        """The frozen record of what happened and why; built when first asked for."""
        return self._report  # a type checker takes no cached_property for `explain.Reported`

    @cached_property
    def _report(self) -> Report:
        return self._reported()

    def report_of_sizes(self, dims: Mapping[str, int] | None = None) -> Report:
        """Return the report with the sizes of casts that onnx's inference finds, too.

        Args:
            dims: Lengths of free dimensions by the names that the inputs give them, None for those
                of the options; the size of a value that depends on another one is not known.

        Raises:
            OptionError: No input has a dimension of such a name, or a length is impossible.
        """
        from amp_rewrite.graph.proto.missing_shapes import missing_shapes
        from amp_rewrite.rewriting.plan.input_ranges import free_lengths

        lengths = self.options.lengths if dims is None else free_lengths(dims)
        require_dimensions(lengths, self.flat)
        shapes = missing_shapes(replace(self.flat, lengths=lengths))
        return self._reported(Sizes(self.flat, shapes))

    def report_of_run(self, shapes: Mapping[str, Shape]) -> Report:
        """Return the report with the sizes that casts had in a run of the model.

        Args:
            shapes: The shapes of the values of the main graph by name, as the model before the
                rewrite calls them; those of others are what the file records.
        """
        names = enumerate(self.flat.value_names)
        sizes = {v: shapes[n] for v, n in names if self.flat.home[v] == MAIN and n in shapes}
        return self._reported(Sizes(self.flat, sizes))

    def _reported(self, sizes: Sizes | None = None) -> Report:
        from amp_rewrite.rewriting.report.build_report import build_report

        with paused_gc():
            report = build_report(
                self.context, self.painting, self.plan, self.options, len(self.removed), sizes
            )
            added = report.summary.casts_added + self.end_casts
            summary = replace(report.summary, casts_added=added)
            return replace(report, summary=summary, scaling=self._told_scaling())

    def _told_scaling(self) -> Scaling | None:
        """Return what was scaled, and what stays float32 since it was not."""
        if self.scaling is None and not self.refused:
            return None
        from amp_rewrite.rewriting.scaling.scaling import Scaling

        scaling = self.scaling or Scaling(self.flat, (), self.refused)
        left = tuple(each for each in scaling.unscaled if not self._is_low(each.value))
        return replace(scaling, unscaled=left) if scaling.sets or left else None

    def _is_low(self, name: str) -> bool:
        """Tell whether a value is in 16 bits, for what masks fill may leave the range."""
        source, names = self.context.type_graph.source, self.flat.value_names
        return name in names and self.painting.is_allow(source[names.index(name)])


@with_option_names
def rewrite(
    model: Source, options: RewriteOptions | None = None, **changes: Unpack[Changes]
) -> RewriteResult:
    """Rewrite a model to mixed precision.

    Forward and backward pass of a training step are painted together; its loss, its update and
    what lies between the gradients and the update stay float32, as do its states.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        options: How to rewrite; None for the default options.
        **changes: Single options by name, such as `precision="bfloat16"`, in place of those in
            `options`; `RewriteOptions` lists them all.

    Returns:
        The rewritten model, with report and timings.

    Raises:
        StrictError: The option `strict` is set, and the rewrite is not complete.
        OnlyError: The option `only` is set, and something cannot be in 16 bits.
        AmpError: The model, a list or an option is wrong; one line says what, where and what to do.

    Examples:
        >>> result = amp.rewrite("model.onnx", precision="bfloat16")
        >>> result
        <RewriteResult: 3 of 4 float32 nodes in bfloat16 for cuda, 4 casts added>
        >>> result.save("low.onnx")
    """
    return rewrite_as_found(model, changed(options, **changes))


def rewrite_as_found(
    model: Source, options: RewriteOptions, found: Findings = NOTHING_FOUND
) -> RewriteResult:
    """Do what `rewrite` does; `found` is what data or a search have shown of the model.

    Raises:
        AmpError: As for `rewrite`.
    """
    result = rewrite_freely(model, options, found)
    if options.only is not None:
        _check_only(result, options.only)
    return result


def rewrite_freely(
    model: Source, options: RewriteOptions, found: Findings = NOTHING_FOUND
) -> RewriteResult:
    """Return a rewrite whatever stays float32, though the option `only` be set.

    `found` is what data or a search have shown of the model.

    Raises:
        AmpError: As for `rewrite`.
    """
    chosen, clock = options, _Clock()
    with paused_gc():
        with clock.step("load"):
            flat = read_source(model, inline_functions=chosen.inline_functions)
            chosen = for_model(chosen, flat)
            flat, end_casts = _with_ends(flat, chosen)
            wide = float32_form(flat, chosen)
        if wide is not None:
            result = _rewrite(wide, chosen, clock, found)
            if result.plan.computes_low:
                return result
        result = _rewrite(flat, chosen, clock, found)
        return replace(result, end_casts=end_casts) if end_casts else result


def rewrite_in_form(flat: FlatGraph, options: RewriteOptions, found: Findings) -> RewriteResult:
    """Do what `rewrite_freely` does to a model that stands in the form in which it starts."""
    with paused_gc():
        return _rewrite(flat, options, _Clock(), found)


def _with_ends(flat: FlatGraph, options: RewriteOptions) -> tuple[FlatGraph, int]:
    """Return a model with float32 inputs and outputs in the place of 16-bit ones, if asked for."""
    if not mentions(flat, LOW.values()):
        return flat, 0
    casts = 0
    if options.makes_low and targets.find(options.chosen_target).meets_onnx_runtime:
        from amp_rewrite.rewriting.mend import with_wide_norms

        flat, casts = with_wide_norms(flat, options.low)
    if not options.ends_are_float32:
        return flat, casts
    from amp_rewrite.rewriting.widen import with_float32_ends

    flat, of_ends = with_float32_ends(flat)
    return flat, casts + of_ends


def float32_form(flat: FlatGraph, options: RewriteOptions) -> FlatGraph | None:
    """Return the float32 form of a model in other types, in which a rewrite starts; None for most.

    These have nothing in another type than float32 and the 16-bit one of the options.
    """
    if not mentions(flat, [dtype for dtype in OTHERS if dtype is not options.low]):
        return None
    from amp_rewrite.rewriting.widen import single_precision

    return single_precision(flat, options)


def scaled_by_measures(
    model: Source, options: RewriteOptions, measured: Measured
) -> Scaling | None:
    """Return a model scaled by what was measured of it; None if nothing has to be scaled."""
    # imported here: few models leave the range
    from amp_rewrite.rewriting.scaling.needs import Needs

    with paused_gc():
        flat = read_source(model, inline_functions=options.inline_functions)
        options = for_model(options, flat)
        flat, _ = _with_ends(flat, options)
        flat = float32_form(flat, options) or flat
        before = _planned(flat, options, _Clock())
        return _scaling(before, Needs(before.context, measured, before.course))


@with_option_names
def explain(
    result: Report | Reported | Source, node: str | None = None, **changes: Unpack[Changes]
) -> str:
    """Return why a node has its types: one line per type variable, back to the origin.

    Args:
        result: What `rewrite` or `convert` returned, or its report; or a model, which is rewritten
            for it.
        node: The name of a node, a module or a value; None for all nodes.
        **changes: Options of that rewrite, as for `rewrite`.

    Raises:
        OptionError: The model has no such node, something else than a result or a model was given,
            or options with a result.
        AmpError: As for `rewrite`.

    Examples:
        >>> print(amp.explain("model.onnx", "fc1"))
        fc1 (MatMul) becomes float16: it is on the allow list: ...
    """
    from amp_rewrite.rewriting.report.explain import explain as told

    given: Any = result
    if isinstance(given, str | os.PathLike | bytes | onnx.ModelProto) or is_object(given):
        return told(rewrite(given, **changes), node)
    if changes:
        raise OptionError(
            "a result was made with its options already",
            found=", ".join(changes),
            remedy="explain the model instead, or give them to rewrite",
        )
    return told(given, node)


def _rewrite(
    flat: FlatGraph, options: RewriteOptions, clock: _Clock, found: Findings
) -> RewriteResult:
    result = _planned(flat, options, clock, found)
    if (options.overflow == SCALE or options.adds_nodes) and overflows(result.painting):
        result = _scaled(result, clock)
    if options.strict:
        _check_strict(result)
    _warn(result)
    folder = log_folder()
    if folder is not None:
        write_report(result.report, folder)
    return result


def _planned(
    flat: FlatGraph, options: RewriteOptions, clock: _Clock, found: Findings = NOTHING_FOUND
) -> RewriteResult:
    """Paint a model, and plan what changes."""
    lists = lists_of(options)
    flat.customs = lists.customs
    options.check_names(flat)
    flat.say_lengths(options.lengths)
    with clock.step("type_graph"):
        context = paint_context(flat, lists, options, found)
    with clock.step("painting"):
        finished = painted(context)
    with clock.step("casts"):
        plan = plan_casts(finished.context, finished.painting)
        removed = noop_casts(context.type_graph, plan)
        return RewriteResult(
            flat,
            options,
            finished.context,
            finished.painting,
            plan,
            removed,
            clock.timings,
            course=finished.course,
        )


def _scaling(before: RewriteResult, needs: Needs) -> Scaling | None:
    """Return a scaled model, or None if nothing has to be."""
    from amp_rewrite.rewriting.scaling.scale_model import scale_model

    flat, kept = before.flat, before.options.node_rules.preserve
    preserved = [node for node, name in enumerate(flat.node_names) if name in kept]
    adds_nodes = before.options.adds_nodes
    return scale_model(flat, needs, preserved, adds_nodes=adds_nodes)


def _scaled(before: RewriteResult, clock: _Clock) -> RewriteResult:
    """Return the rewrite of a scaled model; the one given if that makes no more of it low."""
    # imported here: few models leave the range
    from amp_rewrite.rewriting.scaling.needs import Needs

    with clock.step("scaling"):
        scaling = _scaling(before, Needs(before.context, None, before.course))
    if scaling is None:
        return before
    if not scaling.sets:
        return replace(before, refused=scaling.unscaled)
    from amp_rewrite.rewriting.scaling.scale_model import NO_SAVING, saved_by_scaling

    planned = _planned(scaling.flat, before.options, clock, before.context.found)
    adds_nodes = before.options.adds_nodes
    saved = saved_by_scaling(scaling, before.painted, planned.painted, adds_nodes=adds_nodes)
    if saved is None:
        return replace(before, refused=scaling.refused(NO_SAVING))
    return replace(planned, scaling=saved)


def _warn(result: RewriteResult) -> None:
    """Tell what users may have meant otherwise."""
    unmatched = unmatched_warning(result.context)
    if unmatched is not None:
        warn(unmatched)
    defaults = cast_defaults(result.context, result.plan)
    if defaults is not None:
        warn(defaults)
    warn_of_estimate(result)


def warn_of_estimate(result: RewriteResult) -> None:
    """Tell of the first node that an estimate keeps float32, if one does."""
    overflow = first_likely_overflow(result.context)
    if overflow is not None:
        remedy = "give --input-range NAME=LOW:HIGH, or calibrate on your data"
        warn(f"{_BY_AN_ESTIMATE}, {overflow}; {remedy}")


@contextmanager
def untold_estimates() -> Generator[None]:
    """Tell nothing of estimates in the body, which may scale or measure what they are of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _BY_AN_ESTIMATE, AmpWarning)
        yield


def _check_strict(result: RewriteResult) -> None:
    """Refuse a rewrite that is not complete.

    Raises:
        StrictError: It converts nothing, meets an operator on no list, or lacks a kernel.
    """
    from amp_rewrite.rewriting.report.shortcomings import shortcomings

    missing = shortcomings(result.report)
    if missing:
        raise StrictError(missing, result)


def _check_only(result: RewriteResult, precision: str) -> None:
    """Refuse a rewrite that leaves something in float32.

    Raises:
        OnlyError: It does.
    """
    from amp_rewrite.rewriting.report.float32_left import float32_left, lines_of_left, reasons_of

    left = float32_left(read_source(result.rewritten, inline_functions=True))
    if left:
        raise OnlyError(lines_of_left(left, reasons_of(result.report), precision), result)


class _Clock:
    """Wall-clock seconds by step."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Time the body under a name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start
