"""The findings of a check of op lists, as text, JSON and GitHub annotations."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from amp_rewrite.base.github_annotations import annotation
from amp_rewrite.base.printable import one_line, printable
from amp_rewrite.errors import AmpError

REPORT_VERSION = 1


class Severity(StrEnum):
    """Whether a finding makes the check fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a list or a model: at a line from 1, or None, with what to do about it."""

    severity: Severity
    file: str
    line: int | None
    message: str

    @staticmethod
    def at(where: str, message: str, severity: Severity = Severity.ERROR) -> Finding:
        """Return a finding at a place written as "file" or "file:line"."""
        file, _, line = where.rpartition(":")
        if file and line.isdigit():
            return Finding(severity, file, int(line), message)
        return Finding(severity, where, None, message)

    @staticmethod
    def of(error: AmpError) -> Finding:
        """Return an error as a finding; its place moves out of the message."""
        where = error.where or ""
        return Finding.at(where, str(error).removeprefix(f"{where}: "))

    @property
    def where(self) -> str:
        """The place as "file:line", or "file" without a line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of check_lists.

    Attributes:
        lists: The lists that were checked.
        models: The models that were checked.
        findings: All errors and warnings.
    """

    lists: tuple[str, ...]
    models: tuple[str, ...]
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.to_text().rpartition("\n")[2])

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return all(f.severity != Severity.ERROR for f in self.findings)

    @property
    def exit_status(self) -> int:
        """0 if there is no error, else 1."""
        return 0 if self.ok else 1

    def to_text(self) -> str:
        """Return one line a finding, and a last line that sums up."""
        lines = [printable(f"{f.where}: {f.severity}: {f.message}") for f in self.findings]
        errors = sum(f.severity == Severity.ERROR for f in self.findings)
        lists, models = _count(len(self.lists), "list"), _count(len(self.models), "model")
        checked = f"{lists} and {models} checked"
        warned = len(self.findings) - errors
        lines.append(f"{checked}: {_count(errors, 'error')}, {_count(warned, 'warning')}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1; keys may be added, never renamed.

        {"version": 1, "ok": false, "lists": ["lists/float16_cuda.yaml"], "models": ["m.onnx"],
         "findings": [{"severity": "error", "file": "lists/float16_cuda.yaml", "line": 12 or null,
                       "message": "..."}]}
        """
        return {
            "version": REPORT_VERSION,
            "ok": self.ok,
            "lists": self.lists,
            "models": self.models,
            "findings": [asdict(f) for f in self.findings],
        }

    def to_json(self) -> str:
        """Return the same as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def to_github(self) -> str:
        """Return one workflow command a finding: GitHub shows it beside the line."""
        title = "amp-rewrite check-lists"
        return "\n".join(
            annotation(f.severity, title, f.message, f.file, f.line) for f in self.findings
        )


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}" + ("" if number == 1 else "s")
