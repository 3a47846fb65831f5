"""Checks of model files, for CI: each by itself, or against its float32 file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from amp_rewrite.base.github_annotations import annotation
from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError
from amp_rewrite.numerics.compare.verdict import Status
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.safety_check import check
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.records import Shown

_IN_16_BITS = re.compile(r"[._-](fp16|float16|half|bf16|bfloat16|f16)(?=$|[._-])", re.IGNORECASE)
"""Parts of a name that a float32 file does not have."""

_SEVERITY: Mapping[Status, str] = {
    "in doubt": "warning",
    "not compared": "warning",
    "failed": "error",
}


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The findings about one file.

    Attributes:
        original: The float32 file that it was compared with; None if there is none beside it.
        precision: The type that it computes in; "" if the file cannot be read.
        outcome: The status of its verdict; "failed" if it cannot be read.
        verdict: Why, in one line.
    """

    file: str
    original: str | None
    precision: str
    outcome: Status
    verdict: str

    def __str__(self) -> str:
        """Return the verdict, and what the model was compared with."""
        return self.verdict + ("" if self.original is None else f" (compared with {self.original})")


@dataclass(frozen=True, slots=True, repr=False)
class ModelChecks(Shown):
    """The findings about several files, in their order."""

    _beside = ("ok",)

    models: tuple[ModelCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every model passed."""
        return all(model.outcome == "passed" for model in self.models)

    @property
    def failed(self) -> bool:
        """Whether a model failed."""
        return any(model.outcome == "failed" for model in self.models)

    def lines(self) -> Iterator[str]:
        """Yield a line for each model, and what it was compared with."""
        for model in self.models:
            yield f"{model.outcome}: {model.file}: {model}"

    def to_github(self) -> str:
        """Return an annotation for each model that did not pass."""
        title = "amp-rewrite check"
        return "\n".join(
            annotation(_SEVERITY[model.outcome], title, str(model), model.file)
            for model in self.models
            if model.outcome in _SEVERITY
        )

    def to_markdown(self) -> str:
        """Return a table, as the summary of a GitHub job shows it."""
        rows = [
            f"| {_cell(m.file)} | {m.precision or '-'} | {m.outcome} | {_cell(str(m))} |"
            for m in self.models
        ]
        head = ("### amp-rewrite check", "", "| model | type | result | why |")
        return "\n".join((*head, "|---|---|---|---|", *rows, ""))


def check_models(
    files: Iterable[Path], options: RewriteOptions | None = None, *, run: bool = True
) -> ModelChecks:
    """Check files: in 16 bits as `check` does, and as `verify` does where their original is there.

    The original of `model.fp16.onnx` or `model_fp16.onnx` is `model.onnx` in the same folder. A
    file that cannot be read fails; the others are still checked. The precision is that of each
    file; without `run` only the rules are applied.
    """
    chosen = options or RewriteOptions()
    return ModelChecks(tuple(_checked(Path(file), chosen, run=run) for file in files))


def original_of(file: Path) -> Path | None:
    """Return the float32 file beside a file in 16 bits, by their names; None if there is none."""
    plain = _IN_16_BITS.sub("", file.stem)
    original = file.with_name(f"{plain}{file.suffix}")
    return original if plain and plain != file.stem and original.is_file() else None


def _checked(file: Path, options: RewriteOptions, *, run: bool) -> ModelCheck:
    original = original_of(file) if run else None
    precision = ""
    try:
        safety = check(file, None, options, run=run and original is None)
        precision = safety.computes
        if original is None or precision == FLOAT32.name:
            verdict = safety.verdict
            return ModelCheck(str(file), None, precision, verdict.status, str(verdict))
        compared = verify(original, file, target=options.target)
    except AmpError as error:
        said = str(error).removeprefix(f"{file}: ")
        return ModelCheck(str(file), None, precision, "failed", said)
    verdict = compared.verdict
    return ModelCheck(str(file), str(original), precision, verdict.status, str(verdict))


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
