"""`rewrite`: load, paint, plan, apply, report. On top of the rooms that do the work."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Unpack

import onnx_ir as ir

from amp_rewrite.errors import InvariantError, StrictError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.functions import inline
from amp_rewrite.graph.invariants.check_model import verify_invariants
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.origin import paused_gc
from amp_rewrite.graph.step_metadata import describe_precision
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting
from amp_rewrite.paint.pipeline import paint
from amp_rewrite.report.build_report import build_report
from amp_rewrite.report.records import Report, shortcomings
from amp_rewrite.rewriting.apply_plan import apply_plan, remove_noop_casts
from amp_rewrite.rewriting.casts import CastPlan, plan_casts
from amp_rewrite.rewriting.cleanup import noop_casts
from amp_rewrite.rewriting.options import Changes, RewriteOptions, changed
from amp_rewrite.rewriting.paint_context import lists_of, paint_context


@dataclass(frozen=True)
class RewriteResult:
    """What a rewrite gives.

    Attributes:
        model: The rewritten model; the input is untouched.
        options: What was asked for.
        context: What the painting passes knew; its type graph describes the model before.
        painting: The color of every vertex, and why.
        plan: What was changed.
        removed: The model's own Casts, by node, that became no-ops and were removed.
        timings: Step -> seconds: "load", "type_graph", "painting", "casts".
    """

    model: ir.Model
    options: RewriteOptions
    context: PaintContext
    painting: Painting
    plan: CastPlan
    removed: tuple[int, ...]
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether the rewritten model differs from the input."""
        return not self.plan.is_empty

    @property
    def report(self) -> Report:
        """The frozen record of what happened and why; built when first asked for."""
        return self._report  # a type checker takes no cached_property for `explain.Reported`

    @cached_property
    def _report(self) -> Report:
        with paused_gc():
            return build_report(
                self.context, self.painting, self.plan, self.options, len(self.removed)
            )


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
        AmpError: The model, a list or an option is wrong; one line says what, where and what to do.
    """
    chosen, clock = changed(options, changes), _Clock()
    with paused_gc():
        with clock.step("load"):
            loaded = load(model)
        return _rewrite(loaded, chosen, clock)


def rewrite_in_place(model: ir.Model, options: RewriteOptions) -> RewriteResult:
    """Rewrite a model that nobody else holds; after an error it is of no use.

    Raises:
        AmpError: As for `rewrite`.
    """
    with paused_gc():
        return _rewrite(model, options, _Clock())


def _rewrite(model: ir.Model, options: RewriteOptions, clock: _Clock) -> RewriteResult:
    lists = lists_of(options)
    with clock.step("load"):
        if options.inline_functions:
            inline(model)
        flat = FlatModel.of(model)
        options.check_names(flat)
    original = clone(model) if options.strict else None
    with clock.step("type_graph"):
        context = paint_context(flat, lists, options)
    with clock.step("painting"):
        painted = paint(context)
    with clock.step("casts"):
        plan = plan_casts(painted.context, painted.painting)
        removed = noop_casts(context.type_graph, plan)
        result = RewriteResult(
            model, options, painted.context, painted.painting, plan, removed, clock.timings
        )
        apply_plan(flat, plan, context.type_graph)
        remove_noop_casts(flat, removed)
        if not plan.is_empty:
            describe_precision(model, options.precision)
    if original is not None:
        _check_strict(original, result)
    return result


def _check_strict(original: ir.Model, result: RewriteResult) -> None:
    """Refuse a rewrite that breaks an invariant or is not complete.

    Raises:
        InvariantError: It breaks one.
        StrictError: It converts nothing, meets an operator on no list, or lacks a kernel.
    """
    keep = result.options.keep_io_types
    broken = verify_invariants(original, result.model, keep_io_types=keep)
    if broken:
        raise InvariantError(
            f"{broken[0].invariant} does not hold: {broken[0].message}",
            where=broken[0].where,
            remedy="please report this with the model; nothing was written",
        )
    missing = shortcomings(result.report)
    if missing:
        raise StrictError(missing, result)


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
