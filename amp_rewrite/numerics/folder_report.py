"""The outcome for the models of a folder: one entry each, as records, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from amp_rewrite.base.printable import counted, html_table, one_line, printable, text_table
from amp_rewrite.numerics.compare.verdict import EXIT_STATUS

VERSION = 1
"""Version of the JSON form: keys may be added, never renamed."""

State = Literal["changed", "unchanged", "refused", "failed"]
"""The outcome for a model: "refused" is the verdict of a verification, "failed" an error
of this model's.
"""


@dataclass(frozen=True)
class ModelEntry:
    """The outcome for a model.

    Attributes:
        file: Its path relative to the folder.
        output: Under which name it is written; None if it is not.
        state: How it ended.
        said: That in one line.
        lines: More of it: reasons, verdicts.
        report: What `convert` reports of one model, as JSON has it; None of a failed one.
    """

    file: str
    output: str | None
    state: State
    said: str
    lines: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None

    @property
    def status(self) -> str:
        """The status of its verdict, "not verified" if there is none."""
        verdict = {} if self.report is None else self.report.get("verdict", {})
        return verdict.get("status", "not verified")

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in a table: name, what became of it, nodes, casts, verdict."""
        renamed = self.output not in (None, self.file)
        name = f"{self.file} -> {self.output}" if renamed else self.file
        summary = {} if self.report is None else self.report.get("summary", {})
        is_done = self.state in ("changed", "unchanged")
        nodes = f"{summary['nodes_converted']} of {summary['float_nodes']}" if summary else ""
        casts = str(summary["casts_added"]) if summary else ""
        verdict = "failed" if self.state == "failed" else self.status
        return name, self.said if is_done else self.state, nodes, casts, verdict

    @property
    def exit_status(self) -> int:
        """The exit status of a model that was not converted: 4 if its verdict is open, else 1."""
        open_status = EXIT_STATUS["in doubt"]
        verdict = {} if self.report is None else self.report.get("verdict", {})
        return open_status if verdict.get("exit_status") == open_status else EXIT_STATUS["failed"]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "file": self.file,
            "output": self.output,
            "state": self.state,
            "said": self.said,
            "lines": list(self.lines),
            "report": self.report,
        }


@dataclass(frozen=True)
class FolderReport:
    """The outcome for a folder.

    Attributes:
        folder: The folder that was read.
        output: The folder that was to be written; None if none was.
        models: The models, in order.
        left_out: The models with which nothing was done -> why; they are copied, unless a result
            takes their place.
        copied: How many other files were copied.
        connected: How many outputs are fed to inputs, of other models or in the next step.
        mismatches: The connections whose sides have two types, one line each.
        written: Whether the folder is there.
        target: The target that the folder's layout tells, if no option named one.
        notes: What else was changed in the folder, one line each.
    """

    folder: str
    output: str | None
    models: tuple[ModelEntry, ...]
    left_out: Mapping[str, str]
    copied: int = 0
    connected: int = 0
    mismatches: tuple[str, ...] = ()
    written: bool = False
    target: str | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.verdict)

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
        all_passed = all(model.status == "passed" for model in self.models)
        return "Passed" if self.models and all_passed else "Not verified"

    def lines(self) -> tuple[str, ...]:
        """Return the report line by line: the verdict, a table of the models, what else is said."""
        rows: list[str] = [self.verdict]
        if self.target is not None:
            rows.append(
                f"target {self.target}: the folder is laid out for transformers.js (or name "
                "--target)"
            )
        head = ("model", "result", "16-bit nodes", "casts", "verdict")
        rows += text_table([head, *([printable(cell) for cell in m.row] for m in self.models)])
        for model in self.bad:
            rows += [f"{model.file}: {model.said}", *(f"  {line}" for line in model.lines)]
        rows += [f"{file}: left out: {why}" for file, why in self.left_out.items()]
        rows += [f"connected, with two types: {line}" for line in self.mismatches]
        if self.connected and not self.mismatches:
            count = counted(self.connected, "connection")
            rows.append(f"{count} with the same type on both sides")
        if self.written:
            rows.append(f"{counted(self.copied, 'other file')} copied")
        rows += self.notes
        return tuple(printable(line) for line in rows)

    def to_text(self) -> str:
        """Return the report as lines."""
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "verdict": self.verdict,
            "folder": self.folder,
            "output": self.output,
            "written": self.written,
            "totals": self.totals,
            "models": [model.to_dict() for model in self.models],
            "left_out": dict(self.left_out),
            "copied": self.copied,
            "connections": self.connected,
            "mismatches": list(self.mismatches),
            "target": self.target,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
