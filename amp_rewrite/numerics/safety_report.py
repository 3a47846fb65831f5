"""What `check` found: dangers by the rules, and what a run showed; as records, text and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from amp_rewrite import targets
from amp_rewrite.base.printable import counted, one_line
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.rewriting.dangers import Danger
from amp_rewrite.rewriting.report.plain_console import printed
from amp_rewrite.runtimes.ort.isolated_load import LoadResult

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1
"""Version of the JSON form: keys may be added, never renamed."""

_WIDTH = 100
_NAMED = 3
"""How many nodes of one danger the text names; JSON names all of them."""


@dataclass(frozen=True)
class SafetyReport:
    """Whether a model is safe in the types that it has.

    Attributes:
        precision: The 16-bit type that it computes in, or, of a float32 model, the one that it was
            asked about.
        target: For which target.
        computes: "float32" for a model with no 16-bit type, else `precision`.
        nodes: How many nodes compute in 16 bits.
        dangers: What the rules flag, in execution order. Of a float32 model: what a conversion has
            to keep float32.
        run: What a run showed: the model, emulated, against its own float32 form; None if none was
            asked for, or there is nothing low to run.
        is_run: Whether the model was to be run; False asks the rules alone.
        loading: What ONNX Runtime made of the model, in a process of its own; None if it is not
            run, or an object of 2 GiB or more.
        unjudged: Another 16-bit type that the model has beside `precision` -> how many results of
            nodes have it; of those nothing is said.
    """

    precision: str
    target: str
    computes: str
    nodes: int
    dangers: tuple[Danger, ...]
    run: VerifyReport | None
    is_run: bool = True
    loading: LoadResult | None = None
    unjudged: Mapping[str, int] = field(default_factory=dict[str, int])

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.verdict)

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the model as it is, and it was judged.

        A float32 model is if ONNX Runtime loads it.
        """
        if self.refused is not None:
            return False
        return self.computes == FLOAT32.name or not (
            self.dangers or self.failures or self.unrun is not None
        )

    @property
    def refused(self) -> str | None:
        """Why ONNX Runtime does not load the file, in one line, if that counts for the target."""
        if self.loading is None or not self.loading.fails(targets.find(self.target)):
            return None
        return self.loading.said

    @property
    def unrun(self) -> str | None:
        """Why nothing was shown by a run that was asked for; None if something was.

        The float32 form is not finite either, or has operators that are not registered here.
        """
        if self.run is None:
            loading = self.loading if self.computes != FLOAT32.name else None
            return loading.said if loading is not None and loading.lacks_operator else None
        return None if self.run.unjudged is None else self.run.uncompared

    @property
    def doubt(self) -> str | None:
        """Why what a run showed may lie in the weights alone, not in the arithmetic; or None."""
        return None if self.run is None else self.run.doubt

    @property
    def failures(self) -> tuple[str, ...]:
        """What the run showed to go wrong, one line each."""
        if self.run is None:
            return ()
        return self.run.failures

    @property
    def roots(self) -> tuple[Danger, ...]:
        """The dangers that follow from no other one."""
        named = {danger.node for danger in self.dangers}
        return tuple(d for d in self.dangers if d.because not in named)

    @property
    def verdict(self) -> str:
        """Whether it is safe, in one line; it begins with what ONNX Runtime says if it refuses."""
        words = self._of_float32() if self.computes == FLOAT32.name else self._of_low()
        return words if self.refused is None else f"{self.refused}; {words}"

    def _of_float32(self) -> str:
        is_safe = self.refused is None and self.is_run
        words = f"{'Safe: ' if is_safe else ''}the model computes in float32"
        if self.dangers:
            count = counted(len(self.dangers), "node")
            words += f"; {count} would be unsafe in {self.precision}"
        return words if self.is_run else f"{words}; not run"

    def _of_low(self) -> str:
        where = f"in {self.precision} for {self.target}"
        if self.failures:
            doubt = "" if self.doubt is None else f"; in doubt: {self.doubt}"
            return f"Wrong {where}: {self.failures[0]}{doubt}"
        if self.dangers:
            unsure = "" if self.unrun is None else f"; not judged by a run: {self.unrun}"
            follow = len(self.dangers) - len(self.roots)
            more = f", and {counted(follow, 'node')} behind them" if follow else ""
            verb = "is" if len(self.roots) == 1 else "are"
            return f"Unsafe: {counted(len(self.roots), 'node')} {verb} unsafe {where}{more}{unsure}"
        if self.unrun is not None:
            return f"Not judged {where}: the rules found nothing, and {self.unrun}"
        if self.run is None:
            return f"The rules found nothing {where}; not run"
        if self.refused is not None:
            return f"the rules found nothing {where}"
        return f"Safe {where}: {self.run.headline}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "verdict": self.verdict,
            "precision": self.precision,
            "target": self.target,
            "computes": self.computes,
            "nodes": self.nodes,
            "dangers": [asdict(danger) for danger in self.dangers],
            "failures": list(self.failures),
            "run": None if self.run is None else self.run.to_dict(),
            "is_run": self.is_run,
            "loading": None if self.loading is None else asdict(self.loading),
            "unjudged": dict(self.unjudged),
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    def to_text(self) -> str:
        """Return the report as lines."""
        return printed(lambda console: print_safety(self, console), _WIDTH)


def print_safety(report: SafetyReport, console: Console) -> None:
    """Print the verdict, what a run showed, and what the rules flag."""
    console.print(report.verdict, style="green" if report.ok else "red")
    _print_details(report, console)


def _print_details(report: SafetyReport, console: Console) -> None:
    """Print what a run showed, and what the rules flag."""
    nodes = counted(report.nodes, "node")
    where = f"{nodes} in {report.precision}, target {report.target}"
    if report.computes == FLOAT32.name:
        where = f"no 16-bit nodes; rules for {report.precision}, target {report.target}"
    console.print(where)
    for name, count in report.unjudged.items():
        why = f"only those in {report.precision} are judged"
        console.print(f"not judged: {counted(count, 'value')} in {name}; {why}")
    if report.run is not None:
        _print_run(report, report.run, console)
    for line in danger_lines(report.dangers, report.precision):
        console.print(f"  risk: {line}")
    loading = report.loading
    if loading is not None and loading.said and report.refused is None and report.unrun is None:
        console.print(loading.said)


def _print_run(report: SafetyReport, run: VerifyReport, console: Console) -> None:
    """Print what a run showed."""
    count = counted(run.feeds, "feed")
    console.print(f"emulated on {count} ({run.data}), compared with the same model in float32")
    for line in () if run.device is None else run.device.lines:
        console.print(line)
    for failure in report.failures:
        console.print(f"  found: {failure}")
    for line in run.notes():
        if line != run.control_line:  # the weights are those of the form
            console.print(f"  {line}")


def danger_lines(dangers: Sequence[Danger], precision: str) -> Iterator[str]:
    """Yield a line for each kind of danger: what it is, how many nodes, and some of them."""
    named = {danger.node for danger in dangers}
    roots = [d for d in dangers if d.because not in named]
    behind = _followers(dangers, {d.node for d in roots})
    kinds: dict[tuple[str, str, str], list[Danger]] = {}
    for danger in roots:
        kinds.setdefault((danger.op, danger.reason, danger.words), []).append(danger)
    for (op, reason, words), members in kinds.items():
        follow = sum(behind[d.node] for d in members)
        nodes = list(dict.fromkeys(d.node for d in members))
        names = ", ".join(nodes[:_NAMED])
        more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        then = f"; {counted(follow, 'node')} behind it in {precision}" if follow else ""
        detail = f" ({members[0].detail})" if members[0].detail else ""
        yield f"{op} {names}{more} {words}{detail}; {reason}{then}"


def _followers(dangers: Sequence[Danger], roots: set[str]) -> Counter[str]:
    """Return by root how many dangers follow from it."""
    because = {d.node: d.because for d in dangers if d.node not in roots}
    counts: Counter[str] = Counter()
    for node in because:
        source, seen = node, set[str]()
        while source in because and source not in seen:
            seen.add(source)
            source = because[source]
        counts[source] += 1
    return counts
