"""The opset that a model is moved to before it is rewritten."""

from __future__ import annotations

import warnings
from pathlib import Path

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, AmpWarning, OptionError
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.numerics.raise_opset import RaisedModel, raise_opset
from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, RewriteOptions
from amp_rewrite.targets import SCHEMA

_LARGEST = 1 << 31
"""Bytes of the largest weights of a model that is run twice without being asked for."""


def raised_model(model: Path, opset: str, options: RewriteOptions) -> RaisedModel | None:
    """Return a model at the opset that was asked for, or None for the one that it has.

    `auto` moves a model that becomes bfloat16 where a newer opset lets more of it be low, the
    target has the kernels, and the moved model gives the same outputs in float32: Conv, Resize and
    most of vision and audio take bfloat16 since opset 22 only.

    Raises:
        AmpError: A number was asked for, and the model cannot be moved there.
    """
    if opset == KEEP:
        return None
    if opset != AUTO:
        return _moved(model, _number(opset), options)
    advised = _advised(model, options)
    if advised is None:
        return None
    try:
        found = _moved(model, advised, options)
    except AmpError:
        return None
    return found if found.unverified is None else None


def _number(opset: str) -> int:
    try:
        return int(opset)
    except ValueError as error:
        raise OptionError(
            "--opset is no opset", found=opset, expected=f"a number, {AUTO} or {KEEP}"
        ) from error


def _advised(model: Path, options: RewriteOptions) -> int | None:
    """Return the opset to which a model is worth being moved without being asked for."""
    if options.precision != BFLOAT16.name or options.target == SCHEMA:
        return None
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # the rewrite says it all
        found = rewrite(model, options, strict=False)
    flat = found.flat
    if flat.files.total > _LARGEST:
        return None
    advice = None if step_description(flat) else found.report.opset_advice
    return None if advice is None else advice.opset


def _moved(model: Path, opset: int, options: RewriteOptions) -> RaisedModel:
    return raise_opset(model, opset, inline_functions=options.inline_functions)
