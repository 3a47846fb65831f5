"""convert with a verdict: --data, --rtol, --stress, --write-failed; files and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from amp_rewrite.cli import main
from amp_rewrite.numerics.compare.device_checks import DeviceChecks
from amp_rewrite.numerics.compare.verify_records import DeviceComparison

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {{{w}}}, float[4,4] v = {{{v}}}> {{
  [a] h = MatMul(x, w) [b] i = MatMul(h, v) [c] y = Tanh(i) }}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models that hold, and that overflow for inputs of 3 and of 20,000; and data."""
    weights = {"good": (0.5, 0.5), "hot": (2, 1e-5), "risky": (6200, 1e-5), "fine": (0.1234, 0.2)}
    for name, (w, v) in weights.items():
        text = TEXT.format(w=",".join([f"{w:g}"] * 16), v=",".join([f"{v:g}"] * 16))
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    (tmp_path / "data").mkdir()
    for i in range(2):
        x = np.random.default_rng(i).uniform(0.9, 1.1, (2, 4)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{i}.npz", x=x)
    np.savez(tmp_path / "large.npz", x=np.full((2, 4), 20_000, np.float32))
    return tmp_path


def convert(folder: Path, name: str, *options: object) -> int:
    """Run the command and return its exit status."""
    arguments = ["convert", folder / f"{name}.onnx", "-o", folder / "out.onnx", *options]
    with pytest.raises(SystemExit) as done:
        main([str(argument) for argument in arguments])
    return int(done.value.code or 0)


def test_data_of_which_nothing_fits_16_bits_leave_nothing_to_write(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = folder / "r.json"
    assert convert(folder, "hot", "--data", folder / "large.npz", "--report", report) == 3
    out, err = capsys.readouterr()
    assert out.startswith("Not compared: output y is 0.9")
    assert "nothing left in float16: found no mix that passes" in out
    assert err == ""
    verdict = json.loads(report.read_text())["verdict"]
    assert verdict["nothing_left"] == "nothing left in float16: found no mix that passes"
    assert not (folder / "out.onnx").exists()


TRACKER = """<ir_version: 9, opset_import: ["" : 18]> g (float[2] s, float[1] z) => (float[2] out)
<int64[1] first = {0}, float[2,2] F = {1,0.1,0,1}, float[2,1] K = {0.3,0.4}> {
  p = MatMul(F, s) place = Gather(p, first) r = Sub(z, place) c = MatMul(K, r) out = Add(p, c) }"""
"""A Kalman filter's update: a place of 1000 and a speed of 1."""


def test_what_a_small_slice_needs_stays_float32(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx.parser.parse_model(TRACKER), folder / "tracker.onnx")
    state, seen = np.array([1000, 1.1], np.float32), np.array([1001.3], np.float32)
    np.savez(folder / "fed.npz", s=state, z=seen)
    options = ("--data", folder / "fed.npz", "--precision", "bfloat16")
    assert convert(folder, "tracker", *options) == 0
    out = capsys.readouterr().out
    assert "the error budget keeps " in out
    assert "0 of 4 " not in out


def test_what_does_not_hold_is_not_written_unless_told_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--data", folder / "data" / "0.npz", "--stress")
    report = folder / "r.json"
    assert convert(folder, "risky", *options, "--report", report) == 1
    out = capsys.readouterr().out
    assert "FAILED on 1 batch of your data" in out
    assert ": on large constants (x [2, 4] 3." in out
    assert "nothing was written; --write-failed writes it anyway" in out
    assert not (folder / "out.onnx").exists()
    assert json.loads(report.read_text())["verdict"]["ok"] is False
    data, output = folder / "data" / "0.npz", folder / "out.onnx"
    again = f"amp-rewrite convert {folder / 'risky.onnx'} -o {output} --data {data} --write-failed"
    assert f"\n  {again}\n" in out
    assert "amp-rewrite localise" not in out, "there is no file to look at"
    assert convert(folder, "risky", *options, "--write-failed") == 1
    out = capsys.readouterr().out
    assert f"\n  amp-rewrite localise {folder / 'risky.onnx'} {output} --data {data}\n" in out
    assert f"wrote {folder / 'out.onnx'}, although it failed" in out
    onnx.checker.check_model(folder / "out.onnx")


def cancelling(folder: Path) -> Path:
    """Write a difference of two products whose weights, rounded, make an error of some percent."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[4,16] x) => (float[4,16] y) {
      a = MatMul(x, w) b = MatMul(x, v) y = Sub(a, b) }"""
    model = onnx.parser.parse_model(text)
    w, noise, x = np.random.default_rng(0).standard_normal((3, 16, 16)).astype(np.float32)
    for name, weight in (("w", w), ("v", w + 0.006 * noise)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(model, folder / "cancelling.onnx")
    np.savez(folder / "x.npz", x=x[:4])
    return folder / "x.npz"


def test_what_is_in_doubt_has_a_status_of_its_own_and_is_written_if_one_insists(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--data", cancelling(folder), "--html", folder / "page.html")
    assert convert(folder, "cancelling", *options) == 4
    out = capsys.readouterr().out
    assert out.startswith("In doubt on 1 batch of your data: ")
    assert "; rounding the weights alone to float16 gives the same error (error " in out
    assert "nothing was written; --write-failed writes it anyway" in out
    assert not (folder / "out.onnx").exists()
    assert convert(folder, "cancelling", *options[:2], "--write-failed") == 4
    assert f"wrote {folder / 'out.onnx'}, in doubt" in capsys.readouterr().out
    assert (folder / "out.onnx").exists()


def test_what_was_not_verified_in_time_is_not_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, "good", "--data", folder / "data", "--budget", "0.001s") == 4
    lines = capsys.readouterr().out.splitlines()
    assert "the time was over before everything was compared: 0 of " in lines[0]
    assert "a larger budget does the rest" in lines[0]
    assert "nothing was written; --write-failed writes it anyway" in lines
    assert not (folder / "out.onnx").exists()
    forced = ("--data", folder / "data", "--budget", "0.001s", "--write-failed")
    assert convert(folder, "good", *forced) == 4
    assert f"wrote {folder / 'out.onnx'}, in doubt" in capsys.readouterr().out


def test_verify_verifies_on_made_up_inputs_in_the_same_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, "good", "--verify") == 0
    out = capsys.readouterr().out
    assert "stress inputs (" in out
    assert "Passed on 1 made-up batch and on stress inputs: worst error " in out
    (folder / "out.onnx").unlink()
    assert convert(folder, "risky", "--verify") == 1
    assert ": on large constants" in capsys.readouterr().out
    assert not (folder / "out.onnx").exists()
    assert convert(folder, "risky", "--verify", "--no-stress", "--rtol", "0.01") == 0
    assert "Passed on 1 made-up batch: worst error " in capsys.readouterr().out


def test_strict_verifies_with_stress_inputs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, "good", "--strict") == 0
    assert "stress inputs (" in capsys.readouterr().out
    (folder / "out.onnx").unlink()
    assert convert(folder, "risky", "--strict") == 3
    assert "FAILED on 1 made-up batch" in capsys.readouterr().out
    assert not (folder / "out.onnx").exists()
    assert convert(folder, "risky", "--strict", "--no-stress") == 0
    assert "Passed" not in capsys.readouterr().out


def test_a_dry_run_has_a_verdict_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, "good", "--data", folder / "data", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "Passed on 2 batches of your data" in out
    assert out.splitlines()[-1] == "nothing was written"
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize(
    ("options", "message", "status"),
    [
        (
            ("--rtol", "0.01"),
            "--rtol has no effect without verification",
            2,
        ),
        (("--write-failed",), "--write-failed has no effect without verification", 2),
        (("--data", "absent.npz"), "no such data", 1),
        (("--data", "{good}"), "the data cannot be read", 1),
        (("--stress", "--rtol", "-1"), "impossible rtol", 2),
        (("--stress", "--budget", "soon"), "not a duration", 2),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
    status: int,
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    places = {"{good}": str(folder / "good.onnx")}
    assert convert(folder, "good", *(places.get(o, o) for o in options)) == status
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_result_is_run_on_a_provider_and_must_hold_there(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--data", folder / "data", "--provider", "cpu")
    assert convert(folder, "good", *given) == 0
    said = capsys.readouterr().out
    assert "run on CPUExecutionProvider: worst error " in said
    assert convert(folder, "good", "--provider", "Nope") == 2
    assert "no such execution provider; found 'Nope'" in capsys.readouterr().err

    (folder / "out.onnx").unlink()
    failed = DeviceComparison(("P",), (), "no such kernel")
    monkeypatch.setattr(DeviceChecks, "report", lambda _: failed)
    assert convert(folder, "good", *given) == 1
    assert "P could not run the model: no such kernel" in capsys.readouterr().out
    assert not (folder / "out.onnx").exists()


@pytest.mark.openvino
@pytest.mark.usefixtures("openvino")
def test_openvino_runs_what_is_converted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--precision", "bfloat16", "--target", "cuda", "--provider", "openvino")
    assert convert(folder, "good", *words) == 0
    assert "run on OpenVINO: worst error " in capsys.readouterr().out


MOVED = {
    "convolutions": "c = Conv(x, w) d = HardSwish(c) e = GlobalAveragePool(d) y = Softmax(e)",
    "pooled": "c = Conv(x, w) d = MaxPool<kernel_shape = [2,2]>(c) y = Sigmoid(d)",
    "depthwise": "a = MatMul(x, m) y = Conv<group = 3>(a, depthwise)",
}
SOME = [("convolutions", "bfloat16", "cuda", "auto"), ("pooled", "float16", "webgpu", "22")]
WAYS = [("float16", "cuda"), ("float16", "webgpu"), ("bfloat16", "cuda"), ("bfloat16", "openvino")]
REST = [(name, *way, opset) for name in MOVED for way in WAYS for opset in ("auto", "22")]


@pytest.mark.parametrize(
    ("name", "precision", "target", "opset"),
    [*SOME, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST if case not in SOME)],
)
def test_a_second_conversion_changes_no_byte_where_the_first_raised_the_opset(
    tmp_path: Path, name: str, precision: str, target: str, opset: str
) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1,3,8,8] x) => (float[a,b,c,d] y) {{ {MOVED[name]} }}"""
    )
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "depthwise": (3, 1, 3, 3), "m": (8, 8)}
    for weight, shape in shapes.items():
        if f" {weight})" in MOVED[name]:
            array = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    onnx.save(model, tmp_path / "first.onnx")
    options = ("--precision", precision, "--target", target, "--opset", opset)
    written: list[bytes] = []
    for source in ("first", "second"):
        assert convert(tmp_path, source, *options) == 0
        written.append((tmp_path / "out.onnx").read_bytes())
        (tmp_path / "out.onnx").rename(tmp_path / "second.onnx")
    assert written[0] == written[1]
    if (name, precision, target, opset) in SOME:
        assert onnx.load(tmp_path / "second.onnx").opset_import[0].version == 22


def test_where_all_is_inside_of_functions_the_next_step_inlines_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        '<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (float[2,4] x, float[4,4] w) =>'
        ' (float[2,4] y) { y = own.F(x, w) } <domain: "own", opset_import: ["" : 18]>'
        " F (p, q) => (r) { r = MatMul(p, q) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "calls.onnx")
    assert convert(tmp_path, "calls") == 0
    said = capsys.readouterr().out
    assert "nothing was converted" in said
    assert "--inline-functions" in said


def test_a_model_in_which_nothing_is_low_is_written_as_it_came_unless_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        '<ir_version: 9, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y) {y = Exp(x)}'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "none.onnx")
    assert convert(tmp_path, "none") == 0
    said = capsys.readouterr().out
    assert said.startswith("nothing changed: no part of the model can compute in float16")
    assert "out.onnx, unchanged: nothing was converted" in said.replace("\n", "")
    assert "amp-rewrite verify" not in said
    assert onnx.load(tmp_path / "out.onnx").graph == onnx.load(tmp_path / "none.onnx").graph
    (tmp_path / "out.onnx").unlink()
    assert convert(tmp_path, "none", "--strict") == 3
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / "out.onnx").exists()


def test_a_value_near_the_end_of_float16_is_told_first_with_what_settles_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TEXT.format(w=",".join(["2500"] * 16), v=",".join(["1e-05"] * 16))
    onnx.save(onnx.parser.parse_model(text), folder / "near.onnx")
    assert convert(folder, "near") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Not verified, in doubt: h may reach ")
    assert "by an estimate, more than a quarter of float16's limit of 65504; --data " in first
    assert convert(folder, "good") == 0
    assert capsys.readouterr().out.startswith("Not verified: nothing was run")
