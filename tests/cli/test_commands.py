"""The command line: every option, exit statuses, one line per error, and what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.cli.main import main

GRAPH = """<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>
g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> { %s }"""
PLAIN = GRAPH % "[dot] h = MatMul(x, w) [exp] e = Exp(h) [last] y = Relu(e)"
UNKNOWN = GRAPH % "[dot] h = MatMul(x, w) [foo] y = custom.Foo(h)"
NOTHING = GRAPH % "[exp] y = Exp(x)"
FUNCTION = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> { a = MatMul(x, w) y = local.f(a, w) }
<domain: "local", opset_import: ["" : 18]> f (p, q) => (r) { s = MatMul(p, q) r = Relu(s) }"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"plain": PLAIN, "unknown": UNKNOWN, "nothing": NOTHING, "function": FUNCTION}
    for name, text in texts.items():
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as done:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    status = done.value.code
    return (status if isinstance(status, int) else 0), captured.out, captured.err


def convert(
    capsys: pytest.CaptureFixture[str], folder: Path, *options: object, model: str = "plain"
) -> tuple[int, str, str]:
    return run(capsys, "convert", folder / f"{model}.onnx", "-o", folder / "out.onnx", *options)


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def test_convert_writes_a_model_and_says_so(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = (folder / "plain.onnx").read_bytes()
    status, out, err = convert(capsys, folder)
    assert (status, err) == (0, "")
    assert "1 of 3 float32 nodes in float16 for cuda" in out
    assert f"wrote {folder / 'out.onnx'}" in out
    assert (folder / "plain.onnx").read_bytes() == before
    onnx.checker.check_model(folder / "out.onnx", full_check=True)


def test_dry_run_writes_no_model_but_the_report(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    report = folder / "report.json"
    status, out, _ = convert(capsys, folder, "--dry-run", "--report", report)
    assert status == 0
    assert "nothing was written" in out
    assert not (folder / "out.onnx").exists()
    assert json.loads(report.read_text("utf-8"))["version"] == 1


@pytest.mark.parametrize(
    ("output", "options", "written"),
    [
        ("new/", [], "new/plain.fp16.onnx"),
        ("deep/er/", ["--precision", "bfloat16"], "deep/er/plain.bf16.onnx"),
        ("deep/er/low.onnx", [], "deep/er/low.onnx"),
        ("there", [], "there/plain.fp16.onnx"),
        ("plain", [], "plain"),
    ],
)
def test_a_folder_is_made_and_an_output_in_it_is_named_after_the_model(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    output: str,
    options: list[str],
    written: str,
) -> None:
    (folder / "there").mkdir()
    status, out, err = run(
        capsys, "convert", folder / "plain.onnx", "-o", f"{folder}/{output}", *options
    )
    assert (status, err) == (0, "")
    assert f"wrote {folder / written}" in out
    onnx.checker.check_model(folder / written)


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (["--data", "{f}/none.npz"], 1, "no such data"),
        (["--data", "{f}/text.npz"], 1, "the data cannot be read"),
        (["--data", "{f}/empty"], 1, "the folder holds no data"),
        (["--report", "{f}/plain.onnx/r.json"], 1, "the folder cannot be written"),
        (["--html", "{f}/empty"], 1, "the output is a folder"),
        (["--budget", "5s"], 2, "--budget has no effect without verification"),
        (["--rtol", "0.1"], 2, "--rtol has no effect without verification"),
    ],
)
def test_what_cannot_end_well_does_not_begin(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    status: int,
    message: str,
) -> None:
    (folder / "empty").mkdir()
    (folder / "text.npz").write_text("no archive")
    monkeypatch.setattr("amp_rewrite.numerics.convert.file.read_source", None)
    found = convert(capsys, folder, *(word.replace("{f}", str(folder)) for word in given))
    assert (found[0], found[1]) == (status, "")
    assert message in found[2]
    assert found[2].count("\n") == 1
    assert not (folder / "out.onnx").exists()


def test_the_file_of_the_weights_is_named_beside_the_model(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    text = "g (float[2,512] x) => (float[2,512] y) { [dot] y = MatMul(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    weights = np.ones((512, 512), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    settings: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save(model, folder / "large.onnx", location="large.data", **settings)
    out = convert(capsys, folder, model="large")[1]
    [data] = folder.glob("out.onnx.*.data")
    assert f"wrote {folder / 'out.onnx'} with its weights in {data.name} (keep both" in out


OPTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "precision": (["--precision", "bfloat16"], {"precision": "bfloat16"}),
    "target": (["--target", "schema"], {"target": "schema"}),
    "cpu": (["--target", "cpu"], {"target": "cpu"}),
    "level": (["--level", "unsafe_force_all"], {"level": "UNSAFE_FORCE_ALL"}),
    "lists": (["--lists", "float16_cuda"], {"lists": ["float16_cuda"]}),
    "no-keep-io-types": (["--no-keep-io-types"], {"keep_io_types": False}),
    "keep-io": (["--keep-io", "x"], {"keep_io_types": ["x"]}),
    "preserve": (["--preserve", "dot"], {"preserve": ["dot"]}),
    "deny-node": (["--deny-node", "d*"], {"deny_nodes": ["d*"]}),
    "allow-node": (["--allow-node", "exp", "--allow-node", "last"], {"allow_nodes": ["exp|last"]}),
    "deny-op": (["--deny-op", "Exp"], {"deny_ops": ["Exp"]}),
    "short": (
        ["--precision", "bf16", "--target", "SCHEMA"],
        {"precision": "bfloat16", "target": "schema"},
    ),
    "weights": (["--weights", "cast"], {"weights": "cast"}),
    "infer-after-allow": (["--no-infer-after-allow"], {"infer_after_allow": False}),
    "inline-functions": (["--inline-functions"], {"inline_functions": True}),
    "move-casts": (["--no-move-casts"], {"move_casts": False}),
    "variable": (["--variable", "x"], {"variables": ["x"]}),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_means_what_the_keyword_of_rewrite_means(
    name: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    given, keywords = OPTIONS[name]
    model = "function" if name == "inline-functions" else "plain"
    status, _, err = convert(capsys, folder, *given, model=model)
    assert (status, err) == (0, "")
    amp.rewrite(folder / f"{model}.onnx", **keywords).save(folder / "expected.onnx")
    assert (folder / "out.onnx").read_bytes() == (folder / "expected.onnx").read_bytes()


WRONG: dict[str, tuple[list[str], str]] = {
    "precision": (["--precision", "float8"], "pass --precision float16 or --precision bfloat16"),
    "target": (["--target", "gpu"], "unknown target; found 'gpu'"),
    "level": (["--level", "high"], "unknown level; found 'high'"),
    "weights": (["--weights", "drop"], "unknown weights; found 'drop'"),
    "lists": (["--lists", "none.yaml"], "none.yaml: the list cannot be read"),
    "preserve": (["--preserve", "nobody"], "--preserve names nothing in the model; found 'nobody'"),
    "deny-op": (["--deny-op", "SoftMax"], "--deny-op names nothing in the model"),
    "keep-io": (["--keep-io", "nobody"], "--keep-io names nothing in the model"),
    "deny-node": (["--deny-node", "re:("], "--deny-node: not a regular expression; found 're:('"),
    "allow-node": (["--allow-node", "nobody"], "--allow-node names nothing in the model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_line_in_the_command_line_s_words_and_leaves_no_file(
    name: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    given, message = WRONG[name]
    status, out, err = convert(capsys, folder, *given)
    assert (status, out) == (1 if name == "lists" else 2, "")
    assert err.startswith("amp-rewrite: ")
    assert message in err
    assert err.count("\n") == 1
    assert "_" not in err.partition("found")[0], "options have the names of the command line"
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize("report", ["plain.onnx/report.json", "."])
def test_an_unwritable_report_leaves_no_model_either(
    report: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, _, err = convert(capsys, folder, "--report", folder / report)
    assert status == 1
    assert err.count("\n") == 1
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("plain.onnx", "the report would overwrite a model"),
        ("out.onnx", "two outputs are one file"),
    ],
)
def test_the_report_may_not_overwrite_a_model(
    report: str, message: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = (folder / "plain.onnx").read_bytes()
    status, _, err = convert(capsys, folder, "--report", folder / report)
    assert status == 2
    assert message in err
    assert (folder / "plain.onnx").read_bytes() == before


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("unknown", [], "no op list knows custom::Foo (1 node)"),
        ("nothing", [], "nothing was converted"),
    ],
)
def test_strict_is_status_3_and_writes_nothing(
    model: str,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    status, _, err = convert(capsys, folder, "--strict", *options, model=model)
    assert status == 3
    assert f"amp-rewrite: --strict: {message}" in err
    assert not (folder / "out.onnx").exists()


def test_debug_shows_the_traceback(folder: Path) -> None:
    with pytest.raises(amp.AmpError, match="cannot be read"):
        main(["--debug", "convert", str(folder / "absent.onnx"), "-o", str(folder / "out.onnx")])


def test_a_defect_of_the_package_is_one_line_as_well(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("line one\nline two")

    monkeypatch.setattr("amp_rewrite.numerics.convert.file.rewrite", fail)
    status, _, err = convert(capsys, folder)
    assert status == 1
    assert err.startswith("amp-rewrite: internal error: RuntimeError: line one line two;")
    assert err.count("\n") == 1
    with pytest.raises(RuntimeError, match="line one"):
        main(["--debug", "convert", str(folder / "plain.onnx"), "-o", str(folder / "out.onnx")])


def test_explain_prints_one_line_per_node(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, out, err = run(capsys, "explain", folder / "plain.onnx")
    assert (status, err) == (0, "")
    assert [line.split(" (")[0] for line in out.splitlines()] == ["dot", "exp", "last"]


def test_free_dimensions_get_lengths_for_the_bytes_of_casts(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    free = onnx.parser.parse_model(PLAIN.replace("float[2,4] x", "float[N,4] x"))
    onnx.save(free, folder / "free.onnx")
    report = folder / "report.json"
    given = ("--dim", "N=100", "--report", report)
    assert convert(capsys, folder, *given, model="free")[0] == 0
    found = json.loads(report.read_text())
    assert found["summary"]["casts_of_unknown_size"] == 0
    assert 2400 in [cast["bytes"] for cast in found["casts"]]


def test_a_model_is_moved_to_a_newer_opset_first(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    text = PLAIN.replace('"" : 21', '"" : 11').replace(', "custom" : 1', "")
    onnx.save(onnx.parser.parse_model(text), folder / "old.onnx")
    report = folder / "report.json"
    given = ("--precision", "bfloat16", "--opset", "22", "--report", report)
    status, out, err = convert(capsys, folder, *given, model="old")
    assert (status, err) == (0, "")
    line = "converted the model from opset 11 to 22: the float32 outputs stayed the same"
    assert f"{line}; 16-bit arithmetic: 100.0 %, before 0.0 %\n" in out
    assert onnx.load(folder / "out.onnx").opset_import[0].version == 22
    record = json.loads(report.read_text())["opset_raised"]
    assert record == {
        "before": 11,
        "compute_before": 0.0,
        "unverified": None,
        "mended": [],
    }


def test_a_model_is_moved_to_where_arm_has_kernels(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 11]> g (float[1,4,8,8] x) => (float[1,4,7,7] y)'
        "<float[4,4,1,1] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>"
        "{ h = Conv(x, w) y = MaxPool<kernel_shape: ints = [2, 2]>(h) }"
    )
    onnx.save(onnx.parser.parse_model(text), folder / "old.onnx")
    assert convert(capsys, folder, "--target", "cpu-arm64", model="old")[::2] == (0, "")
    made = onnx.load(folder / "out.onnx")
    assert made.opset_import[0].version == 17
    assert operators(folder / "out.onnx") == ["Cast", "Conv", "MaxPool", "Cast"]
    given = ("--target", "cpu-arm64", "--opset", "keep")
    assert convert(capsys, folder, *given, model="old")[::2] == (0, "")
    kept = onnx.load(folder / "out.onnx")
    assert kept.opset_import[0].version == 11
    assert operators(folder / "out.onnx") == ["Cast", "Conv", "Cast", "MaxPool"]
    assert convert(capsys, folder, "--target", "webgpu", model="old")[0] == 0
    assert onnx.load(folder / "out.onnx").opset_import[0].version == 11


def test_which_processor_cpu_is_is_said(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    said = convert(capsys, folder, "--target", "cpu")[1]
    assert said.count("cpu as a target is an x86-64 processor") == 1
    assert "cpu-arm64 is the target for Arm" in said
    assert "x86-64" not in convert(capsys, folder, "--target", "cuda")[1]
    given = ("calibrate", folder / "plain.onnx", "--data", batch(folder), "-o", folder / "l.yaml")
    assert "cpu as a target is" in run(capsys, *given, "--target", "cpu")[1]
    given = ("run", folder / "plain.onnx", "--data", batch(folder), "--provider", "cpu")
    assert "cpu as a target is" in run(capsys, *given)[1]


def batch(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=np.ones((2, 4), np.float32))
    return folder / "x.npz"


OLD_CONV = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y)
    <float[4,3,3,3] w = {WEIGHT}> { y = Conv<pads = [1, 1, 1, 1]>(x, w) }""".replace(
    "WEIGHT", ", ".join(["0.125"] * 108)
)


@pytest.mark.parametrize(
    ("given", "opset"),
    [
        (["--precision", "bfloat16"], 22),
        (["--precision", "bfloat16", "--opset", "keep"], 17),
        (["--precision", "bfloat16", "--target", "schema"], 17),
        (["--precision", "float16"], 17),
    ],
)
def test_a_model_is_moved_by_itself_where_more_of_it_can_be_bfloat16(
    capsys: pytest.CaptureFixture[str], folder: Path, given: list[str], opset: int
) -> None:
    onnx.save(onnx.parser.parse_model(OLD_CONV), folder / "old.onnx")
    status, out, err = convert(capsys, folder, *given, model="old")
    assert (status, err) == (0, "")
    written = onnx.load(folder / "out.onnx")
    assert written.opset_import[0].version == opset
    said = "converted the model from opset 17 to 22: the float32 outputs stayed the same; 16-bit"
    assert (said in out) == (opset == 22)
    if opset == 22:
        assert amp.verify(folder / "old.onnx", written).ok


def test_an_opset_that_a_model_cannot_have_is_refused(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, out, err = convert(capsys, folder, "--opset", "20")
    assert (status, out) == (2, "")
    assert "the model cannot be moved to this opset; found 20; expected 21, which it has" in err
    assert not (folder / "out.onnx").exists()


def test_convert_says_first_what_was_gained_and_last_what_to_try(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    _, out, _ = convert(capsys, folder)
    lines = out.splitlines()
    assert lines[0] == "Not verified: nothing was run, so the accuracy is unknown"
    assert lines[1].endswith(" of the file size")
    model, output = folder / "plain.onnx", folder / "out.onnx"
    assert lines[lines.index(f"wrote {output}") + 1 :][:2] == [
        "next: Compare the result with the original: on made-up inputs, or on yours (--data).",
        f"  amp-rewrite verify {model} {output}",
    ]
