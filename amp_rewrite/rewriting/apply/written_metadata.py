"""The notes of a rewrite in the metadata of a model: what it is for, and a step's precision."""

from __future__ import annotations

from dataclasses import replace

from amp_rewrite import targets
from amp_rewrite.graph.metadata_keys import TARGET_KEY
from amp_rewrite.graph.step_metadata import Described, with_precision
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.plan.options import RewriteOptions


def written_metadata(model: Described, plan: CastPlan, target: str) -> dict[str, str]:
    """Return the entries that a rewrite adds or replaces; none if nothing becomes low."""
    if not plan.computes_low:
        return {}
    has_tables = any(targets.is_table(part.strip()) for part in target.split(","))
    noted = {} if has_tables else {TARGET_KEY: target}
    return {**with_precision(model, plan.low.name), **noted}


def recorded_target(model: Described) -> str | None:
    """Return what a model was rewritten for, as it says itself; None if it says nothing known."""
    name = model.metadata_props.get(TARGET_KEY)
    names = {target.name for target in targets.TARGETS}
    if name == targets.ANY:
        return name
    return name if name and all(part.strip() in names for part in name.split(",")) else None


def for_model(options: RewriteOptions, model: Described) -> RewriteOptions:
    """Return options with the target that a model says it was made for, where they name none."""
    recorded = recorded_target(model)
    if options.target is not None or recorded is None:
        return options
    takes = not options.makes_low or options.precision in targets.find(recorded).precisions
    return replace(options, target=recorded) if takes else options
