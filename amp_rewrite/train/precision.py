"""From a float32 step to one that computes forward and backward in float16 or bfloat16."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from amp_rewrite.api import rewrite_with
from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.rewrite.options import RewriteOptions
from amp_rewrite.train.cut import values_by_name
from amp_rewrite.train.errors import StepError
from amp_rewrite.train.info import STEP_KEY

if TYPE_CHECKING:
    from amp_rewrite.train.step import Step


def chosen_precision(precision: str | None) -> str:
    """Return the precision of a new step; None leaves the choice to the global state.

    Raises:
        OptionError: There is no such precision.
    """
    chosen = FLOAT32.name if precision is None else precision
    if chosen != FLOAT32.name and chosen not in LOW:
        raise OptionError(
            "unknown precision",
            found=repr(precision),
            expected=" or ".join(map(repr, (FLOAT32.name, *LOW))),
        )
    return chosen


def in_precision(step: Step, precision: str | None, options: RewriteOptions | None = None) -> Step:
    """Return a step in the precision asked for.

    States, data inputs and whatever is fetched stay float32. Each state that is read in the low
    type is cast once per step, for forward and backward alike.

    Args:
        step: With everything that can be fetched; not changed.
        precision: "float32", "float16" or "bfloat16"; None is what a step that has been rewritten
            has, and the choice of the global state for any other.
        options: How to rewrite; their precision is replaced.

    Raises:
        OptionError: There is no such precision.
        StepError: The step has been rewritten to another precision.
        AmpError: A list is wrong.
    """
    present = step.info.precision
    if precision is None and present != FLOAT32.name:
        return step
    wanted = chosen_precision(precision)
    if wanted == present:
        return step
    if present != FLOAT32.name:
        raise StepError(
            "the step has been rewritten already",
            found=present,
            expected=wanted,
            remedy=f"build the step again with precision={wanted!r}",
        )
    return _rewritten(step, replace(options or RewriteOptions(), precision=wanted))


def _rewritten(step: Step, options: RewriteOptions) -> Step:
    """Rewrite a step whose states' next values and fetches keep their type and name."""
    ends = {state.output for state in step.info.states} | set(step.info.fetches.values())
    with _also_outputs(step.model, ends):
        result = rewrite_with(step.model, options)
    kept = {value.name for value in step.model.graph.outputs}
    model = result.model
    for value in [v for v in model.graph.outputs if v.name not in kept]:
        model.graph.outputs.remove(value)
    info = replace(step.info, precision=options.precision)
    model.metadata_props[STEP_KEY] = info.to_json()
    return replace(step, model=model, info=info, report=result.report)
