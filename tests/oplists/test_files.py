"""List files: conditions, overlays, and every way in which a file can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import amp_rewrite as amp
from amp_rewrite.errors import ListError
from amp_rewrite.oplists import OpLists, load_lists, parse
from amp_rewrite.oplists.entries import Condition, Entry, ListName
from amp_rewrite.oplists.files import common_entries

HEAD = "version: 1\nprecision: float16\ntarget: cuda\n"
ALLOW_MATMUL = HEAD + "allow:\n  - {op: MatMul, why: fast}\n"


def allow(entry: str) -> str:
    return f"{HEAD}allow:\n  - {{{entry}}}\n"


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def load(folder: Path, text: str, **environ: str) -> OpLists:
    return load_lists(write(folder, text), environ=environ)


def listed(lists: OpLists, op: str, opset: int = 18, **attributes: object) -> str | None:
    domain, _, name = op.rpartition("::")
    entry = lists.classify(domain, name, opset, attributes)
    return None if entry is None else entry.list.value


def test_since_and_until_bound_an_entry(tmp_path: Path) -> None:
    text = HEAD + (
        "allow:\n  - {op: Pad, since: 11, until: 13, why: a}\n"
        "deny:\n  - {op: Pad, since: 14, why: b}\n"
    )
    lists = load(tmp_path, text)
    assert [listed(lists, "Pad", o) for o in (10, 11, 13, 14)] == [None, "allow", "allow", "deny"]


def test_an_overlay_adds_and_removes(tmp_path: Path) -> None:
    text = HEAD + (
        "extend: float16_cuda\n"
        "remove:\n  - {op: Softmax, list: infer}\n"
        "deny:\n  - {op: Softmax, why: mine}\n"
        "allow:\n  - {op: Sin, why: small angles only}\n"
    )
    lists = load(tmp_path, text)
    assert listed(lists, "Softmax") == "deny"
    assert listed(lists, "Sin") == "allow"
    assert listed(lists, "MatMul") == "allow"
    assert lists.files == ("lists/float16_cuda.yaml", str(tmp_path / "mine.yaml"))


def test_a_file_extends_another_by_a_path_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", ALLOW_MATMUL, "b.yaml")
    lists = load(tmp_path, HEAD + "extend: base/b.yaml\ndeny:\n  - {op: Exp, why: e}\n")
    assert (listed(lists, "MatMul"), listed(lists, "Exp")) == ("allow", "deny")


def test_a_later_file_lies_over_an_earlier_one(tmp_path: Path) -> None:
    first = write(tmp_path, ALLOW_MATMUL, "1.yaml")
    second = write(
        tmp_path,
        "version: 1\nprecision: any\ntarget: any\n"
        "remove:\n  - {op: MatMul}\ndeny:\n  - {op: MatMul, why: w}\n",
        "2.yaml",
    )
    assert listed(load_lists([first, second], environ={}), "MatMul") == "deny"


def test_node_rules_are_read(tmp_path: Path) -> None:
    text = ALLOW_MATMUL + (
        "nodes:\n  - {node: /a/Pow_3, variable: T, list: deny, why: measured}\n"
        "  - {node: b, list: deny, why: overflow}\n"
    )
    rules = load(tmp_path, text).node_rules
    assert [(r.node, r.variable, r.list, r.why) for r in rules] == [
        ("/a/Pow_3", "T", ListName.DENY, "measured"),
        ("b", None, ListName.DENY, "overflow"),
    ]
    assert rules[0].where == f"{tmp_path / 'mine.yaml'}:7"


def test_a_node_is_named_exactly_and_a_reason_in_one_line(tmp_path: Path) -> None:
    text = ALLOW_MATMUL + 'nodes:\n  - {node: "a\\n  b", list: deny, why: "much\\n  too large"}\n'
    (rule,) = load(tmp_path, text).node_rules
    assert (rule.node, rule.why) == ("a\n  b", "much too large")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r":1: not readable as YAML"),
        ("- a\n", r":1: not an op list; found a list"),
        (HEAD + "alow: []\n", r":4: unknown key; found alow; expected allow, if that is meant"),
        (HEAD + "version: 1\n", r":4: the same key twice; found version"),
        (HEAD + "1: 2\n", r":4: a key is not text; found 1"),
        (HEAD + "extend: 2024-01-01\n", r":4: unexpected kind of value; found a date"),
        (HEAD + "allow: &a []\ndeny: *a\n", r":5: not readable as YAML: aliases are not allowed"),
        (HEAD + "extend: !!python/name:os.system\n", r":4: not readable as YAML: could not determ"),
        (HEAD + 'extend: !!int ""\n', r":4: not readable as YAML: IndexError"),
        (HEAD + "extend: !!bool x\n", r":4: not readable as YAML: KeyError"),
        (HEAD + "extend: !!timestamp x\n", r":4: not readable as YAML: AttributeError"),
        (HEAD + "extend: 2024-99-99\n", r":4: not readable as YAML: ValueError: month"),
        ("[" * 5000, r"nested too deeply"),
        ("\x00", r"not readable as YAML"),
        ("precision: float16\ntarget: cuda\n", r":1: unknown version; found nothing"),
        (HEAD.replace("1", "2", 1), r":1: unknown version; found 2; expected version: 1"),
        (HEAD.replace("float16", "fp16"), r":2: unknown precision; found 'fp16'; expected float16"),
        (HEAD.replace("cuda", "tpu"), r":3: unknown target; found 'tpu'; expected cuda or cpu"),
        (HEAD + "allow: 1\n", r":4: `allow` is not a list; found 1"),
        (HEAD + "allow:\n  - MatMul\n", r":5: not an entry; found 'MatMul'"),
        (allow("op: MatMul"), r":5: `why` is missing"),
        (allow("op: MatMul, why: 3"), r":5: `why` is not text; found 3"),
        (allow("op: MatMul, whi: w"), r":5: unknown key; found whi"),
        (allow("why: w"), r":5: an entry names its operator once"),
        (allow("op: A, ops: [B], why: w"), r":5: an entry names its operator once"),
        (allow("op: Matmul, why: w"), r":5: unknown operator; found Matmul; .*MatMul"),
        (allow("op: no, why: w"), r":5: an operator's name is not text; found False"),
        (HEAD + "allow:\n  - op: MatMul\n    domain: 3\n    why: w\n", r":6: `domain` is not text"),
        (allow("op: Pad, since: 0, why: w"), r":5: `since` is not an opset; found 0"),
        (allow("op: Pad, until: x, why: w"), r":5: `until` is not an opset"),
        (allow("op: Pad, since: 999, why: w"), r":5: `since` is newer than every"),
        (allow("op: Pad, since: 9, until: 8, why: w"), r":5: empty opset range; found 9 to 8"),
        (allow("op: Pad, when: 3, why: w"), r":5: `when` is not a mapping; found 3"),
        (
            allow("op: Pad, when: {modes: a}, why: w"),
            r":5: Pad has no attribute of this name; found modes; expected .*mode",
        ),
        (
            allow("op: Pad, when: {mode: 3}, why: w"),
            r":5: impossible value of mode; found 3; expected type STRING",
        ),
        (allow("op: Pad, when: {mode: []}, why: w"), r":5: `mode` has no values"),
        (
            HEAD + "infer:\n  - {op: Tanh, only_between: 3, why: w}\n",
            r":5: `only_between` is no switch; found 3; expected true or false",
        ),
        (
            allow("op: MatMul, only_between: true, why: w"),
            r":5: `only_between` is about the infer list; found an entry of allow",
        ),
        (HEAD + "remove:\n  - {op: Pad}\n", r":5: nothing to remove; found Pad is not on any list"),
        (HEAD + "remove:\n  - {op: Pad, list: gray}\n", r":5: unknown list; found gray"),
        (HEAD + "no_kernel:\n  - {op: Pad, why: w}\n", r":5: a missing kernel is explained for"),
        (
            HEAD + "nodes:\n  - {node: n, list: clear, why: w}\n",
            r":5: a node rule's list; found clear",
        ),
        (HEAD + "nodes:\n  - {list: deny, why: w}\n", r":5: `node` is missing"),
        (HEAD + "extend: nowhere.yaml\n", r":4: the list cannot be read"),
        (HEAD + "extend: mine.yaml\n", r"a list extends itself; found .* -> .*mine.yaml"),
        (
            ALLOW_MATMUL + "  - {op: MatMul, why: again}\n",
            r":6: MatMul is on the allow list twice; found the other entry at .*:5",
        ),
        (
            ALLOW_MATMUL + "deny:\n  - {op: MatMul, why: again}\n",
            r"conflicting entries: MatMul is on the .* list \(.*mine.yaml:\d\) and on the .*:\d\)",
        ),
        (HEAD.replace("float16", "bfloat16"), r"the list is for another precision; found bfloat16"),
        (HEAD.replace("cuda", "cpu"), r"the list is for another target; found cpu; expected cuda"),
    ],
)
def test_a_wrong_file_says_what_and_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ListError, match=message) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert caught.value.where is not None


def test_disjoint_conditions_on_two_lists_are_no_conflict(tmp_path: Path) -> None:
    text = HEAD + (
        "allow:\n  - {op: Resize, when: {mode: nearest}, why: a}\n"
        "deny:\n  - {op: Resize, when: {mode: [linear, cubic]}, why: b}\n"
    )
    assert listed(load(tmp_path, text), "Resize", 18, mode="cubic") == "deny"
    with pytest.raises(ListError, match="conflicting entries"):
        load(tmp_path, text.replace("linear, cubic", "nearest, cubic"))


_WORDS = st.one_of(
    st.sampled_from(["version", "precision", "float16", "target", "cuda", "extend", "allow", "op"]),
    st.sampled_from(["remove", "ops", "when", "why", "MatMul", "Pad", "mode", "since", "nodes"]),
    st.sampled_from(["1", "~", ": ", "\n", "  ", "- ", "{", "}", "[", "]", ",", "&a ", "*a", "<<"]),
    st.sampled_from(
        [
            "!!int ",
            "!!bool ",
            "!!timestamp ",
            "!!set ",
            '"',
            "'",
            "#",
            "|",
            "2024-01-01",
            "2024-99-99",
            "0x",
            "0b",
            "1:99",
        ]
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.text(), st.lists(_WORDS).map("".join)))
def test_any_text_parses_or_says_what_is_wrong_with_it(text: str) -> None:
    parsed = parse.parse(text, "t.yaml")
    assert all(p.where and p.where.startswith("t.yaml") for p in parsed.problems)
    assert parsed.problems or text.strip()  # an empty file lacks its version


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
    assert [entry.list for entry in common_entries(*lists)] == [expected]
    assert [entry.list for entry in common_entries(*lists[::-1])] == [expected]


def test_conditions_of_both_must_hold() -> None:
    mode = Condition("mode", ("nearest", "linear"))
    one = Entry("Resize", "", CLEAR, "a", since=11, when=(mode,))
    other = Entry(
        "Resize", "", INFER, "b", since=13, until=18, when=(Condition("mode", ("linear",)),)
    )
    (found,) = common_entries([one], [other])
    assert (found.since, found.until, found.list) == (13, 18, INFER)
    assert found.applies(14, {"mode": "linear"})
    assert not found.applies(14, {"mode": "nearest"})
    assert not found.applies(19, {"mode": "linear"})
    apart = Entry("Resize", "", INFER, "b", when=(Condition("mode", ("cubic",)),))
    assert common_entries([one], [apart]) == []


def test_a_list_for_another_target_is_refused() -> None:
    with pytest.raises(ListError, match="for another target; found cpu; expected cuda or webgpu"):
        amp.load_lists("float16_cpu", target="cuda,webgpu")
