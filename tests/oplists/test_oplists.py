"""Op lists: what the built-in ones say, the environment, the levels."""

from __future__ import annotations

import logging

import pytest

from amp_rewrite.errors import AmpWarning, ListError, OptionError
from amp_rewrite.oplists import ListName, OpLists, load_lists


def listed(lists: OpLists, op: str, opset: int = 18, **attributes: object) -> str | None:
    domain, _, name = op.rpartition("::")
    entry = lists.classify(domain, name, opset, attributes)
    return None if entry is None else entry.list.value


@pytest.mark.parametrize(
    ("precision", "target", "op", "expected"),
    [
        ("float16", "cuda", "MatMul", "allow"),
        ("float16", "cuda", "LSTM", "allow"),
        ("float16", "cuda", "ReduceMean", "deny"),
        ("float16", "schema", "ReduceMean", "deny"),
        ("float16", "cuda", "Softmax", "infer"),
        ("float16", "cuda", "Relu", "clear"),
        ("float16", "cuda", "Sin", "unlisted"),
        ("float16", "cuda", "com.microsoft::GroupQueryAttention", "allow"),
        ("float16", "cuda", "com.microsoft::GatherBlockQuantized", "clear"),
        ("float16", "cuda", "com.microsoft::QMoE", "allow"),
        ("float16", "cpu", "com.microsoft::QMoE", "unlisted"),
        ("float16", "webgpu", "com.microsoft::QMoE", "unlisted"),
        ("bfloat16", "cuda", "ReduceMean", "infer"),
        ("bfloat16", "schema", "Conv", "allow"),
        ("bfloat16", "cuda", "LSTM", "unlisted"),
        ("float16", "cpu", "LSTM", "unlisted"),
        ("float16", "cpu", "ReduceMean", "deny"),
        ("bfloat16", "cpu", "ReduceMean", "infer"),
        ("bfloat16", "cpu", "Attention", "unlisted"),
        ("float16", "webgpu", "MatMul", "allow"),
        ("float16", "webgpu", "LSTM", "unlisted"),
        ("float16", "webgpu", "ReduceMean", "deny"),
    ],
)
def test_built_in_lists_classify(precision: str, target: str, op: str, expected: str) -> None:
    lists = load_lists(precision=precision, target=target, environ={})
    assert listed(lists, op, 1 if "::" in op else 23) == expected
    assert (lists.precision, lists.target) == (precision, target)


def test_a_condition_takes_the_schema_default_of_a_missing_attribute() -> None:
    lists = load_lists(environ={})
    assert listed(lists, "Resize", 18) == "clear"
    assert listed(lists, "Resize", 18, mode="linear") == "clear"
    assert listed(lists, "Resize", 18, mode=b"cubic") == "infer"
    assert listed(lists, "BatchNormalization", 15) == "infer"
    assert listed(lists, "BatchNormalization", 15, training_mode=1) == "unlisted"


def test_a_condition_on_an_attribute_that_did_not_exist_yet_holds() -> None:
    lists = load_lists(environ={})
    assert listed(lists, "ScatterND", 11) == "clear"
    assert listed(lists, "ScatterND", 18, reduction="none") == "clear"
    assert listed(lists, "ScatterND", 18, reduction="add") == "unlisted"
    assert listed(lists, "BatchNormalization", 9) == "infer"


def test_the_environment_moves_an_operator() -> None:
    environ = {
        "AMP_REWRITE_ALLOWLIST_REMOVE": " MatMul ,",
        "AMP_REWRITE_DENYLIST_ADD": "MatMul, com.microsoft::Inverse",
    }
    lists = load_lists(environ=environ)
    entry = lists.classify("", "MatMul", 18, {})
    assert entry is not None
    assert entry.list == ListName.DENY
    assert entry.where == "environment AMP_REWRITE_DENYLIST_ADD"
    assert listed(lists, "com.microsoft::Inverse", 1) == "deny"


def test_the_older_names_apply_after_the_new_ones() -> None:
    environ = {
        "AMP_REWRITE_ALLOWLIST_REMOVE": "MatMul",
        "AMP_REWRITE_WHITELIST_ADD": "MatMul",
        "AMP_REWRITE_BLACKLIST_REMOVE": "Exp",
        "AMP_REWRITE_GRAYLIST_ADD": "Exp",
    }
    lists = load_lists(environ=environ)
    assert (listed(lists, "MatMul"), listed(lists, "Exp")) == ("allow", "infer")


def test_an_operator_on_two_lists_is_an_error_that_says_how_to_move_it() -> None:
    message = (
        r"conflicting entries: MatMul is on the allow list \(lists/float16_cuda\.yaml:\d+\) and on "
        r"the deny list \(environment AMP_REWRITE_DENYLIST_ADD\).*"
        r"AMP_REWRITE_DENYLIST_ADD=MatMul and AMP_REWRITE_ALLOWLIST_REMOVE=MatMul"
    )
    with pytest.raises(ListError, match=message):
        load_lists(environ={"AMP_REWRITE_DENYLIST_ADD": "MatMul"})


def test_adding_an_operator_that_no_schema_knows_is_an_error_with_a_hint() -> None:
    with pytest.raises(OptionError, match=r"AMP_REWRITE_CLEARLIST_ADD: .* found Foo;"):
        load_lists(environ={"AMP_REWRITE_CLEARLIST_ADD": "Foo"})
    with pytest.raises(OptionError, match=r"found FastGelu; expected com\.microsoft::FastGelu"):
        load_lists(environ={"AMP_REWRITE_CLEARLIST_ADD": "FastGelu"})


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("AMP_REWRITE_LEVL", "did you mean AMP_REWRITE_LEVEL?"),
        ("AMP_REWRITE_DENYLIST", "did you mean AMP_REWRITE_DENYLIST_ADD or"),
        ("AMP_REWRITE_X", "see docs/op_lists.md"),
    ],
)
def test_a_variable_that_is_none_is_named_with_those_it_may_mean(name: str, answer: str) -> None:
    with pytest.warns(AmpWarning, match=f"{name} is not a variable of this package; {answer}"):
        load_lists(environ={name: "Exp"})


def test_removing_what_is_not_there_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "amp_rewrite"):
        lists = load_lists(environ={"AMP_REWRITE_ALLOWLIST_REMOVE": "Exp"})
    assert "AMP_REWRITE_ALLOWLIST_REMOVE: Exp is not on the allow list" in caplog.text
    assert lists.entries == load_lists(environ={}).entries


@pytest.mark.parametrize("level", ["TENSOR_CORES_ONLY", "tensor_cores_only", " Tensor_Cores_Only "])
def test_tensor_cores_only_empties_the_other_lists_and_ignores_their_overrides(level: str) -> None:
    environ = {"AMP_REWRITE_DENYLIST_ADD": "MatMul", "AMP_REWRITE_ALLOWLIST_ADD": "Softmax"}
    lists = load_lists(level=level, environ=environ)
    found = [listed(lists, op) for op in ("MatMul", "Exp", "Add", "Relu", "Softmax", "Sin")]
    assert found == ["allow", None, None, None, "allow", "unlisted"]
    assert lists.level == "TENSOR_CORES_ONLY"


@pytest.mark.parametrize(("precision", "target"), [("bfloat16", "cuda"), ("float16", "cpu")])
def test_tensor_cores_only_is_ignored_and_force_all_refused_without_them(
    precision: str, target: str
) -> None:
    lists = load_lists(precision=precision, target=target, level="TENSOR_CORES_ONLY", environ={})
    assert listed(lists, "Exp") == "deny"
    with pytest.raises(OptionError, match=f"UNSAFE_FORCE_ALL exists .* found {precision} on"):
        load_lists(precision=precision, target=target, level="UNSAFE_FORCE_ALL", environ={})


def test_treat_infer_as_deny_moves_infer_with_its_overrides() -> None:
    environ = {"AMP_REWRITE_LEVEL": "treat_infer_as_deny", "AMP_REWRITE_INFERLIST_ADD": "Sin"}
    lists = load_lists(environ=environ)
    found = [listed(lists, op) for op in ("Add", "Sin", "Exp", "MatMul", "Relu")]
    assert found == ["deny", "deny", "deny", "allow", "clear"]


def test_impossible_options_are_errors() -> None:
    with pytest.raises(
        OptionError, match="unknown level; found 'FAST'; expected default or TENSOR"
    ):
        load_lists(level="FAST", environ={})
    with pytest.raises(OptionError, match="unknown level; found 'fast'"):
        load_lists(environ={"AMP_REWRITE_LEVEL": "fast"})
    with pytest.raises(OptionError, match="unknown target; found 'tpu'; expected cuda or cpu"):
        load_lists(target="tpu", environ={})
    with pytest.raises(OptionError, match="unknown precision; found 'fp8'"):
        load_lists(precision="fp8", environ={})


def test_lists_by_name_follow_the_same_rules() -> None:
    lists = OpLists.from_names(allow=["MatMul", "com.microsoft::Attention"], clear=["Relu"])
    assert listed(lists, "com.microsoft::Attention", 1) == "allow"
    assert listed(lists.with_level("TENSOR_CORES_ONLY"), "Relu") is None
