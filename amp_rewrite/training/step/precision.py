"""From a float32 step to one that computes forward and backward in float16 or bfloat16."""

from __future__ import annotations

from dataclasses import replace

from amp_rewrite.dtypes import FLOAT32, LOW, type_name
from amp_rewrite.errors import OptionError, StepError
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, SCALE, Changes, RewriteOptions, changed
from amp_rewrite.targets import Target
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step import Step


def chosen_precision(precision: str | None) -> str:
    """Return the precision of a new step; None leaves the choice to the global state."""
    name = (global_state.precision() or FLOAT32.name) if precision is None else precision
    chosen = type_name(name)
    if chosen not in (FLOAT32.name, *LOW):
        raise OptionError(
            "unknown precision",
            found=repr(precision),
            expected=" or ".join(map(repr, (FLOAT32.name, *LOW))),
        )
    return chosen


def low_of(precision: str | None, target: Target) -> Changes:
    """Return which low type options name for a step, whether anything of it becomes low or not."""
    chosen = FLOAT32.name if precision is None else chosen_precision(precision)
    if chosen == FLOAT32.name and target.precisions:
        chosen = target.precisions[0]
    return {} if chosen == FLOAT32.name else {"precision": chosen}  # pyright: ignore[reportReturnType] it was checked


def in_precision(step: Step, precision: str | None, options: RewriteOptions | None = None) -> Step:
    """Return a step in the precision asked for; None is its own, or the global state's choice.

    States, data inputs and whatever is fetched stay float32. Each state that is read in the low
    type is cast once per step. The given model gets more outputs: go on with what is returned.
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
    choice: Changes = {"precision": wanted}  # pyright: ignore[reportAssignmentType] it was checked
    chosen = changed(options, **choice)
    if chosen.keep_io_types is not True:
        raise OptionError(
            "a step keeps the types of all its inputs and outputs",
            found=f"keep_io_types={chosen.keep_io_types!r}",
            expected="keep_io_types=True",
        )
    if chosen.overflow == SCALE:
        raise OptionError(
            "a training step is not scaled: its weights are no constants that could take a factor",
            found=f"overflow={SCALE!r}",
            expected=f"overflow={KEEP!r} or {AUTO!r}, which compute in float32 what overflows",
        )
    return _rewritten(step, chosen)


def _rewritten(step: Step, options: RewriteOptions) -> Step:
    """Rewrite a step; next states, fetches and gradients keep their names and types."""
    model, graph = step.model, step.model.graph
    values = values_by_name(graph)
    ends = [state.output for state in step.info.states]
    ends += [*step.info.fetches.values(), *(step.info.gradients or {}).values()]
    end_values = [values[name] for name in dict.fromkeys(ends) if name in values]
    computed = [v for v in end_values if v.producer() is not None]
    graph.outputs.extend(v for v in computed if not v.is_graph_output())
    result = rewrite(model, options, overflow=KEEP)
    info = replace(step.info, precision=options.precision)
    result.model.metadata_props[STEP_KEY] = info.to_json()
    return replace(step, model=result.model, info=info, rewriting=result)
