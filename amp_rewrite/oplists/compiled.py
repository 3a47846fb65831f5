"""The built-in op lists as tools/compile_lists.py has parsed them: lists/compiled.json.

Parsing a list with the places of its lines, and checking it against the schemas, takes longer than
rewriting a small model; reading this file takes 2 ms. It is JSON, which cannot be anything but
data. It is about the text that was parsed: a list that has changed since is parsed again.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from zlib import crc32

from amp_rewrite import targets
from amp_rewrite.oplists.entries import (
    Condition,
    Entry,
    ListFile,
    ListName,
    NodeRule,
    NoKernel,
    Removal,
)

NAME = "compiled.json"


def checksum(text: str) -> int:
    """Return what tells a list from what it was before a change."""
    return crc32(text.encode())


@cache
def list_file(text: str, name: str) -> ListFile:
    """Return what a list file says, as `parse.parse` does, whose work is done for built-in ones.

    The result is shared between calls and must not be changed.
    """
    row = _table().get(name)
    if row is None or row["checksum"] != checksum(text):
        from amp_rewrite.oplists import parse  # it loads a YAML parser, which few programs need

        return parse.parse(text, name)
    return ListFile(
        name,
        row["precision"],
        row["target"],
        row["extend"],
        [Removal(o, d, ListName(n) if n else None, at) for o, d, n, at in row["removals"]],
        [_entry(*values) for values in row["entries"]],
        [NoKernel(*values) for values in row["no_kernels"]],
        [NodeRule(node, v, ListName(n), why, at) for node, v, n, why, at in row["node_rules"]],
    )


@cache
def _table() -> dict[str, Any]:
    """Return what the file holds: list -> its ListFile, records as arrays."""
    return json.loads(targets.DATA.joinpath(NAME).read_text("utf-8"))


def _entry(op: str, domain: str, name: str, why: str, *rest: Any) -> Entry:
    since, until, when, no_kernel, where = rest
    conditions = tuple(Condition(attribute, tuple(values)) for attribute, values in when)
    return Entry(op, domain, ListName(name), why, since, until, conditions, no_kernel, where)
