"""What is known of a rewrite besides its report: sizes, a verification, magnitudes, a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.converted_file import FileConversion
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Data, Feeds, batches
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.numerics.ranges.histograms import Histogram, magnitude_histograms
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.file_sizes import sizes_of
from amp_rewrite.rewriting.report.gains import Sizes
from amp_rewrite.rewriting.report.next_steps import Names, NextStep


@dataclass(frozen=True)
class Judgement:
    """What the first screen says of the model that is shown.

    Attributes:
        headline: What was gained, or what is wrong, in one line.
        ok: Whether it holds, or is safe; None if nobody looked.
        next: What to try next.
        dangers: What is dangerous in it, a line for each kind.
        remarks: What else a reader has to know.
    """

    headline: str
    ok: bool | None
    next: tuple[NextStep, ...] = ()
    dangers: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What the page shows besides the report, as far as it is known.

    Attributes:
        names: What the files are called.
        sizes: How large the model is before and after.
        verification: How far it is from the original.
        histograms: Value -> how its magnitudes are spread in float32.
        tuning: What a search kept float32.
        remarks: What a reader has to know to read the page rightly.
        against: What speaks against a model that holds, if anything.
        judgement: What is said of a model that came in 16 bits; None says what a rewrite gained.
    """

    names: Names
    sizes: Sizes | None = None
    verification: VerifyReport | None = None
    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    tuning: Tuning | None = None
    remarks: tuple[str, ...] = ()
    against: str | None = None
    judgement: Judgement | None = None


def evidence_of(conversion: FileConversion, output: Path, *, written: bool) -> Evidence:
    """Return what is known of a conversion.

    Raises:
        AmpError: The data cannot be read.
    """
    model, result, outcome = conversion.model, conversion.result, conversion.made
    data = conversion.asked.data
    return Evidence(
        names=Names(model.name, output.name, tuple(path.name for path in data), written),
        sizes=sizes_of(model, result.flat, result.plan, output if written else None),
        verification=None if outcome is None else outcome.verification,
        histograms=measured(conversion.source, result, data or None) if data or outcome else {},
        tuning=None if outcome is None else outcome.tuning,
        remarks=() if outcome is None or outcome.unmet is None else (outcome.unmet,),
        against=None if outcome is None else outcome.nothing_left,
    )


def measured(model: Source, result: RewriteResult, data: Data | None) -> dict[str, Histogram]:
    """Measure what the nodes of the main graph make, on data or on made-up inputs.

    Raises:
        AmpError: The data do not fit the model, or ONNX Runtime cannot run it.
    """
    feeds = batches(data, load(model)) if data is not None else _made_up(model, result)
    return magnitude_histograms(model, _float_values(result), feeds)


def _float_values(result: RewriteResult) -> Iterable[str]:
    flat, types = result.flat, result.context.type_graph.types
    for value in flat.outputs:
        if flat.home[value] == MAIN and types[value] in FLOAT32_TYPES and flat.value_names[value]:
            yield flat.value_names[value]


def _made_up(model: Source, result: RewriteResult) -> Iterator[Feeds]:
    """Yield inputs on which the model runs."""
    loaded = load(model)
    inputs = PlausibleInputs.of(loaded, ranges=result.options.ranges)
    yield inputs.runnable(Evaluator(loaded).run)[1]
