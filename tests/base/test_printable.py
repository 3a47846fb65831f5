"""Names of a model are shown to a reader; nothing in them acts on a terminal."""

from __future__ import annotations

import pytest

from amp_rewrite.base.printable import printable
from amp_rewrite.errors import AmpError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("abc\u202edef\u2066", r"abc\u202edef\u2066"),
        ("one\u2028two\u2029", r"one\u2028two\u2029"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_acts_is_spelled(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_an_error_is_one_line_whatever_the_names() -> None:
    error = AmpError("bad\nname", where="\x1b[2Jf\u202e", found="a\r\nb\x00", remedy="c\u2028d")
    assert str(error) == r"\x1b[2Jf\u202e: bad name; found a b\x00; c d"
    assert error.found == "a\r\nb\x00"
