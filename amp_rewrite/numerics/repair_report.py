"""The result of `repair`: the repaired model, what was raised in it and why, the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import counted, few, in_bytes, share
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import VerdictError
from amp_rewrite.graph.added import SUFFIX
from amp_rewrite.graph.io.model_files import Path, judged_by
from amp_rewrite.graph.io.model_files import Progress as Writing
from amp_rewrite.numerics.compare.verdict import Verdict, judged
from amp_rewrite.numerics.lost_weights import LostWeights
from amp_rewrite.numerics.safety_report import OWN_FORM, danger_lines
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.dangers import OF_THE_FILE, Danger, is_end
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.rewriting.report.rewrite_report import axes_lines
from amp_rewrite.rewriting.scaling.scaling import Scaling
from amp_rewrite.rewriting.widen import Raised
from amp_rewrite.runtimes.ort.isolated_load import LoadJudge, LoadResult

if TYPE_CHECKING:
    import onnx_ir as ir

    from amp_rewrite.numerics.compare.verify_report import VerifyReport

_NAMED = 5
"""How many measured nodes the text names; JSON names all of them."""


@dataclass(frozen=True, repr=False)
class Repair(Shown):
    """A repaired model, what was raised to float32 in it, and why.

    Attributes:
        precision: The 16-bit type that the model computes in.
        target: For which target it was repaired.
        raised: The model, and what was changed in it.
        dangers: The dangers that the rules found and that are gone, in execution order.
        stay: Those of inputs and outputs that keep their 16-bit type, and of Casts in front of
            nodes that do.
        measured: The nodes that became float32 besides, mostly because a run showed it.
        shown_by: What was run: "data" or "made-up inputs"; "the rules" if nothing was.
        nodes: How many nodes computed in 16 bits before.
        arithmetic_raised: The share of the arithmetic in 16 bits that is float32 now, from 0 to 1.
        verification: How far the result is from the float32 form; None if it was not verified.
        result: The float32 form with the painting that is left, for the page.
        scaling: What was multiplied by powers of two, and what was not and leaves the range.
        left: What is not in 16 bits, one line each, if `only` is set; then it is not written.
        against: What it was compared with: the original, or its own float32 form.
        weights: Weights that a converter seems to have clipped, or made infinite, or None.
        widened: Another 16-bit type of the model -> how many values in it became float32.
    """

    _beside = (
        *("changed", "ok", "verdict", "nodes_raised", "casts_added", "casts_removed"),
        "weight_bytes_added",
    )

    precision: str
    target: str
    raised: Raised = field(compare=False)
    dangers: tuple[Danger, ...]
    stay: tuple[Danger, ...]
    measured: tuple[str, ...]
    shown_by: str
    nodes: int
    arithmetic_raised: float
    verification: VerifyReport | None
    result: RewriteResult = field(repr=False, compare=False)
    scaling: Scaling | None = field(default=None, repr=False)
    left: tuple[str, ...] = ()
    against: str = OWN_FORM
    weights: LostWeights | None = None
    widened: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def model(self) -> ir.Model:
        """The repaired model."""
        return self.raised.model

    @property
    def changed(self) -> bool:
        """Whether it differs from the one that was given."""
        is_scaled = bool(self.scaling and self.scaling.sets)
        return self.raised.changed or is_scaled or bool(self.widened)

    @property
    def ok(self) -> bool:
        """Whether no danger stays, and it passes, or was not verified."""
        return self.passes and not self.stay

    @property
    def passes(self) -> bool:
        """Whether it is written: it passed, or was not verified, and `only` leaves nothing."""
        return not self.left and (self.verdict is None or self.verdict.ok)

    @cached_property
    def nodes_raised(self) -> int:
        """How many nodes became float32; Casts and constants do not count."""
        graph = self.raised.context.type_graph
        raised = {graph.nodes[vertex] for vertex in self.raised.plan.vertices}
        own = (node for node in raised if not graph.flat.node_names[node].endswith(SUFFIX))
        # operators: what `low_nodes` counts computes something
        return sum(graph.flat.called(node).op_type not in ("Cast", "Constant") for node in own)

    @property
    def casts_added(self) -> int:
        """How many Casts were added."""
        return len(self.raised.plan.casts) + self.raised.mended.casts

    @property
    def casts_removed(self) -> int:
        """How many Casts were removed."""
        return len(self.raised.removed)

    @cached_property
    def weight_bytes_added(self) -> int:
        """How many more bytes the weights take."""
        base = self.raised.context.type_graph.base
        wide = FLOAT32.numpy.itemsize
        return sum(
            w.tensor.size * (wide - (0 if w.keep_float32 else base(w.value).numpy.itemsize))
            for w in self.raised.plan.weights
        )

    @property
    def headline(self) -> str:
        """The raised nodes and their cost, in one line."""
        if not self.changed:
            is_safe = self.passes and not self.stay
            found = ": nothing unsafe found" if is_safe else ""
            return f"Nothing changed{found} in {self.precision} for {self.target}"
        size = self.weight_bytes_added
        return (
            f"{self.nodes_raised} of {self.nodes} nodes raised from {self.precision} to float32 "
            f"({share(self.arithmetic_raised, 1)} of the arithmetic); "
            f"{counted(self.casts_added, 'cast')} added, {self.casts_removed} removed"
            f"{f', {in_bytes(size)} more weights' if size else ''}"
        )

    @property
    def verdict(self) -> Verdict | None:
        """Whether the result passes; None if it was not verified.

        Weights that look clipped leave it in doubt, unless there is an original.
        """
        clipped = [str(self.weights)] if self.weights and self.against == OWN_FORM else []
        if self.verification is None:
            return judged((), clipped, None) if clipped else None
        made = self.verification.verdict_beside((), clipped, f", compared with {self.against}")
        is_open = self.verification.is_made_up and not self.verification.ok
        return replace(made, notes=("give --data",)) if is_open else made

    def save(
        self, path: Path, *, write_failed: bool = False, progress: Writing | None = None
    ) -> LoadResult:
        """Write the repaired model if it passes, or was not verified, and ONNX Runtime loads it.

        Args:
            path: The model file; external data go to a file next to it.
            write_failed: Write it even if it fails, or does not load.
            progress: Called every few MiB.

        Returns:
            How ONNX Runtime loads the file, in a process of its own.

        Raises:
            VerdictError: It fails, or does not load; nothing was written.
            SaveError: It cannot be written; no new file is left.
        """
        insists = arguments.switch("write_failed", write_failed)
        if not (insists or self.passes):
            found = () if self.verdict is None else (*self.verdict.failures, *self.verdict.doubts)
            raise VerdictError((*self.left, *found), self)
        judge = LoadJudge(self, self.target, insists=insists)
        with judged_by(judge):
            self.raised.save(path, progress=progress)
        return judge.result

    def lines(self) -> Iterator[str]:
        """Yield the verdict, what was raised and why, and what stays."""
        unknown = "Not verified: nothing was run, so the accuracy is unknown"
        yield f"{unknown}; add --data or --verify" if self.verdict is None else str(self.verdict)
        yield self.headline
        for name, count in self.widened.items():
            yield f"{counted(count, 'value')} in {name} became float32; {self.precision} stays"
        yield from self._about("corrected", (d for d in self.dangers if d.reason in OF_THE_FILE))
        yield from () if self.scaling is None else self.scaling.lines()
        yield from self._about("raised", (d for d in self.dangers if d.reason not in OF_THE_FILE))
        if self.measured:
            yield f"raised because of {self.shown_by}: {few(self.measured, _NAMED)}"
        for line in self._about("stays", (d for d in self.stay if is_end(d))):
            yield f"{line}; --keep-io float32 raises it"
        yield from self._about("stays", (d for d in self.stay if not is_end(d)))
        yield from (f"--only: {line}" for line in self.left)
        yield from axes_lines(len(self.raised.plan.ranks))

    def _about(self, word: str, dangers: Iterable[Danger]) -> Iterator[str]:
        return (f"{word}: {line}" for line in danger_lines([*dangers]))
