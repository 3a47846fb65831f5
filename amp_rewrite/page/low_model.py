"""The page of a model that came in 16 bits: its painting, its dangers, what was raised.

"Before" is the float32 model that the file stands for. In the page of `check` "after" is the file:
what should not be low is low, with the reason for which it should not. In that of `repair` it is
the result, and what was raised stays float32.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.repair_report import Repair
from amp_rewrite.numerics.safety_report import SafetyReport, danger_lines
from amp_rewrite.page.evidence import Evidence, Judgement, measured
from amp_rewrite.page.render import write_page
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.apply.planned import noop_casts
from amp_rewrite.rewriting.paint.painting import Color, Mark, Reason
from amp_rewrite.rewriting.plan.casts import plan_casts
from amp_rewrite.rewriting.report.file_sizes import sizes_of_files
from amp_rewrite.rewriting.report.gains import Sizes
from amp_rewrite.rewriting.report.next_steps import Names, NextStep

_BEFORE = "Before is the float32 model that the file stands for, after is {after}."


def write_check_page(
    page: Path, safety: SafetyReport, model: Path, data: Sequence[Path] | None
) -> None:
    """Write the page of a check.

    Raises:
        SaveError: The page cannot be written.
        DataError: The data cannot be read.
    """
    name = shlex.quote(model.name)
    steps: list[NextStep] = []
    if safety.run is None and safety.nodes:
        why = "Run it, emulated in the arithmetic of the target."
        steps.append(NextStep(why, f"amp-rewrite check {name} --target {safety.target}"))
    if not safety.ok:
        why = "Raise to float32 what is dangerous, and no more."
        repair = f"amp-rewrite repair {name} -o fixed.onnx --target {safety.target}"
        steps.append(NextStep(why, repair))
    lines = () if safety.ok else tuple(danger_lines(safety.dangers, safety.precision))
    result = safety.result
    after = "what a conversion would make" if result.context.given is None else "the file"
    remarks = (_BEFORE.format(after=after),)
    judgement = Judgement(safety.verdict, safety.ok, tuple(steps), lines, remarks)
    _write(page, as_given(result), judgement, safety.run, Names(model.name, model.name), data)


def write_repair_page(
    page: Path, repaired: Repair, model: Path, output: Path | None, data: Sequence[Path] | None
) -> None:
    """Write the page of a repair.

    Raises:
        SaveError: The page cannot be written.
        DataError: The data cannot be read.
    """
    names = Names(model.name, model.name if output is None else output.name)
    remarks = (_BEFORE.format(after="the repaired one"), *repaired.lines(every=True))
    judgement = Judgement(repaired.headline, repaired.ok, remarks=remarks)
    sizes = None if output is None else sizes_of_files(model, output)
    _write(page, repaired.result, judgement, repaired.verification, names, data, sizes)


def as_given(result: RewriteResult) -> RewriteResult:
    """Return the painting that a model came with; what was taken out of it keeps its reason."""
    context, painting = result.context, result.painting
    if context.given is None:
        return result
    unknown = Mark(Color.ALLOW, Reason.FORCED)
    lost = vertices_in(context.given & ~painting.allow)
    marks = {v: painting.marks.get(v, unknown)._replace(color=Color.ALLOW) for v in lost}
    whole = painting.with_marks(marks)
    plan = plan_casts(context, whole)
    removed = noop_casts(context.type_graph, plan)
    return replace(result, painting=whole, plan=plan, removed=removed)


def _write(
    page: Path,
    result: RewriteResult,
    judgement: Judgement,
    run: VerifyReport | None,
    names: Names,
    data: Sequence[Path] | None,
    sizes: Sizes | None = None,
) -> None:
    """Write the page of a painting of the float32 form."""
    evidence = Evidence(
        names=names,
        sizes=sizes,
        verification=run,
        histograms=measured(read_model(result.flat), result, data) if data else {},
        judgement=judgement,
    )
    report = result.report if run is None else result.report_of_run(run.shapes)
    write_page(page, result, report, evidence)
