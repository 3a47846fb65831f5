"""What several op lists allow."""

from __future__ import annotations

from pathlib import Path

import pytest

import amp_rewrite as amp
from amp_rewrite.errors import ListError
from amp_rewrite.oplists import files
from amp_rewrite.oplists.common import common_entries
from amp_rewrite.oplists.entries import Condition, Entry, ListName

ALLOW, DENY, INFER = ListName.ALLOW, ListName.DENY, ListName.INFER
CLEAR, UNLISTED = ListName.CLEAR, ListName.UNLISTED


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (ALLOW, ALLOW, ALLOW),
        (ALLOW, CLEAR, CLEAR),
        (CLEAR, INFER, INFER),
        (INFER, UNLISTED, UNLISTED),
        (UNLISTED, DENY, DENY),
        (ALLOW, DENY, DENY),
    ],
)
def test_the_more_careful_list_wins(one: ListName, other: ListName, expected: ListName) -> None:
    lists = [[Entry("Op", "", one, "a")], [Entry("Op", "", other, "b")]]
    assert [entry.list for entry in common_entries(lists)] == [expected]
    assert [entry.list for entry in common_entries(lists[::-1])] == [expected]


def test_an_operator_that_one_list_lacks_is_on_none() -> None:
    assert common_entries([[Entry("A", "", ALLOW, "a")], [Entry("B", "", ALLOW, "b")]]) == []


def test_conditions_of_both_must_hold() -> None:
    mode = Condition("mode", ("nearest", "linear"))
    one = Entry("Resize", "", CLEAR, "a", since=11, when=(mode,))
    other = Entry(
        "Resize", "", INFER, "b", since=13, until=18, when=(Condition("mode", ("linear",)),)
    )
    (found,) = common_entries([[one], [other]])
    assert (found.since, found.until, found.list) == (13, 18, INFER)
    assert found.applies(14, {"mode": "linear"})
    assert not found.applies(14, {"mode": "nearest"})
    assert not found.applies(19, {"mode": "linear"})
    apart = Entry("Resize", "", INFER, "b", when=(Condition("mode", ("cubic",)),))
    assert common_entries([[one], [apart]]) == []


def test_a_list_extends_what_several_allow(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "version: 1\nprecision: float16\ntarget: any\nextend: float16_cuda,float16_webgpu\n"
        "deny:\n  - {op: Sinh, why: too steep}\n",
        "utf-8",
    )
    lists = amp.load_lists(path, target="cuda,webgpu")
    assert lists.files[:2] == ("lists/float16_cuda.yaml", "lists/float16_webgpu.yaml")
    for op, expected in (("Sinh", DENY), ("Conv", ALLOW), ("LSTM", UNLISTED), ("Exp", DENY)):
        entry = lists.classify("", op, 17, {})
        assert entry is not None
        assert entry.list == expected


def test_lists_of_two_precisions_are_refused() -> None:
    found = files.read(["float16_cuda,bfloat16_cuda"], precision=None, targets=None)
    assert [problem.what for problem in found.problems] == ["the lists are for several precisions"]


def test_a_list_for_another_target_is_refused() -> None:
    with pytest.raises(ListError, match="for another target; found cpu; expected cuda or webgpu"):
        amp.load_lists("float16_cpu", target="cuda,webgpu")
