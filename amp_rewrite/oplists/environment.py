"""AMP_REWRITE_<NAME>_ADD and _REMOVE: op lists changed from the environment."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from amp_rewrite.errors import OptionError
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


def apply(entries: tuple[Entry, ...], environ: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries after every variable: for each list, ADD comes before REMOVE.

    Raises:
        OptionError: A variable adds an operator that no schema knows.
    """
    for name, list_name in _VARIABLES:
        variable = f"AMP_REWRITE_{name}"
        entries = _add(entries, list_name, f"{variable}_ADD", environ)
        entries = _remove(entries, list_name, f"{variable}_REMOVE", environ)
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
        where = f"environment {variable}"
        entries = (*kept, Entry(op, domain, name, f"added by {variable}", where=where))
    return entries


def _remove(
    entries: tuple[Entry, ...], name: ListName, variable: str, environ: Mapping[str, str]
) -> tuple[Entry, ...]:
    for key in _names(variable, environ):
        kept = tuple(e for e in entries if e.key != key or e.list != name)
        if len(kept) == len(entries):
            _log.warning(
                "%s: %s is not on the %s list", variable, "::".join(filter(None, key)), name
            )
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
