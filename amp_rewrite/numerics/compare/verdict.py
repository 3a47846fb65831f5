"""The verdict on a 16-bit model: one object for every command, and the one place that makes it.

Evidence: tests/numerics/compare/test_verify_report.py: every status from what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from amp_rewrite.rewriting.report.records import Shown

Status = Literal["passed", "failed", "in doubt", "not compared"]

EXIT_STATUS: Mapping[Status, int] = {"passed": 0, "failed": 1, "in doubt": 4, "not compared": 4}
"""Status -> the exit status of a command."""

_WORDS: Mapping[Status, str] = {
    "passed": "Passed",
    "failed": "FAILED",
    "in doubt": "In doubt",
    "not compared": "Not compared",
}


@dataclass(frozen=True, slots=True)
class Verdict(Shown):
    """Whether a 16-bit model computes what it is to compute.

    Attributes:
        status: "passed"; "failed", if something was measured to be wrong; "in doubt", if what was
            measured does not decide; "not compared", if nothing could have differed.
        inputs: What it was compared on, in a few words; "" if it was not run.
        worst: The worst error, and of what; "" if nothing was compared.
        failures: What is wrong, one line each.
        doubts: Why it is in doubt, or why nothing was compared, one line each.
        notes: What else belongs to it, a few words each.
    """

    status: Status
    inputs: str = ""
    worst: str = ""
    failures: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.status == "passed"

    @property
    def decided(self) -> bool | None:
        """Whether it passed; None where nothing decides."""
        return {"passed": True, "failed": False}.get(self.status)

    @property
    def exit_status(self) -> int:
        """The exit status of a command: 0 passed, 1 failed, 4 in doubt or not compared."""
        return EXIT_STATUS[self.status]

    def __str__(self) -> str:
        """Return it as one line: status, on what inputs, worst error or what is wrong."""
        lines = self.failures or self.doubts
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        where = f" on {self.inputs}" if self.inputs and self.status != "not compared" else ""
        said = f"{lines[0]}{more}" if lines else self.worst
        if lines and self.worst and self.status == "in doubt":
            said += f"; {self.worst}"
        line = f"{_WORDS[self.status]}{where}{f': {said}' if said else ''}"
        return "; ".join((line, *self.notes))

    def lines(self) -> list[str]:
        """Return its line, and what else is wrong or in doubt."""
        more = [f"failed: {line}" for line in self.failures]
        more += [f"in doubt: {line}" for line in self.doubts]
        return [str(self), *more[1:]]

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that every report has of its verdict."""
        return {
            "ok": self.ok,
            "verdict": str(self),
            "status": self.status,
            "exit_status": self.exit_status,
            "failures": list(self.failures),
            "doubt": "; ".join(self.doubts) or None,
            "doubts": list(self.doubts),
        }


def judged(
    failures: Sequence[str],
    doubts: Sequence[str],
    uncompared: str | None,
    *,
    inputs: str = "",
    worst: str = "",
) -> Verdict:
    """Return the verdict on what was found: a failure decides before a doubt does.

    `uncompared` says why nothing was compared; None if something was.
    """
    status: Status = "passed"
    if failures:
        status = "failed"
    elif doubts:
        status = "in doubt"
    elif uncompared is not None:
        status, doubts = "not compared", (uncompared,)
    return Verdict(status, inputs, worst, tuple(failures), tuple(doubts))
