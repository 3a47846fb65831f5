"""Operators that no schema knows, as op lists describe them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.errors import ListError, OptionError
from amp_rewrite.graph.custom import CustomOperator
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.oplists import load_lists

W = "<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>"
TEXT = f"""g (float[N,4] x, float[1] t, int64[1] k) => (float[N,4] y) {W} {{
  a = MatMul(x, w)
  b, c = plug.Attn<heads = 2>(a, k, t, a)
  y = MatMul(b, w) }}"""


def model(text: str = TEXT) -> onnx.ModelProto:
    made = parse(text)
    made.opset_import.add(domain="plug", version=1)
    return made


def written(made: onnx.ModelProto, **options: Any) -> list[str]:
    result = amp.to_proto(amp.rewrite(made, **options).model)
    return [f"{n.op_type} {' '.join(n.input)}" for n in result.graph.node]


def listed(folder: Path, entry: str, name: str = "allow", head: str = "") -> list[str | Path]:
    path = folder / "plug.yaml"
    path.write_text(
        f"version: 1\nprecision: float16\ntarget: any\n{head}{name}:\n"
        f"  - {{op: Attn, domain: plug, why: a kernel{entry}}}\n"
    )
    return ["float16_cuda", path]


def test_an_operator_on_no_list_is_a_boundary() -> None:
    (called,) = [line for line in written(model()) if line.startswith("Attn")]
    assert called.split()[3] == "t", "nothing else is known to take float32"
    assert called.count("CastToFp32") == 2


@pytest.mark.parametrize("name", ["allow", "infer", "clear"])
def test_a_listed_one_computes_low_and_all_its_float_inputs_have_one_type(
    name: str, tmp_path: Path
) -> None:
    made = written(model(), lists=listed(tmp_path, "", name))
    (called,) = [line.split() for line in made if line.startswith("Attn")]
    assert called[1] == called[4] == "a"
    assert called[2] == "k"
    assert called[3] != "t", "it is cast"
    assert len([line for line in made if line.startswith("Cast")]) == 3, made


def test_a_denied_one_stays_float32(tmp_path: Path) -> None:
    report = amp.rewrite(model(), lists=listed(tmp_path, "", "deny")).report
    node = next(n for n in report.nodes if n.op == "Attn")
    assert {v.reason for v in node.variables.values()} == {"denied-by-user"}


def test_allow_op_does_the_same_for_one_run(tmp_path: Path) -> None:
    by_list = written(model(), lists=listed(tmp_path, ""))
    assert written(model(), allow_ops=["plug::Attn"]) == by_list


LOW = f"""<ir_version: 8, opset_import: ["" : 17, "plug" : 1]>
  g (float16[N,4] x, int64[1] k, float[N,4] f) => (float[N,4] y)
  <float16[4,4] w = {{{",".join(["15360", "0", "0", "0", "0"] * 3 + ["15360"])}}}> {{
  a = MatMul(x, w)
  b = plug.Attn(a, k)
  l = Softplus(b)
  s = Exp(l)
  r = MatMul(s, w)
  m = Cast<to = 1>(r)
  y = Add(m, f) }}"""
"""A file in 16 bits: a kernel of somebody's, and an Exp that has no place in float16."""


def test_repair_and_check_know_what_comes_out_of_a_listed_operator(tmp_path: Path) -> None:
    given = onnx.parser.parse_model(LOW)
    for options in ({"allow_ops": ["plug::Attn"]}, {"lists": listed(tmp_path, "")}):
        ways: dict[str, Any] = {"target": "cuda", **options}
        found = amp.check(given, run=False, **ways)
        made = amp.repair(given, **ways)
        assert "Exp" in {danger.op for danger in found.dangers}
        assert "Exp" in {danger.op for danger in made.dangers}
        nodes = {n.op_type: n for n in amp.to_proto(made.model).graph.node}
        assert list(nodes["Attn"].input) == ["a", "k"], "the kernel reads what it read"
        onnx.checker.check_model(amp.to_proto(made.model))
        flat = read_flat(amp.to_proto(made.model))
        flat.customs = {("plug", "Attn"): CustomOperator()}
        (exp,) = flat.nodes_of("Exp")
        assert infer(flat)[flat.outputs_of(exp)[0]] == "tensor(float)"


@pytest.mark.parametrize("way", ["lists", "allow_ops", "command"])
def test_widen_gives_a_listed_operator_float32(way: str, tmp_path: Path) -> None:
    given, path = onnx.parser.parse_model(LOW), tmp_path / "wide.onnx"
    onnx.save(given, tmp_path / "low.onnx")
    assert any(n.op_type == "Cast" for n in amp.widen(given, keep_io_types=False).model.graph)
    if way == "command":
        words = ("--precision", "float32", "--no-keep-io-types", "--allow-op", "plug::Attn")
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(tmp_path / "low.onnx"), "-o", str(path), *words, "--quiet"])
    else:
        options: dict[str, Any] = {
            "lists": {"lists": listed(tmp_path, "")},
            "allow_ops": {"allow_ops": ["plug::Attn"]},
        }[way]
        amp.widen(given, keep_io_types=False, **options).save(path)
    model = amp.load(path)
    assert not [n for n in model.graph if n.op_type == "Cast"]
    assert {str(value.dtype) for value in model.graph.inputs} == {"FLOAT", "INT64"}


def test_inputs_may_stay_float32(tmp_path: Path) -> None:
    made = written(model(), lists=listed(tmp_path, ", float32: [2]"))
    assert "Attn a k t a" in made
    assert len([line for line in made if line.startswith("Cast")]) == 2


def test_results_are_like_the_first_input_unless_the_list_says_otherwise(tmp_path: Path) -> None:
    text = TEXT.replace("y = MatMul(b, w)", "i = Cast<to = 1>(c) z = Add(b, i) y = MatMul(z, w)")
    result = amp.rewrite(model(text), lists=listed(tmp_path, ", outputs: [0, int64]"))
    types = result.context.type_graph.types
    names = result.flat.value_names
    assert [types[names.index(n)] for n in "bc"] == ["tensor(float)", "tensor(int64)"]


def test_a_low_model_with_such_an_operator_is_read(tmp_path: Path) -> None:
    lists = listed(tmp_path, "")
    amp.save(amp.rewrite(model(), lists=lists), tmp_path / "low.onnx")
    result = amp.rewrite(tmp_path / "low.onnx", lists=lists)
    assert not result.changed


WRONG = {
    "a type that there is not": (", outputs: [0, float33]", "unknown type; found float33"),
    "a port that there is not": (", outputs: [-1]", "`outputs` is not a list of ports"),
    "no ports": (", float32: {a: 1}", "`float32` is not a list of ports"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_list_says_of_ports_is_checked(name: str, tmp_path: Path) -> None:
    entry, expected = WRONG[name]
    with pytest.raises(ListError, match=expected):
        load_lists(listed(tmp_path, entry))


def test_ports_of_an_operator_with_a_schema_are_not_said(tmp_path: Path) -> None:
    path = tmp_path / "l.yaml"
    path.write_text(
        "version: 1\nprecision: float16\ntarget: any\n"
        "allow:\n  - {op: Tan, outputs: [0], why: Because.}\n"
    )
    with pytest.raises(ListError, match="Tan has a schema"):
        load_lists(["float16_cuda", path])


def test_an_operator_that_its_domain_lacks_is_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.yaml"
    path.write_text(
        "version: 1\nprecision: float16\ntarget: any\n"
        "allow:\n  - {op: Atn, domain: com.microsoft, why: Because.}\n"
    )
    with pytest.raises(ListError, match="unknown operator; found com"):
        load_lists(["float16_cuda", path])


def test_allowed_and_denied_at_once_is_an_error() -> None:
    with pytest.raises(OptionError, match="both allowed and denied; found plug::Attn"):
        amp.rewrite(model(), allow_ops=["plug::Attn"], deny_ops=["plug::Attn"])


def test_an_allowed_operator_that_the_model_lacks_is_an_error() -> None:
    with pytest.raises(OptionError, match="allow_ops names nothing in the model"):
        amp.rewrite(model(), allow_ops=["plug::Atn"])
