"""Small tables in HTML, which notebooks show for an object: text alone, whatever names hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import NamedTuple

from amp_rewrite.base.printable import printable

_MOST = 20
"""How many rows of a table are shown."""


class HtmlTable(NamedTuple):
    """A table of texts and numbers.

    Attributes:
        columns: The heads of its columns.
        rows: A cell for each column; numbers stand on the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def to_html(headline: str, lines: Iterable[str] = (), tables: Iterable[HtmlTable] = ()) -> str:
    """Return a headline, lines and tables as a piece of HTML, without scripts or colors.

    Tables without rows are left out; of long ones the first rows are shown.
    """
    parts = [f"<strong>{_text(headline)}</strong>"]
    parts += [f"<div>{_text(line)}</div>" for line in lines]
    parts += [_table(table) for table in tables if table.rows]
    return f"<div>{''.join(parts)}</div>"


def _table(table: HtmlTable) -> str:
    head = "".join(_cell("th", name) for name in table.columns)
    rows = [f"<tr>{''.join(_cell('td', c) for c in row)}</tr>" for row in islice(table.rows, _MOST)]
    left = len(table.rows) - _MOST
    more = f"<div>and {left:,} more</div>" if left > 0 else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<table>{body}</table>{more}"


def _cell(tag: str, content: object) -> str:
    side = "right" if isinstance(content, int | float) else "left"
    shown = f"{content:,}" if isinstance(content, int) else f"{content}"
    return f'<{tag} style="text-align: {side}">{_text(shown)}</{tag}>'


def _text(text: str) -> str:
    return escape(printable(text))
