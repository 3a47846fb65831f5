"""Names are data: whatever they hold, a terminal shows them, and files give them back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.base.printable import printable
from amp_rewrite.cli.main import main

NAMES = {
    "escape": "\x1b[31mred\x1b[0m",
    "line-break": "n\namp-rewrite: all is well",
    "carriage-return": "n\rwrote",
    "null": "a\x00b",
    "direction": "abc\u202etxt.exe\u2066",
    "c1": "a\x9b31mb",
    "closing-markup": "[/bar]",
    "markup": "[bold red]x[/bold red]",
    "emoji": ":smile:",
    "quotes": "\"a\" 'b' `c` \\",
    "yaml": "- a: {b: [c]} # d",
    "html": "<script>alert(1)</script>&amp;",
    "not-ascii": "né→ß注意",
}
ROOT = Path(amp.__file__).parents[1]


def model(name: str) -> onnx.ModelProto:
    """Return a model whose nodes, weight and inner values have a name; it can be part float16."""
    helper, weight = onnx.helper, onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), name)
    nodes = [
        helper.make_node("MatMul", ["x", name], [f"h{name}"], f"first{name}"),
        helper.make_node("Exp", [f"h{name}"], [f"e{name}"], f"second{name}"),
        helper.make_node("MatMul", [f"e{name}", name], ["y"], f"third{name}"),
    ]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, ir_version=8, opset_imports=[opset])


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


@pytest.fixture
def folder(tmp_path: Path, name: str) -> Path:
    onnx.save(model(name), tmp_path / "in.onnx")
    np.savez(tmp_path / "data.npz", x=np.full((2, 4), 3, np.float32))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Return the exit status and all that a command printed; require that it is harmless."""
    with pytest.raises(SystemExit) as done:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert all(line == printable(line) for line in text.split("\n"))
    assert "internal error" not in text
    status = done.value.code
    return (status if isinstance(status, int) else 0), text


def test_convert_and_its_report(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    out, report = folder / "out.onnx", folder / "report.json"
    assert run(capsys, "convert", folder / "in.onnx", "-o", out, "--report", report)[0] == 0
    names = [node["name"] for node in json.loads(report.read_text("utf-8"))["nodes"]]
    assert names == [f"first{name}", f"second{name}", f"third{name}"]
    assert all(line == printable(line) for line in report.read_text("utf-8").split("\n"))
    onnx.checker.check_model(onnx.load(out), full_check=True)


def test_explain_says_one_line_a_node(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    status, text = run(capsys, "explain", folder / "in.onnx", f"second{name}", f"third{name}")
    assert status == 0
    assert [line.split(" (")[0] for line in text.splitlines()] == [
        printable(f"second{name}"),
        printable(f"third{name}"),
    ]


def test_errors_name_a_node_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    status, text = run(capsys, "explain", folder / "in.onnx", f"nothing{name}")
    assert status == 2
    assert len(text.splitlines()) == 1
    deny = run(capsys, "convert", folder / "in.onnx", "-o", folder / "o.onnx", "--deny-node", "(")
    assert deny[0] == 2
    assert len(deny[1].splitlines()) == 1


@pytest.mark.share(7)
def test_checks_and_searches_give_the_names_back(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    pytest.importorskip("onnxruntime")
    source, data, out = folder / "in.onnx", folder / "data.npz", folder / "out.onnx"
    run(capsys, "convert", source, "-o", out, "--allow-node", "second*")
    assert run(capsys, "verify", source, out, "--data", data)[0] in (0, 1, 4)
    report = folder / "localise.json"
    assert run(capsys, "localise", source, "--data", data, "--report", report)[0] in (0, 1)
    contributions = json.loads(report.read_text())["contributions"]
    assert f"first{name}" in {row["node"] for row in contributions}
    assert run(capsys, "calibrate", source, "--data", data, "-o", folder / "c.yaml")[0] == 0
    deny = ["tune", source, "--data", data, "-o", folder / "t.yaml", "--budget", "20"]
    assert run(capsys, *deny)[0] in (0, 1)


@pytest.mark.skipif(not (ROOT / "lists").is_dir(), reason="not a checkout")
def test_a_checkout_runs_without_being_installed(tmp_path: Path) -> None:
    (tmp_path / "amp_rewrite").symlink_to(ROOT / "amp_rewrite")
    (tmp_path / "lists").symlink_to(ROOT / "lists")
    onnx.save(model("n"), tmp_path / "in.onnx")
    hide = "import sys; sys.modules['amp_rewrite.lists'] = None; "
    script = f"{hide}from amp_rewrite.cli.main import main; main()"
    command = [sys.executable, "-c", script, "convert", "in.onnx", "-o", "out.onnx"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.onnx").exists()


def test_a_name_of_thousands_of_characters_is_shortened(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    m (float[2,4] x) => (float[2,4] y) { h = Exp(x) y = Relu(h) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.node[0].name = f"begin{'n' * 5000}end"
    onnx.save(proto, tmp_path / "m.onnx")
    status, said = run(capsys, "explain", tmp_path / "m.onnx")
    assert status == 0
    assert "begin" in said
    assert "end (Exp)" in said
    assert max(map(len, said.splitlines())) < 1000
