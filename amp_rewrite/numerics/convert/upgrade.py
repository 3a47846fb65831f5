"""A model upgraded to a newer opset and checked: same outputs in float32, as far as it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import DataError, GraphError, RunError, RuntimeMissingError
from amp_rewrite.graph.io.checker import checker_error
from amp_rewrite.graph.io.convert_opset import convert_opset, mend_shapes
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.records import RaisedOpset, Shown
from amp_rewrite.rewriting.report.rewrite_report import Report

_TOLERANCE = FLOAT16.epsilon / 2
"""The largest error of an output, relative to its largest magnitude: less than a rewrite rounds."""

_REMEDY = "export the model at that opset instead"


@dataclass(frozen=True, repr=False)
class RaisedModel(Shown):
    """A model at a newer opset.

    Attributes:
        model: The model.
        before: The opset of ai.onnx that it had.
        opset: The one that it has.
        unverified: Why its outputs were not compared with those of the model before; None if they
            were, and are the same.
        mended: The values whose declared shapes contradicted inference, and have the inferred ones.
    """

    _apart = ("model",)

    model: ir.Model
    before: int
    opset: int
    unverified: str | None = None
    mended: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return the opsets, and why the outputs were not compared."""
        doubt = "" if self.unverified is None else f", not compared: {self.unverified}"
        return (f"opset {self.opset}, before {self.before}{doubt}",)


def raise_opset(source: Source, opset: int) -> RaisedModel:
    """Move a model to a newer opset of ai.onnx with onnx's version converter, and check the result.

    onnx's checker has to accept it, and on made-up inputs it has to give the same outputs; where
    ONNX Runtime runs one of the two models on none, the result says so.

    Args:
        source: A path, an onnx_ir model or a ModelProto; never modified.
        opset: The opset.

    Raises:
        OptionError: The converter cannot do it, or an argument is impossible.
        GraphError: What it made is not valid, or gives other outputs.

    Examples:
        >>> raised = amp.raise_opset("model.onnx", 21)
        >>> raised
        <RaisedModel: opset 21, before 18>
        >>> amp.save(raised.model, "raised.onnx")
    """
    opset = arguments.integer("opset", opset)
    original = load(source)
    before = original.graph.opset_imports.get("", opset)
    if before == opset:
        return RaisedModel(original, before, opset)
    mended = mend_shapes(original)
    raised = convert_opset(original, opset)
    mended = tuple(dict.fromkeys((*mended, *mend_shapes(raised))))  # newer operators tell more
    error = checker_error(raised)
    if error is not None and checker_error(original) is None:
        raise GraphError(f"onnx's version converter made a wrong model for opset {opset}: {error}")
    return RaisedModel(raised, before, opset, _compare(original, raised), mended=mended)


def with_gain(
    raised: RaisedModel, report: Report, source: Source, options: RewriteOptions
) -> Report:
    """Return a raised model's report with what a rewrite of the model before gives."""
    lenient = replace(options, strict=False)
    before = rewrite(source, lenient).report.summary.compute_converted
    facts = (raised.before, before, raised.unverified, raised.mended)
    record = RaisedOpset(*facts)
    return replace(report, opset_raised=record)


def _compare(original: ir.Model, raised: ir.Model) -> str | None:
    """Compare outputs on made-up inputs; return why that is not possible, or None.

    Raises:
        GraphError: They differ.
    """
    if any(has(node, Trait.RANDOM) for node in original.graph.all_nodes()):
        return "the model draws random numbers"
    try:
        first = Evaluator(original)
        _, feeds = PlausibleInputs.of(original).runnable(first.run)
        expected = first.run(feeds)
    except (DataError, RunError, RuntimeMissingError) as error:
        return str(error)
    del first  # one session at a time
    try:
        outputs = Evaluator(raised).run(feeds)
    except RunError as error:
        raise GraphError(
            "ONNX Runtime runs the model, but not what onnx's version converter made of it",
            found=error.found or error.what,
            remedy=_REMEDY,
        ) from error
    for name, value in expected.items():
        if float32_distance(value, outputs[name]) > _TOLERANCE:
            raise GraphError(
                "onnx's version converter changed what the model computes",
                where=name,
                found="another output on made-up inputs",
                remedy=_REMEDY,
            )
    return None


def float32_distance(expected: Any, output: Any) -> float:
    """Return the largest error of an output (a list of arrays, too), by its largest magnitude.

    It is infinite where shapes, integers or texts differ, or an element is finite in one only.
    """
    if isinstance(expected, list | tuple):
        if len(expected) != len(output):
            return math.inf
        return max(map(float32_distance, expected, output), default=0.0)
    a, b = np.asarray(expected), np.asarray(output)
    if a.dtype.kind not in "fV" or a.shape != b.shape:
        return 0.0 if np.array_equal(a, b) else math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(np.where(finite, 0, a), np.where(np.isfinite(b), 0, b), equal_nan=True):
        return math.inf
    apart = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(apart / max(np.abs(a[finite]).max(initial=0.0), 1e-30))
