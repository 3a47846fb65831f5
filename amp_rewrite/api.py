"""`rewrite`: load, paint, plan, apply, report. On top of the rooms that do the work.

A file is rewritten as messages, and objects of onnx_ir are made of it when somebody asks for the
model; a model that is in memory is rewritten as it is.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from amp_rewrite.errors import AmpWarning, InvariantError, StrictError
from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.io.model_files import Path, Progress
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.sizes import Shape, Sizes
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting
from amp_rewrite.paint.pipeline import paint
from amp_rewrite.report.likely_overflow import first_likely_overflow
from amp_rewrite.report.unmatched_rules import unmatched_warning
from amp_rewrite.rewriting.casts import CastPlan, plan_casts
from amp_rewrite.rewriting.cleanup import noop_casts
from amp_rewrite.rewriting.options import Changes, RewriteOptions, changed
from amp_rewrite.rewriting.paint_context import lists_of, paint_context
from amp_rewrite.rewriting.save_rewritten import can_save, save_rewritten

if TYPE_CHECKING:
    import onnx_ir as ir

    from amp_rewrite.graph.flat_model import FlatModel
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.report.rewrite_report import Report


@dataclass(frozen=True)
class RewriteResult:
    """What a rewrite gives.

    Attributes:
        flat: The nodes and values of the model that was given, by number.
        options: What was asked for.
        context: What the painting passes knew; its type graph describes the model before.
        painting: The color of every vertex, and why.
        plan: What was changed.
        removed: The model's own Casts, by node, that became no-ops and were removed.
        timings: Step -> seconds: "load", "type_graph", "painting", "casts".
    """

    flat: FlatProto | FlatModel
    options: RewriteOptions
    context: PaintContext
    painting: Painting
    plan: CastPlan
    removed: tuple[int, ...]
    timings: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def model(self) -> ir.Model:
        """The rewritten model; that of a file is built when it is first asked for."""
        return self._model

    @cached_property
    def _model(self) -> ir.Model:
        if not isinstance(self.flat, FlatProto):
            return self.flat.model
        from amp_rewrite.graph.io.read import read_model

        with paused_gc():
            flat = read_model(self.flat)
            _apply(flat, self)
        return flat.model

    def save(self, path: Path, *, progress: Progress | None = None) -> None:
        """Write the rewritten model; weights are converted on their way.

        Args:
            path: The model file; external data go to a file next to it.
            progress: Called every few MiB.

        Raises:
            SaveError: It cannot be written; no new file is left behind.
            LoadError: External data of the model have become unreadable.
        """
        if isinstance(self.flat, FlatProto) and can_save(self.flat):
            with paused_gc():
                graph = self.context.type_graph
                save_rewritten(self.flat, graph, self.plan, self.removed, path, progress)
        else:
            from amp_rewrite.graph.io.save import save

            save(self.model, path, progress=progress)

    def annotate(self) -> None:
        """Note in the metadata of every node what it computes in, and why, for viewers (Netron).

        What is saved from now on has the notes, and so has `model`; an object that `model` gave
        before has none if a file was rewritten.
        """
        from amp_rewrite.report.node_notes import node_notes
        from amp_rewrite.rewriting.note_nodes import note_nodes

        note_nodes(self.flat, node_notes(self.report))
        if isinstance(self.flat, FlatProto):
            self.__dict__.pop("_model", None)  # it was made of the messages without notes

    def _repr_html_(self) -> str:
        """Return what notebooks show: the report."""
        return self.report._repr_html_()  # pyright: ignore[reportPrivateUsage] its notebooks' name

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
        return self._reported()

    def report_of_sizes(self, dims: Mapping[str, int] | None = None) -> Report:
        """Return the report with the sizes of casts and regions that onnx's inference finds, too.

        Args:
            dims: Lengths of free dimensions by the names that the inputs give them; the size of a
                value that depends on another one is not known.

        Raises:
            OptionError: No input has a dimension of such a name, or inference fails.
        """
        from amp_rewrite.graph.io.inferred_shapes import inferred_shapes

        shapes = inferred_shapes(self.model, {} if dims is None else dims)
        return self._reported(self._sizes(shapes, self.plan.inner))

    def report_of_run(self, shapes: Mapping[str, Shape]) -> Report:
        """Return the report with the sizes that casts and regions had in a run of the model.

        Args:
            shapes: The shapes of the values of the main graph by name, as the model before the
                rewrite calls them; those of others are what the file records.
        """
        return self._reported(self._sizes(shapes, {}))

    def _sizes(self, shapes: Mapping[str, Shape], renamed: Mapping[int, str]) -> Sizes:
        """Return the sizes of values by shapes of the main graph's; `renamed` are other names."""
        names = ((v, renamed.get(v, name)) for v, name in enumerate(self.flat.value_names))
        known = {v: shapes[n] for v, n in names if self.flat.home[v] == MAIN and n in shapes}
        return Sizes(self.flat, known)

    def _reported(self, sizes: Sizes | None = None) -> Report:
        from amp_rewrite.report.build_report import build_report

        with paused_gc():
            return build_report(
                self.context, self.painting, self.plan, self.options, len(self.removed), sizes
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
            flat = _read(model, chosen)
        return _rewrite(flat, chosen, clock)


def rewrite_in_place(model: ir.Model, options: RewriteOptions) -> RewriteResult:
    """Rewrite a model that nobody else holds; after an error it is of no use.

    Raises:
        AmpError: As for `rewrite`.
    """
    with paused_gc():
        return _rewrite(_in_memory(model, options), options, _Clock())


def _read(source: Source, options: RewriteOptions) -> FlatProto | FlatModel:
    """Read a model; what is in memory, and what has functions to inline, as objects of onnx_ir."""
    if isinstance(source, str | os.PathLike | bytes):
        flat = read_flat(source)
        if not (options.inline_functions and flat.functions):
            return flat
    from amp_rewrite.graph.io.load import load

    return _in_memory(load(source), options)


def _in_memory(model: ir.Model, options: RewriteOptions) -> FlatModel:
    from amp_rewrite.graph.flat_model import FlatModel
    from amp_rewrite.graph.functions import inline

    if options.inline_functions:
        inline(model)
    return FlatModel.of(model)


def _rewrite(flat: FlatProto | FlatModel, options: RewriteOptions, clock: _Clock) -> RewriteResult:
    lists = lists_of(options)
    options.check_names(flat)
    original = _copy(flat) if options.strict else None
    with clock.step("type_graph"):
        context = paint_context(flat, lists, options)
    with clock.step("painting"):
        painted = paint(context)
    with clock.step("casts"):
        plan = plan_casts(painted.context, painted.painting, options.store)
        removed = noop_casts(context.type_graph, plan)
        result = RewriteResult(
            flat, options, painted.context, painted.painting, plan, removed, clock.timings
        )
        if not isinstance(flat, FlatProto):
            _apply(flat, result)
    if original is not None:
        _check_strict(original, result)
    _warn(result)
    return result


def _warn(result: RewriteResult) -> None:
    """Tell what users may have meant otherwise.

    That is rules about nodes that match nothing, and the first node that an estimate keeps float32:
    a range or data may know better.
    """
    unmatched = unmatched_warning(result.context)
    if unmatched is not None:
        warnings.warn(unmatched, AmpWarning, stacklevel=4)
    found = first_likely_overflow(result.context)
    if found is not None:
        remedy = "an input range (--input-range NAME=LOW:HIGH) or calibrate knows better"
        warnings.warn(f"{found} by an estimate; {remedy}", AmpWarning, stacklevel=4)


def _apply(flat: FlatModel, result: RewriteResult) -> None:
    """Carry the plan out on the objects of onnx_ir."""
    from amp_rewrite.graph.step_metadata import describe_precision
    from amp_rewrite.rewriting.apply_plan import apply_plan, remove_noop_casts

    apply_plan(flat, result.plan, result.context.type_graph)
    remove_noop_casts(flat, result.removed)
    if result.plan.computes_low:
        describe_precision(flat.model, result.options.precision)


def _copy(flat: FlatProto | FlatModel) -> ir.Model:
    """Return the model as it is before the rewrite."""
    from amp_rewrite.graph.clone import clone
    from amp_rewrite.graph.io.read import read_model

    return read_model(flat).model if isinstance(flat, FlatProto) else clone(flat.model)


def _check_strict(original: ir.Model, result: RewriteResult) -> None:
    """Refuse a rewrite that breaks an invariant or is not complete.

    Raises:
        InvariantError: It breaks one.
        StrictError: It converts nothing, meets an operator on no list, or lacks a kernel.
    """
    from amp_rewrite.graph.invariants.check_model import verify_invariants
    from amp_rewrite.report.shortcomings import shortcomings

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
