"""Op lists as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_rewrite.base.html_table import HtmlTable
from amp_rewrite.oplists.entries import Entry, ListName, NodeRule


def lists_tables(entries: Iterable[Entry], rules: Iterable[NodeRule]) -> tuple[HtmlTable, ...]:
    """Return which operators are on which list, and which nodes."""
    nodes = [(rule.node, str(rule.list), rule.why) for rule in rules]
    return (
        HtmlTable(("list", "number", "operators"), list(_rows(list(entries)))),
        HtmlTable(("node", "list", "why"), nodes),
    )


def _rows(entries: list[Entry]) -> Iterator[tuple[object, ...]]:
    for name in ListName:
        found = {e.key for e in entries if e.list is name}
        operators = sorted(f"{domain}::{op}" if domain else op for domain, op in found)
        if operators:
            yield str(name), len(operators), ", ".join(operators)
