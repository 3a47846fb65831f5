"""Which opset a model is converted at: its own, or a newer one at which more of it can be low."""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, AmpWarning, OptionError
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.rewriting.api import RewriteResult, rewrite_freely
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, RewriteOptions
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.targets import SCHEMA, Target, find

if TYPE_CHECKING:
    from amp_rewrite.numerics.convert.upgrade import RaisedModel

_LARGEST = 1 << 31
"""Bytes of the largest weights of a model that is run twice without being asked for."""


def upgraded(
    flat: FlatGraph, opset: int | str, options: RewriteOptions
) -> tuple[FlatGraph, RaisedModel | None]:
    """Return a model at an opset, and the upgraded model if that is another one.

    "auto" upgrades a model for bfloat16 if a newer opset lets more of it be in 16 bits, the target
    has the kernels, and the outputs stay the same in float32: Conv, Resize and most of vision and
    audio take bfloat16 only since opset 22. So for targets whose float16 kernels begin at an opset.

    Raises:
        OptionError: The opset is neither a number nor "auto" or "keep".
        AmpError: A number was asked for, and the model cannot be upgraded to it.
    """
    if isinstance(opset, str) and opset == KEEP:
        return flat, None
    if not isinstance(opset, str) or opset != AUTO:
        raised = _upgrade(flat, _number(opset))
    else:
        target = options.chosen_target
        wanted = options.precision == BFLOAT16.name or find(target).opset is not None
        if target == SCHEMA or not wanted:
            return flat, None
        before = _rewritten(flat, options)
        advised = _advised_opset(before, options)
        if advised is None:
            return flat, None
        try:
            raised = _upgrade(flat, advised)
        except AmpError:
            return flat, None
        if raised.unverified is not None or raised.opset == raised.before:
            return flat, None
        newer = read_source(raised.model, inline_functions=False)
        gains = _low_share(_rewritten(newer, options)) > _low_share(before)
        return (newer, raised) if gains else (flat, None)
    return read_source(raised.model, inline_functions=False), raised


def _rewritten(flat: FlatGraph, options: RewriteOptions) -> RewriteResult:
    """Return a rewrite that is only looked at; the one that is written says its warnings."""
    with warnings.catch_warnings(action="ignore", category=AmpWarning):
        return rewrite_freely(flat, replace(options, strict=False))


def _low_share(result: RewriteResult) -> tuple[float, int]:
    """Return how much of a model's arithmetic is low, and how many of its nodes."""
    summary = result.report.summary
    return summary.compute_converted, summary.nodes_converted


def _number(opset: int | str) -> int:
    try:
        return int(opset if isinstance(opset, str) else operator.index(opset))
    except (TypeError, ValueError) as error:
        raise OptionError(
            "--opset is no opset", found=opset, expected=f"a number, {AUTO} or {KEEP}"
        ) from error


def _advised_opset(result: RewriteResult, options: RewriteOptions) -> int | None:
    """Return the opset to which a model is worth being upgraded without being asked for."""
    flat = result.flat
    if flat.files.total > _LARGEST or step_description(flat):
        return None
    target = find(options.chosen_target)
    if target.opset is not None:
        return target.opset if _has_more_kernels(result, options, target) else None
    advice = result.report.opset_advice
    return None if advice is None or advice.lost else advice.opset


def _has_more_kernels(result: RewriteResult, options: RewriteOptions, target: Target) -> bool:
    """Tell whether a target has a kernel for a model's operator at its own opset only."""
    kernels, flat, before = table_of(target), result.flat, result.report.opset
    if kernels is None or target.opset is None or before >= target.opset:
        return False
    types = {"T": tensor(options.low.number)}
    called = {flat.called(node)[:2] for node in range(flat.n_nodes)}
    return any(
        not domain
        and kernels.has_kernel("", op, target.opset, types)
        and not kernels.has_kernel("", op, before, types)
        for domain, op in called
    )


def _upgrade(flat: FlatGraph, opset: int) -> RaisedModel:
    from amp_rewrite.numerics.convert.upgrade import raise_opset  # few models are upgraded

    return raise_opset(flat, opset)
