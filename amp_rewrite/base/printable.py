"""Names are data: how a text that comes from a model or a file is shown to a reader.

A name in an ONNX file is any string. On a terminal a control character of it acts (ESC colors and
moves the cursor), a line break makes one message look like two, and marks of direction show the
letters in another order than they have. Numbers are shown as people say them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_ACTING = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters, line breaks and tabs among them
    "\xad\u061c\u180e\u200b-\u200f\u2060-\u2064\ufeff"  # invisible, or marks of direction
    "\u2028\u2029"  # separators of lines and paragraphs
    "\u202a-\u202e\u2066-\u206f"  # embeddings, overrides and isolates of direction
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations and tags
    "\ud800-\udfff"  # halves of a pair, which no encoding writes
    "]"
)

_LINE = 160
"""Characters that `repr` shows of an object."""

_LONG_WORD, _SHOWN = re.compile(r"\S{400,}"), 200
"""A name of which only its ends are shown, and in how many characters; no path is so long."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_STEP = 1000
_THREE_DIGITS = 100


def printable(text: str) -> str:
    r"""Return a text with all that is not shown as itself spelled as in Python: `\n`, `\x1b`."""
    return _ACTING.sub(_spell_match, text)


def shortened(text: str, most: int = 80) -> str:
    """Return a text with its middle left out if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    end = (most - 3) // 2
    return f"{text[: most - 3 - end]}...{text[-end:]}"


def plain_line(text: str) -> str:
    """Return a line of a report: all of it printable, and of endless names both ends."""
    return _LONG_WORD.sub(lambda word: shortened(word.group(), _SHOWN), printable(text))


def one_line(thing: object, text: str) -> str:
    """Return what `repr` shows of an object that holds much: its class, and what matters of it."""
    return f"<{type(thing).__name__}: {shortened(printable(text), _LINE)}>"


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> list[str]:
    """Return the lines of a table, of which the first columns are `numbers`, to the right."""
    cells = [[plain_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = [">" if place < numbers else "<" for place in range(len(widths))]
    formats = [f"{sign}{width}" for sign, width in zip(signs, widths, strict=True)]
    lines = ("  ".join(map(format, row, formats)) for row in cells)
    return [line.rstrip() for line in lines]


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as a notebook shows it; what is in the cells is text, never markup."""

    def line(cells: Iterable[object], kind: str) -> str:
        shown = (html.escape(printable(str(cell))) for cell in cells)
        return f"<tr>{''.join(f'<{kind}>{cell}</{kind}>' for cell in shown)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    title = html.escape(printable(caption))
    return f"<table><caption>{title}</caption>{line(head, 'th')}{body}</table>"


def _spell_match(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def in_bytes(count: int) -> str:
    """Return a number of bytes with three digits at least: "58.4 MB"."""
    number, unit = float(count), 0
    while abs(number) >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    digits = 0 if unit == 0 or abs(number) >= _THREE_DIGITS else 1
    return f"{number:,.{digits}f} {_UNITS[unit]}"


def few(things: Sequence[object], most: int = 3) -> str:
    """Return the first of some things, and how many more there are: "a, b, c and 2 more"."""
    more = len(things) - most
    return ", ".join(map(str, things[:most])) + (f" and {more:,} more" if more > 0 else "")


def counted(count: int, noun: str) -> str:
    """Return a number and a noun: "1 node", "2,000 nodes", "2 batches"."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith('tch') else 's'}"


def percent(ratio: float) -> str:
    """Return a ratio as people say it, with two digits: "1.6 %", "0.0042 %", "over 1,000 %"."""
    number = 100 * ratio
    if not number <= _MOST_PERCENT:
        return f"over {_MOST_PERCENT:,} %"
    if 0 < number < _LEAST_PERCENT:
        return f"less than {_LEAST_PERCENT} %"
    return f"{number:.0f} %" if round(number) >= _THREE_DIGITS else f"{number:.2g} %"


def share(part: float, digits: int = 2) -> str:
    """Return a share of 1 in percent; only 1 is 100 % and only 0 is 0 %: 0.99997 is "99.997 %".

    `digits` is the least number of them after the point.
    """
    text = f"{100 * part:.{digits}f}"
    while digits < _MOST_DIGITS and float(text) in (0.0, 100.0) and part not in (0.0, 1.0):
        digits += 1
        text = f"{100 * part:.{digits}f}"
    return f"{text} %"


_MOST_PERCENT = 1000
_LEAST_PERCENT = 0.001
_MOST_DIGITS = 12
