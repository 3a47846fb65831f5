"""AMP_REWRITE_<NAME>_ADD and _REMOVE: op lists changed from the environment."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from amp_rewrite.base.name_patterns import nearest
from amp_rewrite.errors import OptionError, warn
from amp_rewrite.graph import schemas
from amp_rewrite.graph.traits import Called
from amp_rewrite.oplists.entries import Entry, ListName

# The older names come last: they apply after the new ones, as TensorFlow's aliases do.
_VARIABLES = (
    ("ALLOWLIST", ListName.ALLOW),
    ("DENYLIST", ListName.DENY),
    ("INFERLIST", ListName.INFER),
    ("CLEARLIST", ListName.CLEAR),
    ("WHITELIST", ListName.ALLOW),
    ("BLACKLIST", ListName.DENY),
    ("GRAYLIST", ListName.INFER),
)

_log = logging.getLogger(__name__)

_ENABLE = "TF_ENABLE_AUTO_MIXED_PRECISION"
"""The variable that lets new training sessions compute in float16; global_state.py reads it."""

_THEIRS, _OURS = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", "AMP_REWRITE_"
"""How variables begin; the former are in https://github.com/tensorflow/tensorflow/blob/v2.16.1/tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h."""
_SETTINGS = ("LEVEL", "LOG_PATH")
_OF_TOOLS = "ARM64"


def apply(entries: tuple[Entry, ...], environ: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries after every variable: for each list, ADD comes before REMOVE.

    A warning names variables that begin like them and are none.
    """
    known = (*_SETTINGS, *(f"{name}_{how}" for name, _ in _VARIABLES for how in ("ADD", "REMOVE")))
    for word in (name.removeprefix(_OURS) for name in environ if name.startswith(_OURS)):
        if word not in (*known, _OF_TOOLS):
            meant = " or ".join(_OURS + near for near in nearest(word, known))
            remedy = f"did you mean {meant}?" if meant else "see docs/op_lists.md"
            warn(f"{_OURS}{word} is not a variable of this package; {remedy}")
    for name, list_name in _VARIABLES:
        entries = _add(entries, list_name, f"{_OURS}{name}_ADD", environ)
        entries = _remove(entries, list_name, f"{_OURS}{name}_REMOVE", environ)
    return entries


def split_name(name: str) -> tuple[str, str]:
    """Return (domain, op) of a name written as "Op" or "domain::Op"."""
    domain, separator, op = name.strip().rpartition("::")
    return ("" if not separator or domain == "ai.onnx" else domain), op


def names_of(called: Called) -> tuple[str, ...]:
    """Return what users may call an operator."""
    whole = f"{called.domain or 'ai.onnx'}::{called.op_type}"
    return (whole,) if called.domain else (called.op_type, whole)


def _names(variable: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    words = (w.strip() for w in environ.get(variable, "").split(","))
    return [split_name(w) for w in words if w]


def _add(
    entries: tuple[Entry, ...], name: ListName, variable: str, environ: Mapping[str, str]
) -> tuple[Entry, ...]:
    for domain, op in _names(variable, environ):
        _require_known(domain, op, variable)
        # An explicit "unlisted" gives way, and a conditional entry of the same list is widened.
        replaced = {name, ListName.UNLISTED}
        kept = tuple(e for e in entries if e.key != (domain, op) or e.list not in replaced)
        where, why = f"environment {variable}", f"added by {variable}"
        entries = (*kept, Entry(op, domain, name, why, where=where, asked=variable))
    return entries


def _remove(
    entries: tuple[Entry, ...], name: ListName, variable: str, environ: Mapping[str, str]
) -> tuple[Entry, ...]:
    for key in _names(variable, environ):
        kept = tuple(e for e in entries if e.key != key or e.list != name)
        if len(kept) == len(entries):
            called = "::".join(filter(None, key))
            _log.warning("%s: %s is not on the %s list", variable, called, name)
        entries = kept
    return entries


def _require_known(domain: str, op: str, variable: str) -> None:
    names = schemas.names(domain)
    if op in names or (domain and op and not names):
        return
    contrib = schemas.CONTRIB_DOMAIN
    hint = f"{contrib}::{op}" if op in schemas.names(contrib) else "the exact name of an operator"
    raise OptionError(
        "the environment adds an operator that no schema knows",
        where=f"environment {variable}",
        found=f"{domain}::{op}" if domain else op,
        expected=f"{hint}, as Op or domain::Op, separated by commas",
    )


def with_tensorflow(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with TensorFlow's variables under this package's names.

    A variable of this package wins. Operators that ONNX does not know (`Conv2D`) are left out: the
    variable was set for TensorFlow's graphs. One line in the log names the variables.
    """
    theirs = {name: value for name, value in environ.items() if name.startswith(_THEIRS) and value}
    if not theirs:
        return environ
    read: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in theirs.items():
        word = name.removeprefix(_THEIRS)
        if _OURS + word in environ:
            continue
        if word in _SETTINGS:
            read[_OURS + word] = value
        elif word.endswith(("_ADD", "_REMOVE")):
            names = [each.strip() for each in value.split(",") if each.strip()]
            standard = [each for each in names if each in schemas.names("")]
            unknown += [each for each in names if each not in standard]
            read[_OURS + word] = ",".join(standard)
    _log_variables(tuple(sorted(theirs)), tuple(unknown))
    return {**environ, **read}


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether TensorFlow's variable enables the graph rewrite."""
    enabled = environ.get(_ENABLE, "").strip().lower() in ("1", "true")
    if enabled:
        _log_variables((_ENABLE,), ())
    return enabled


@lru_cache(maxsize=64)
def _log_variables(names: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    """Log once that variables were read."""
    rest = f"; no operators of ONNX: {', '.join(unknown)}" if unknown else ""
    _log.warning("read TensorFlow's environment variables: %s%s", ", ".join(names), rest)
