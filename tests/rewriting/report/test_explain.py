"""Notes for viewers: in the file, on every node with floats, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from page_models import BRANCHES
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.metadata_keys import PRECISION_KEY, REASON_KEY

FUNCTION = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{ ["enc/dot"] a = MatMul(x, w) y = local.f(a, w) }
<domain: "local", opset_import: ["" : 18]> f (p, q) => (r) { s = MatMul(p, q) r = Relu(s) }"""


def notes_of(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {n.name: {e.key: e.value for e in n.metadata_props} for n in model.graph.node}


@pytest.mark.parametrize("text", [BRANCHES, FUNCTION])
@pytest.mark.parametrize("kind", ["file", "object"])
def test_what_is_saved_has_the_notes(kind: str, text: str, tmp_path: Path) -> None:
    onnx.save(parse(text), tmp_path / "in.onnx")
    source = tmp_path / "in.onnx" if kind == "file" else amp.load(tmp_path / "in.onnx")
    result = amp.rewrite(source)
    before = result.model
    result.annotate()
    result.save(tmp_path / "out.onnx")
    notes = notes_of(onnx.load(tmp_path / "out.onnx"))
    assert notes["enc/dot"][PRECISION_KEY] == "float16"
    assert notes["enc/dot"][REASON_KEY].startswith("allow-list: it is on the allow list: ")
    assert before is not None
    assert notes_of(amp.to_proto(result.model)) == notes
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


def test_a_chain_names_where_it_came_from(tmp_path: Path) -> None:
    result = amp.rewrite(parse(BRANCHES))
    result.annotate()
    notes = notes_of(amp.to_proto(result.model))
    assert notes["norm/add"][PRECISION_KEY] == "float32"
    assert "denied, reached forward from norm/" in notes["norm/add"][REASON_KEY]
    added = [n.name for n in result.model.graph if n.op_type == "Cast"]
    assert added
    assert all(notes[name or ""] == {} for name in added)


def test_notes_are_replaced_and_others_stay(tmp_path: Path) -> None:
    model = parse(BRANCHES)
    model.graph.node[0].metadata_props.add(key=PRECISION_KEY, value="old")
    model.graph.node[0].metadata_props.add(key="other", value="kept")
    onnx.save(model, tmp_path / "in.onnx")
    result = amp.rewrite(tmp_path / "in.onnx")
    result.annotate()
    result.save(tmp_path / "out.onnx")
    notes = notes_of(onnx.load(tmp_path / "out.onnx"))["enc/dot"]
    assert (notes[PRECISION_KEY], notes["other"]) == ("float16", "kept")
