"""Strings are printed as text, never as markup, and names in them never control a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from amp_rewrite.base.printable import printable, shortened

_LONG_WORD, _SHOWN = re.compile(r"\S{400,}"), 200
"""A name of which only its ends are shown, and in how many characters; no path is so long."""


class PlainConsole(Console):
    """A console of rich that prints a string as one line; colors come from styles alone."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        stderr: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
    ) -> None:
        """Print to standard output, to standard error or, without colors, to a file.

        The width of tables is that of the terminal by default.
        """
        super().__init__(
            quiet=quiet,
            stderr=stderr,
            file=file,
            width=width,
            color_system="auto" if file is None else None,
            force_terminal=None if file is None else False,
            force_jupyter=None if file is None else False,
            soft_wrap=file is None,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to print for a string, which may be the cell of a table."""
        short = _LONG_WORD.sub(lambda word: shortened(word.group(), _SHOWN), printable(text))
        return super().render_str(short, **options)

    def print_lines(self, text: str) -> None:
        """Print the lines of a text, in which names are printable already."""
        for line in text.split("\n"):
            self.print(line)


def printed(show: Callable[[Console], None], width: int) -> str:
    """Return what a function prints on the console that it is given, `width` columns wide."""
    stream = io.StringIO()
    show(PlainConsole(file=stream, width=width))
    return stream.getvalue().rstrip("\n")
