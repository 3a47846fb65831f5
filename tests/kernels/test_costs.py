"""Tables of what operators and casts take."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite import RewriteOptions, targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
from amp_rewrite.errors import KernelTableError, OptionError
from amp_rewrite.kernels import cost_files as costs

TABLE: dict[str, Any] = {
    "version": 1,
    "runtime": "a runtime",
    "device": "a device",
    "source": "this test",
    "provider": "OpenVINO",
    "driver": "",
    "families": {"product": ["MatMul", "Gemm"], "elementwise": ["Add", "com.microsoft::Gelu"]},
    "costs": [
        {"family": "product", "type": "float32", "from": 1000, "call": 5, "mac": 0.02},
        {"family": "product", "type": "float32", "call": 2, "element": 0.01, "mac": 0.1},
        {"family": "product", "type": "bfloat16", "call": 3, "mac": 0.01},
        {"family": "elementwise", "type": "float32", "call": 1, "element": 0.25},
    ],
    "casts": [
        {"to": "bfloat16", "producer": "none", "consumer": "elementwise", "call": 1},
        {"to": "bfloat16", "producer": "*", "consumer": "*", "call": 2, "element": 0.5},
    ],
    "joins": [
        {
            "producer": "product",
            "consumer": "elementwise",
            "saves": {"float32": {"call": 1, "element": 0.25}},
        }
    ],
}


def test_a_node_costs_by_family_type_and_size() -> None:
    table = costs.parse(TABLE, "t")
    assert (table.family("Gemm"), table.family("com.microsoft::Gelu")) == ("product", "elementwise")
    assert table.node("product", FLOAT32, 10, 100) == pytest.approx(2 + 0.1 + 10)
    assert table.node("product", FLOAT32, 10, 1000) == pytest.approx(5 + 20)
    assert table.node("elementwise", FLOAT32, 8) == pytest.approx(3)
    assert table.node(table.family("Sin"), FLOAT32, 8) == 0


def test_a_family_without_both_types_is_not_weighed() -> None:
    table = costs.parse(TABLE, "t")
    assert table.is_weighed("product", BFLOAT16)
    assert not table.is_weighed("elementwise", BFLOAT16)
    assert (table.takes_low(BFLOAT16), table.takes_low(FLOAT16)) == (True, False)


def test_the_first_row_of_casts_that_fits_counts() -> None:
    table = costs.parse(TABLE, "t")
    assert table.cast(BFLOAT16, "none", "elementwise").takes(100) == 1
    assert table.cast(BFLOAT16, "product", "elementwise").takes(100) == 52
    assert table.cast(FLOAT32, "product", "elementwise").takes(100) == 0


def test_a_join_saves_by_type() -> None:
    table = costs.parse(TABLE, "t")
    saved = table.join("product", "elementwise", FLOAT32)
    assert saved is not None
    assert saved.takes(4) == 2
    assert table.join("product", "elementwise", BFLOAT16) is None
    assert table.join("elementwise", "product", FLOAT32) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "unknown format"),
        ({"families": {"product": ["Add"], "elementwise": ["Add"]}}, "of two families"),
        ({"casts": [{"to": "bfloat16", "producer": "softmax", "consumer": "*"}]}, "is no family"),
        ({"costs": [{"family": "product", "type": "float32", "call": -1}]}, "a negative cost"),
    ],
)
def test_a_table_that_is_wrong_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises((KernelTableError, ValueError), match=said):
        costs.parse({**copy.deepcopy(TABLE), **change}, "t")


def test_a_table_that_is_not_there_is_an_error_with_its_name() -> None:
    with pytest.raises(KernelTableError, match=r"nowhere\.json: the table of costs cannot"):
        costs.load("nowhere")


def test_targets_without_a_table_have_no_costs() -> None:
    assert costs.of_target(targets.find("cuda"), BFLOAT16) is None


@pytest.mark.parametrize(
    ("instructions", "name"),
    [
        (("avx512_bf16", "amx_bf16"), "openvino_2026.4_amx"),
        (("avx512f", "avx512_bf16"), "openvino_2026.4_avx512_bf16"),
        (("bf16",), "openvino_2026.4_avx512_bf16"),
        ((), "openvino_2026.4_avx512_bf16"),
    ],
)
def test_the_table_is_that_of_the_processor(
    instructions: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "onednn_instructions", lambda: instructions)
    table = costs.of_target(targets.find("openvino"), BFLOAT16)
    assert table is not None
    assert table.name == name
    options = RewriteOptions(target="openvino", precision="bfloat16", costs="openvino_2026.4_amx")
    chosen = options.cost_table
    assert chosen is not None
    assert chosen.name == "openvino_2026.4_amx", "a table of the package can be named"


def written(folder: Path, **change: Any) -> Path:
    path = folder / "costs.json"
    path.write_text(json.dumps({**TABLE, **change}), "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "it holds a list"),
        ("{}", "no key 'version'"),
        ('{"version": 7}', "unknown format of a table of costs; found 7; expected 1"),
        ('{"version": 1}', "no key 'families'"),
        (json.dumps({**TABLE, "provider": 3}), "provider is 3, not a text"),
        (json.dumps({**TABLE, "costs": 3}), "costs is no list"),
        (
            json.dumps({**TABLE, "casts": [{"to": "int8", "producer": "*", "consumer": "*"}]}),
            "int8",
        ),
        (json.dumps(TABLE).replace("0.02", "NaN"), r"costs\[0\]: a negative cost, or none: nan"),
        (json.dumps(TABLE).replace("0.02", "true"), r"costs\[0\]: True is no number"),
        (json.dumps({**TABLE, "nodes": [{"result": "y", "float32": 1}]}), "no key 'model'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text, "utf-8")
    with pytest.raises(KernelTableError, match=said) as caught:
        costs.read_costs(str(path))
    assert str(caught.value).startswith(str(path))
    assert "measure-costs" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    first = costs.read_costs(str(written(tmp_path)))
    assert costs.read_costs(str(tmp_path / "costs.json")) is first
    assert costs.read_costs(str(written(tmp_path, device="another"))).device == "another"


def test_a_table_is_written_as_it_was_read(tmp_path: Path) -> None:
    nodes = [{"result": "h", "float32": 4.5, "bfloat16": 2.0}]
    more = {"nodes": nodes, "together": [["h", "y"]], "model": {"nodes": 2, "digest": "abc"}}
    table = costs.read_costs(str(written(tmp_path, **more)))
    path = tmp_path / "again.json"
    path.write_text(costs.to_text(costs.to_json(table, nodes_of=2)), "utf-8")
    again = costs.read_costs(str(path))
    for name in ("families", "rates", "casts", "joins", "nodes", "together", "model", "provider"):
        assert getattr(again, name) == getattr(table, name), name


def test_costs_of_another_provider_type_or_model_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(OptionError, match=r"costs\.json.*another provider.*CUDAExecutionProvider"):
        RewriteOptions(costs=path)
    other = written(tmp_path, provider="CUDAExecutionProvider")
    with pytest.raises(OptionError, match="the costs say nothing of float16"):
        RewriteOptions(costs=other)
    assert RewriteOptions(costs=other, precision="bfloat16", prefer="accuracy").cost_table
    more = {"nodes": [{"result": "h", "float32": 4, "bfloat16": 2}], "model": {"digest": "abc"}}
    strange = written(tmp_path, provider="CUDAExecutionProvider", **more)
    model = parse("g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    with pytest.raises(OptionError, match="of the nodes of another model"):
        amp.rewrite(model, costs=strange, precision="bfloat16")
    with pytest.raises(OptionError, match="costs must be a file"):
        RewriteOptions(costs=3)  # pyright: ignore[reportArgumentType] users pass anything
