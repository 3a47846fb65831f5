"""Another tool's file beside ours: its types by node, found by names."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from page_models import BRANCHES, bare_evidence, result_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import LoadError
from amp_rewrite.page.comparison import Other, types_in
from amp_rewrite.page.page_data import page_data


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "other.onnx"
    onnx.save(model, path)
    return path


def by_name(result: amp.RewriteResult, types: tuple[str | None, ...]) -> dict[str, str | None]:
    return dict(zip(result.flat.node_names, types, strict=True))


def test_the_types_in_our_own_file_are_those_of_the_rewrite(tmp_path: Path) -> None:
    result = result_of(BRANCHES)
    amp.save(result.model, tmp_path / "ours.onnx")
    types = types_in(result, tmp_path / "ours.onnx")
    other = Other("ours.onnx", 1, types)
    data = page_data(result, result.report, bare_evidence(), other)["comparison"]
    assert data["ours"] == data["theirs"]
    assert {"float16", "float32"} <= set(types)


def test_a_file_that_changed_nothing_has_float32_everywhere(tmp_path: Path) -> None:
    result = result_of(BRANCHES)
    types = types_in(result, saved(parse(BRANCHES), tmp_path))
    assert set(types) == {"float32"}


def test_nodes_without_a_name_are_found_by_what_they_make(tmp_path: Path) -> None:
    model = parse(BRANCHES)
    for node in model.graph.node:
        node.name = ""
    result = result_of(BRANCHES)
    found = by_name(result, types_in(result, saved(model, tmp_path)))
    assert found["enc/dot"] == "float32"


def test_what_the_other_file_lacks_or_computes_by_another_operator_is_not_compared(
    tmp_path: Path,
) -> None:
    model = parse(BRANCHES)
    first = model.graph.node[1]
    assert first.name == "enc/act"
    first.op_type = "Sigmoid"
    result = result_of(BRANCHES)
    found = by_name(result, types_in(result, saved(model, tmp_path)))
    assert found["enc/act"] is None
    assert found["enc/dot"] == "float32"


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(b"\x00not a model")
    with pytest.raises(LoadError):
        types_in(result_of(BRANCHES), tmp_path / "other.onnx")


def test_without_another_file_nothing_is_said_of_one() -> None:
    result = result_of(BRANCHES)
    assert page_data(result, result.report, bare_evidence())["comparison"] is None
