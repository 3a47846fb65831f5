"""`rewrite`: load, paint, plan, apply, report. On top of the rooms that do the work."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import onnx
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.functions import inline_all
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.origin import paused_gc
from amp_rewrite.graph.step_metadata import describe_precision
from amp_rewrite.kernels import KernelTable
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting
from amp_rewrite.paint.pipeline import paint
from amp_rewrite.paint.ties import kernel_ties
from amp_rewrite.report.build_report import build_report
from amp_rewrite.report.records import Report
from amp_rewrite.rewrite.apply_plan import apply_plan
from amp_rewrite.rewrite.casts import CastPlan, plan_casts
from amp_rewrite.rewrite.cleanup import noop_casts, remove_noop_casts
from amp_rewrite.rewrite.options import Lists, RewriteOptions, names_of
from amp_rewrite.rewrite.paint_context import paint_context


@dataclass(frozen=True)
class RewriteResult:
    """What a rewrite gives.

    Attributes:
        model: The rewritten model; the input is untouched.
        options: What was asked for.
        context: What the painting passes knew; its type graph describes the model before.
        painting: The color of every vertex, and why.
        plan: What was changed.
        removed: The model's own Casts that became no-ops and were removed.
        timings: Step -> seconds: "load", "type_graph", "painting", "casts".
    """

    model: ir.Model
    options: RewriteOptions
    context: PaintContext
    painting: Painting
    plan: CastPlan
    removed: tuple[ir.Node, ...]
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
    model: str | os.PathLike[str] | ir.Model | onnx.ModelProto,
    *,
    precision: str = "float16",
    lists: Lists = None,
    level: str = "default",
    target: str = targets.DEFAULT,
    keep_io_types: bool | Iterable[str] = True,
    preserve: Iterable[str] = (),
    deny_nodes: Iterable[str] = (),
    allow_nodes: Iterable[str] = (),
    weights: str = "convert",
    infer_after_allow: bool = True,
    inline_functions: bool = False,
) -> RewriteResult:
    """Rewrite a model to mixed precision.

    Forward and backward pass of a training step are painted together; its loss, its update and
    what lies between the gradients and the update stay float32, as do its states.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        precision: "float16" or "bfloat16".
        lists: Op lists: None for the built-in ones of precision and target, a YAML file, several
            files of which later ones overlay earlier ones, or an OpLists.
        level: "default", "TENSOR_CORES_ONLY", "TREAT_INFER_AS_DENY" or "UNSAFE_FORCE_ALL", in any
            letter case; the environment variable AMP_REWRITE_LEVEL applies to "default".
        target: "cuda" or "cpu" (only what the provider has kernels for becomes low), or "schema"
            (whatever the ONNX schemas admit).
        keep_io_types: True keeps the types of all graph inputs and outputs, with casts inside;
            False gives every float32 one the low type; a list of names keeps those.
        preserve: Names of nodes that must not be touched.
        deny_nodes: Regular expressions; nodes whose whole name matches stay float32.
        allow_nodes: Regular expressions; nodes that are treated as if on the allow list.
        weights: "convert" stores low-precision weights; "cast" keeps float32 ones and adds Casts.
        infer_after_allow: Whether an infer operator right behind an allow one becomes low.
        inline_functions: Inline model-local functions first; otherwise a call is a boundary.

    Returns:
        The rewritten model, with report and timings.

    Raises:
        AmpError: The model, a list or an option is wrong; one line says what, where and what to do.
    """
    keep = keep_io_types
    if not isinstance(keep, bool):
        keep = names_of(keep, "keep_io_types")
    options = RewriteOptions(
        precision=precision,
        lists=lists,
        level=level,
        target=target,
        keep_io_types=keep,
        preserve=names_of(preserve, "preserve"),
        deny_nodes=names_of(deny_nodes, "deny_nodes"),
        allow_nodes=names_of(allow_nodes, "allow_nodes"),
        weights=weights,
        infer_after_allow=infer_after_allow,
        inline_functions=inline_functions,
    )
    return rewrite_with(model, options)


def rewrite_with(
    source: str | os.PathLike[str] | ir.Model | onnx.ModelProto, options: RewriteOptions
) -> RewriteResult:
    """Rewrite a model as `options` says; `rewrite` is the public form.

    Raises:
        AmpError: The model or a list is wrong.
    """
    clock = _Clock()
    with paused_gc():
        with clock.step("load"):
            model = load(source)
        return _rewrite(model, options, clock)


def rewrite_in_place(model: ir.Model, options: RewriteOptions) -> RewriteResult:
    """Rewrite a model that nobody else holds; after an error it is of no use.

    Raises:
        AmpError: The model or a list is wrong.
    """
    with paused_gc():
        return _rewrite(model, options, _Clock())


def _rewrite(model: ir.Model, options: RewriteOptions, clock: _Clock) -> RewriteResult:
    lists = _resolve_lists(options)
    with clock.step("load"):
        if options.inline_functions:
            inline_all(model)
        options.check_names(model)
    with clock.step("type_graph"):
        kernels = _kernels(options)
        tie = None if kernels is None else kernel_ties(kernels, options.low)
        type_graph = build_type_graph(model, tie)
    with clock.step("painting"):
        context = paint_context(type_graph, lists, kernels, options)
        painted = paint(context)
    with clock.step("casts"):
        plan = plan_casts(painted.context, painted.painting)
        removed = noop_casts(type_graph, plan)
        result = RewriteResult(
            model, options, painted.context, painted.painting, plan, removed, clock.timings
        )
        apply_plan(model, plan)
        remove_noop_casts(removed)
        if not plan.is_empty:
            describe_precision(model, options.precision)
    return result


def _resolve_lists(options: RewriteOptions) -> OpLists:
    if isinstance(options.lists, OpLists):
        return options.lists.configured(options.level, os.environ)
    return load_lists(
        options.lists, precision=options.precision, target=options.target, level=options.level
    )


def _kernels(options: RewriteOptions) -> KernelTable | None:
    provider = targets.find(options.target).kernels
    return None if provider is None else KernelTable.load(provider)


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
