"""`check --target all`: which targets take a model as it is, one row for each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.printable import one_line
from amp_rewrite.errors import AmpError
from amp_rewrite.numerics.safety_check import Checked, Progress
from amp_rewrite.numerics.safety_report import danger_lines
from amp_rewrite.rewriting.plan.options import RewriteOptions, changed
from amp_rewrite.rewriting.report.plain_console import printed
from amp_rewrite.targets import OPENVINO, SCHEMA, TENSORRT, Target

if TYPE_CHECKING:
    from rich.console import Console

    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.inputs.batches import Data
    from amp_rewrite.numerics.safety_report import SafetyReport
    from amp_rewrite.runtimes.ort.isolated_load import LoadResult

VERSION = 1
"""Version of the JSON form: keys may be added, never renamed."""

_WIDTH = 120


@dataclass(frozen=True)
class TargetRow:
    """What becomes of a model on one target.

    Attributes:
        target: Its name.
        loads: Whether ONNX Runtime loads the file; None where that was not tried, or says nothing
            of the target.
        precision: The 16-bit type that was asked about.
        share: The share of the multiply-accumulates that is in this type, and stays so by the
            rules, from 0 to 1; of a float32 model, what a conversion would bring there. None if the
            target does not compute in it.
        right: Whether nothing speaks against the model there.
        why_not: The first thing that does; "" for nothing.
    """

    target: str
    loads: bool | None
    precision: str
    share: float | None
    right: bool
    why_not: str


@dataclass(frozen=True)
class TargetTable:
    """Which targets take a model.

    Attributes:
        rows: One for each target.
        is_run: Whether the model was run; without that the rules alone decide.
    """

    rows: tuple[TargetRow, ...]
    is_run: bool

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.verdict)

    @property
    def ok(self) -> bool:
        """Whether any target takes the model."""
        return any(row.right for row in self.rows)

    @property
    def verdict(self) -> str:
        """Which targets take it, in one line."""
        names = [row.target for row in self.rows if row.right]
        words = f"right on {', '.join(names)}" if names else "right on no target"
        return words if self.is_run else f"{words}, by the rules alone; not run"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "verdict": self.verdict,
            "is_run": self.is_run,
            "targets": [asdict(row) for row in self.rows],
        }

    def to_json(self) -> str:
        """Return the table as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    def to_text(self) -> str:
        """Return the table as lines."""
        return printed(lambda console: print_targets(self, console), _WIDTH)


def check_targets(
    model: Source,
    data: Data | None = None,
    options: RewriteOptions | None = None,
    *,
    run: bool = True,
    stress: bool | None = None,
    progress: Progress | None = None,
) -> TargetTable:
    """Tell for each target whether it takes a model as it is.

    The file is read, and loaded by ONNX Runtime, once. A float32 model is asked about the precision
    of the options, or about the one that a target computes in.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, .npz or .csv files or folders of .npz files; None makes up plausible inputs.
        options: Lists and rules; the target is left aside.
        run: Whether the model is run, once for each target; False asks the rules alone.
        stress: Try stress inputs too; None does so if there are no data.
        progress: Called with what begins.

    Raises:
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.
    """
    chosen, run = changed(options), arguments.switch("run", run)
    checked = Checked.of(model, run=run)
    rows: list[TargetRow] = []
    for target in targets.TARGETS:
        if target.name == SCHEMA:
            continue
        if progress is not None:
            progress(f"checking for {target.name}")
        precision = checked.low.name if checked.low is not None else chosen.precision
        if checked.low is None and precision not in target.precisions:
            precision = target.precisions[0]
        rows.append(_row(checked, target, precision, chosen, data, stress=stress))
    return TargetTable(tuple(rows), run)


def _row(
    checked: Checked,
    target: Target,
    precision: str,
    options: RewriteOptions,
    data: Data | None,
    *,
    stress: bool | None,
) -> TargetRow:
    loads = _loads(checked.loading, target)
    if precision not in target.precisions:
        why = f"the target does not compute in {precision}"
        return TargetRow(target.name, loads, precision, None, right=False, why_not=why)
    asked = replace(options, target=target.name, precision=precision)
    try:
        safety = checked.judge(asked, data, stress=stress)
    except AmpError as error:
        return TargetRow(target.name, loads, precision, None, right=False, why_not=str(error))
    share = safety.result.report.summary.compute_converted
    return TargetRow(target.name, loads, precision, share, safety.ok, _why_not(safety))


def _loads(loading: LoadResult | None, target: Target) -> bool | None:
    if loading is None or target.kernels in (OPENVINO, TENSORRT):
        return None
    if loading.fails(target):
        return False
    return True if loading.outcome == "loaded" else None


def _why_not(safety: SafetyReport) -> str:
    if safety.ok:
        return ""
    reasons = (safety.refused, *safety.failures, *danger_lines(safety.dangers, safety.precision))
    return next((line for line in reasons if line), None) or safety.unrun or safety.verdict


def print_targets(table: TargetTable, console: Console) -> None:
    """Print a row for each target, and which of them take the model."""
    shown = Table("target", "loads", "16 bits", "right", "why not", box=None, pad_edge=False)
    for row in table.rows:
        share = "none" if row.share is None else f"{row.share:.1%} in {row.precision}"
        loads = "not tried" if row.loads is None else _yes_or_no(row.loads)
        shown.add_row(row.target, loads, share, _yes_or_no(row.right), row.why_not)
    console.print(shown)
    console.print(table.verdict, style="green" if table.ok else "red")


def _yes_or_no(so: bool) -> str:
    return "yes" if so else "no"
