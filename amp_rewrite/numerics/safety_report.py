"""The result of `check`: dangers by the rules, and what a run showed; as records, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.printable import counted, few
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.numerics.compare.verdict import Verdict, judged
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.lost_weights import LostWeights
from amp_rewrite.rewriting.dangers import Danger
from amp_rewrite.rewriting.report.records import VERSION, Shown
from amp_rewrite.runtimes.ort.isolated_load import LoadResult

OWN_FORM = "this file's own float32 form"
"""The reference of a 16-bit model where no original is given: the same weights."""


@dataclass(frozen=True, repr=False)
class SafetyReport(Shown):
    """Whether a model is safe in the types that it has.

    Attributes:
        precision: The 16-bit type that it computes in ("float16 and bfloat16" for both), or that a
            float32 model was asked about.
        target: For which target.
        computes: "float32" for a model with no 16-bit type, else `precision`.
        nodes: How many nodes compute in 16 bits.
        dangers: What the rules flag, in execution order; for a float32 model, what would be
            unsafe in `precision`.
        run: What a run showed: the model, emulated, against its original or its own float32 form;
            None if nothing was run.
        is_run: Whether the model was to be run; False asks the rules alone.
        loading: How ONNX Runtime loads the model, in a process of its own; None if it is not run,
            or an object of 2 GiB or more.
        against: What it was compared with: the original, or its own float32 form.
        weights: Weights that a converter seems to have clipped, or made infinite, or None.
    """

    precision: str
    target: str
    computes: str
    nodes: int
    dangers: tuple[Danger, ...]
    run: VerifyReport | None
    is_run: bool = True
    loading: LoadResult | None = None
    against: str = OWN_FORM
    weights: LostWeights | None = None

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.verdict.ok

    @property
    def refused(self) -> str | None:
        """Why ONNX Runtime does not load the file, in one line, if that counts for the target."""
        if self.loading is None or not self.loading.fails(targets.find(self.target)):
            return None
        return self.loading.said

    @property
    def verdict(self) -> Verdict:
        """The verdict: what the rules flag is in doubt if the run passes and the file loads."""
        refused = () if self.refused is None else (self.refused,)
        if self.computes == FLOAT32.name:
            count = counted(len(self.dangers), "node")
            would = f"; {count} would be unsafe in {self.precision}" if self.dangers else ""
            said = f"the model computes in float32{would}"
            said = said if self.is_run else f"{said}; not run"
            return judged(refused, (), None, worst=said)
        where = f"in {self.precision} for {self.target}"
        roots = len(_roots(self.dangers))
        follow = len(self.dangers) - roots
        more = f", and {counted(follow, 'node')} after them" if follow else ""
        verb = "is" if roots == 1 else "are"
        said = f"{counted(roots, 'node')} {verb} unsafe {where} by the rules{more}"
        flagged = [said] if self.dangers else []
        clipped = [str(self.weights)] if self.weights and self.against == OWN_FORM else []
        loading, lacks = self.loading, self.loading is not None and self.loading.lacks_operator
        if self.run is None:
            unrun = loading.said if loading is not None and lacks and self.is_run else "not run"
            found = f"the rules found nothing {where}; {unrun}"
            passes = not self.is_run and not flagged
            return judged(refused, (*flagged, *clipped), None if passes else found, worst=found)
        beside = f", compared with {self.against}"
        return self.run.verdict_beside(refused, (*flagged, *clipped), beside)

    def lines(self) -> Iterator[str]:
        """Yield the verdict, what a run showed, and what the rules flag."""
        yield from self.verdict.lines()
        nodes = counted(self.nodes, "node")
        where = f"{nodes} in {self.precision}, target {self.target}"
        if self.computes == FLOAT32.name:
            where = f"no 16-bit nodes; rules for {self.precision}, target {self.target}"
        yield where if self.run is None else f"{where}; run on {self.run.data}"
        if self.run is not None:
            device = () if self.run.device is None else self.run.device.lines
            yield from (f"  {line}" for line in (*device, *self.run.notes()))
        yield from (f"  risk: {line}" for line in danger_lines(self.dangers))
        loading = self.loading
        if loading and loading.said and self.refused is None and not loading.lacks_operator:
            yield loading.said

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {"version": VERSION} | self.verdict.to_dict() | Shown.to_dict(self)


def _roots(dangers: Sequence[Danger]) -> tuple[Danger, ...]:
    named = {danger.node for danger in dangers}
    return tuple(danger for danger in dangers if danger.because not in named)


def danger_lines(dangers: Sequence[Danger]) -> Iterator[str]:
    """Yield a line for each kind of danger: what it is, how many nodes, and some of them."""
    kinds: dict[tuple[str, str, str], list[Danger]] = {}
    for danger in _roots(dangers):
        kinds.setdefault((danger.op, danger.reason, danger.words), []).append(danger)
    for (op, reason, words), members in kinds.items():
        nodes = few([*dict.fromkeys(d.node for d in members)])
        detail = f" ({members[0].detail})" if members[0].detail else ""
        yield f"{op} {nodes} {words}{detail}; {reason}"
