"""The outcome for the models of a folder: one entry each, as records, text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from amp_rewrite.base.printable import aligned, counted, html_table
from amp_rewrite.numerics.compare.verdict import EXIT_STATUS
from amp_rewrite.rewriting.paint.passes.keep_long_sums import lengths_to_name
from amp_rewrite.rewriting.report.records import Shown

State = Literal["changed", "unchanged", "refused", "failed"]
"""How a model ended: "refused" is the verdict of a verification, "failed" an error."""


@dataclass(frozen=True)
class ModelEntry:
    """The outcome for a model.

    Attributes:
        file: Its path relative to the folder.
        output: Under which name it is written; None if it is not.
        state: How it ended, which `said` and `lines` explain.
        report: The JSON report of `convert`; None if it failed.
        unknown_lengths: Free dimensions of which a length would let sums become 16-bit.
    """

    file: str
    output: str | None
    state: State
    said: str
    lines: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None
    unknown_lengths: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The status of its verdict, "not verified" if there is none."""
        return self._part("verdict").get("status", "not verified")

    def _part(self, key: str) -> Mapping[str, Any]:
        return {} if self.report is None else self.report.get(key, {})

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in a table: name, what became of it, nodes, casts, verdict."""
        renamed = self.output not in (None, self.file)
        name = f"{self.file} -> {self.output}" if renamed else self.file
        summary = self._part("summary")
        is_done = self.state in ("changed", "unchanged")
        nodes = f"{summary['nodes_converted']} of {summary['float_nodes']}" if summary else ""
        casts = str(summary["casts_added"]) if summary else ""
        verdict = "failed" if self.state == "failed" else self.status
        return name, self.said if is_done else self.state, nodes, casts, verdict

    @property
    def exit_status(self) -> int:
        """The exit status of a model that was not converted: 4 if its verdict is open, else 1."""
        open_status = EXIT_STATUS["in doubt"]
        is_open = self._part("verdict").get("exit_status") == open_status
        return open_status if is_open else EXIT_STATUS["failed"]


@dataclass(frozen=True, repr=False)
class FolderReport(Shown):
    """The outcome for a folder.

    Attributes:
        folder: The folder that was read.
        output: The folder that was to be written; None if none was.
        models: The models, in order.
        left_out: Model that was not converted -> why; it is copied, unless a result replaces it.
        copied: How many other files were copied.
        connections: How many outputs are fed to inputs, of other models or in the next step.
        mismatches: The connections whose sides have two types, one line each.
        written: Whether the folder is there.
        target: The target of the folder's layout, if no option named one.
        notes: Other changes in the folder, one line each.
    """

    _beside = ("ok", "verdict", "totals")

    folder: str
    output: str | None
    models: tuple[ModelEntry, ...]
    left_out: Mapping[str, str]
    copied: int = 0
    connections: int = 0
    mismatches: tuple[str, ...] = ()
    written: bool = False
    target: str | None = None
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the models as a table, which a notebook shows."""
        rows = ((m.file, m.output or "", m.state, m.said) for m in self.models)
        return html_table(self.verdict, ("file", "output", "state", "said"), rows)

    @property
    def ok(self) -> bool:
        """Whether no model failed or was refused."""
        return not self.bad

    @property
    def exit_status(self) -> int:
        """The exit status of a command: 0, 1 if a model failed, 4 if others are only in doubt."""
        return min((model.exit_status for model in self.bad), default=0)

    @property
    def failed(self) -> tuple[ModelEntry, ...]:
        """The models that an error is about."""
        return tuple(model for model in self.models if model.state == "failed")

    @property
    def bad(self) -> tuple[ModelEntry, ...]:
        """The models that failed, or that a verdict speaks against."""
        return tuple(model for model in self.models if model.state in ("failed", "refused"))

    @property
    def totals(self) -> dict[str, int]:
        """State -> how many models ended so."""
        ended = [model.state for model in self.models]
        return {state: ended.count(state) for state in get_args(State)}

    @property
    def verdict(self) -> str:
        """The totals in one line, and which models are to blame if nothing is written."""
        count = counted(len(self.models), "model")
        bad = self.bad
        names = ", ".join(model.file for model in bad)
        done = f"{self._word}: {self.totals['changed']} of {count} changed"
        if self.written:
            return f"{done}; wrote {self.output}{f', but these failed: {names}' if bad else ''}"
        return f"{done}; nothing was written" + (f", because of {names}" if bad else "")

    @property
    def _word(self) -> str:
        """The worst verdict of the models, in a word or two."""
        if self.bad:
            return "FAILED" if self.exit_status == EXIT_STATUS["failed"] else "In doubt"
        passed = sum(model.status == "passed" for model in self.models)
        return {len(self.models): "Passed", 0: "Not verified"}.get(passed, "Partly verified")

    def lines(self) -> Iterator[str]:
        """Yield the verdict, a table of the models, and what else is said."""
        yield self.verdict
        if self.target is not None:
            yield (
                f"target {self.target}: the folder is laid out for transformers.js (or name "
                "--target)"
            )
        head = ("model", "result", "16-bit nodes", "casts", "verdict")
        yield from aligned(head, (model.row for model in self.models))
        for model in self.bad:
            yield f"{model.file}: {model.said}"
            yield from (f"  {line}" for line in model.lines)
        for model in self.models:
            if model.unknown_lengths:
                lengths = lengths_to_name(model.unknown_lengths)
                yield f"{model.file}: sums of unknown length stay float32; name it: {lengths}"
        yield from (f"{file}: left out: {why}" for file, why in self.left_out.items())
        yield from (f"connected, with two types: {line}" for line in self.mismatches)
        if self.connections and not self.mismatches:
            count = counted(self.connections, "connection")
            yield f"{count} with the same type on both sides"
        if self.written:
            yield f"{counted(self.copied, 'other file')} copied"
        yield from self.notes
