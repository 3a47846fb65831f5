"""Every reason says what it is, to who knows how a rewrite works and to who does not."""

from __future__ import annotations

import pytest

from amp_rewrite.rewriting.reasons import REASONS, PassReason, phrase, plain_phrase

JARGON = {"allow", "clear", "deny", "infer", "boundary", "retargeted", "variable's", "vertex"}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_plain_words(reason: PassReason) -> None:
    said = plain_phrase(reason, "float16", "cuda")
    assert "{" not in said
    assert not JARGON & set(said.replace(",", "").split())


def test_a_word_of_which_nothing_is_said_says_itself() -> None:
    assert plain_phrase("new", "float16", "cuda") == phrase("new", "float16", "cuda") == "new"


def test_braces_that_stand_for_nothing_are_left_alone() -> None:
    reason = PassReason("own", phrase="{a} in {precision}", plain="is {}, for {target}")
    assert phrase(reason, "float16", "cuda") == "{a} in float16"
    assert plain_phrase(reason, "float16", "cuda") == "is {}, for cuda"
