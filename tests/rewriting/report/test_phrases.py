"""Every reason says what it is, to who knows how a rewrite works and to who does not."""

from __future__ import annotations

import pytest

from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.report.phrases import PHRASES, PLAIN, phrase, plain_phrase

JARGON = {"allow", "clear", "deny", "infer", "boundary", "retargeted", "variable's", "vertex"}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_plain_words(reason: Reason) -> None:
    said = plain_phrase(reason, "float16", "cuda")
    assert "{" not in said
    assert not JARGON & set(said.replace(",", "").split())


def test_a_word_without_plain_words_says_what_it_says_elsewhere() -> None:
    assert set(PLAIN) <= set(PHRASES)
    assert plain_phrase("new", "float16", "cuda") == phrase("new", "float16", "cuda") == "new"
