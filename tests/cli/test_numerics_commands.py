"""calibrate, localise and tune from the command line: exit statuses, files, one-line errors."""

import json

import numpy as np
import onnx
import onnx.parser
import pytest

from amp_rewrite.cli import main

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {W}, float[4,4] v = {V}, float[4,4] u = {U}> {
[a] h = MatMul(x, w) [hot] i = MatMul(h, v) [c] j = MatMul(i, u) [d] y = MatMul(j, w)}"""


def square(value):
    return "{" + ",".join([f"{value:g}"] * 16) + "}"


@pytest.fixture
def files(tmp_path):
    text = TEXT
    for name, number in {"{W}": 0.5, "{V}": 2, "{U}": 1e-4}.items():
        text = text.replace(name, square(number))
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for i in range(2):
        x = np.random.default_rng(i).uniform(0.9, 1.1, (2, 4)).astype(np.float32) * 15_000
        np.savez(tmp_path / "data" / f"{i}.npz", x=x)
    return tmp_path


def run(*arguments):
    """Run the command line and return its exit status."""
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def convert(files, *options):
    output = files / "low.onnx"
    assert run("convert", files / "m.onnx", "-o", output, "--quiet", *options) == 0
    return output


@pytest.mark.parametrize("command", ["tune", "calibrate", "localise"])
def test_a_model_in_16_bits_is_refused_before_a_list_is_written(command, files, capsys):
    low = convert(files)
    given = () if command == "localise" else ("-o", files / "l.yaml")
    assert run(command, low, "--data", files / "data", *given) == 2
    assert "the model is in float16 already; expected the float32" in capsys.readouterr().err
    assert not (files / "l.yaml").exists()


def test_localise_fails_and_names_the_node_and_calibrate_repairs_it(files, capsys):
    low = convert(files)
    report = files / "report.json"
    arguments = ("localise", files / "m.onnx", low, "--data", files / "data", "--report", report)
    assert run(*arguments) == 1
    assert "  hot (MatMul): 100 % of the error of output y" in capsys.readouterr().out
    assert json.loads(report.read_text())["contributions"][0]["node"] == "hot"

    assert run("localise", files / "m.onnx", low) == 0
    out = capsys.readouterr().out
    assert "These inputs are made up" in out, "plain ones, which are small"
    assert "output y: predicted error " in out

    overlay = files / "overlay.yaml"
    assert run("calibrate", files / "m.onnx", "--data", files / "data", "-o", overlay) == 0
    out = capsys.readouterr().out
    assert "hot/T: measured" in out
    assert "over 2 batches" in out
    low = convert(files, "--lists", overlay)
    assert run("localise", files / "m.onnx", low, "--data", files / "data") == 0
    low = convert(files, "--lists", "float16_cuda", "--lists", overlay)
    assert run("localise", files / "m.onnx", low, "--data", files / "data", "--quiet") == 0


def test_tune_writes_a_list(files, capsys):
    overlay = files / "keep.yaml"
    command = ("tune", files / "m.onnx", "--data", files / "data", "-o", overlay, "--budget", "1m")
    assert run(*command, "--metric", "cosine") == 0
    assert "2 nodes kept float32: MatMul x2; 0 allowed" in capsys.readouterr().out
    low = convert(files, "--lists", overlay)
    assert run("localise", files / "m.onnx", low, "--data", files / "data", "--quiet") == 0


def test_verify_says_what_rounding_does_not_explain(files, capsys):
    low = convert(files)
    assert run("verify", files / "m.onnx", low, "--budget") == 0
    said = "output y: rounding is predicted to make an error of "
    assert said in capsys.readouterr().out
    broken = onnx.load(low)
    for tensor in broken.graph.initializer:
        if tensor.name == "v":
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * array.dtype.type(1.02), "v"))
    onnx.save(broken, files / "broken.onnx")
    report = files / "r.json"
    run("verify", files / "m.onnx", files / "broken.onnx", "--budget", "--report", report)
    assert "look for a fault that is no rounding" in capsys.readouterr().out
    assert 0 < json.loads(report.read_text())["predicted"]["y"] < 0.01


LATE = """<ir_version: 9, opset_import: ["" : 18]>
g (int64[1,s] position_ids) => (float[1,s] y) {{ p = Cast <to = {0}> (position_ids)
  c = Constant <value = float {{0.37}}> () f = Cast <to = {0}> (c)
  [angle] a = Mul(p, f) w = Cast <to = 1> (a) y = Cos(w) }}"""


@pytest.fixture
def late(tmp_path):
    """Two models: angles in float32, and in float16."""
    for name, number in {"m": 1, "low": 10}.items():
        onnx.save(onnx.parser.parse_model(LATE.format(number)), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "data.npz", position_ids=np.arange(8)[None])
    return tmp_path


def test_verify_names_the_stress_input_that_broke(late, capsys):
    models = (late / "m.onnx", late / "low.onnx")
    report = late / "report.json"
    assert run("verify", *models, "--report", report) == 1
    out = capsys.readouterr().out
    assert "; budget 5 s): late positions" in out
    assert ": on late positions (position_ids [1, 16] 99984..99999): output y" in out
    content = json.loads(report.read_text())
    assert content["stress"]["results"][0]["outcome"] == "failed"
    assert run("verify", *models, "--no-stress") == 0
    assert "stress inputs" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--data", "nowhere.npz", "-o", "{o}"), 1, "no such data"),
        (("--data", "{d}", "-o", "{m}"), 2, "an op list is written, no model"),
        (("--data", "{d}", "-o", "{o}", "--budget", "soon"), 2, "not a duration"),
        (("--data", "{d}", "-o", "{o}", "--metric", "mse"), 2, "unknown metric"),
        (("--data", "{d}"), 2, "--output"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(files, capsys, arguments, status, message):
    places = {"{o}": files / "o.yaml", "{d}": files / "data", "{m}": files / "m.onnx"}
    before = (files / "m.onnx").read_bytes()
    assert run("tune", files / "m.onnx", *(places.get(a, a) for a in arguments)) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (files / "o.yaml").exists()
    assert (files / "m.onnx").read_bytes() == before
