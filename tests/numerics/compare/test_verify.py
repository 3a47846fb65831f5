"""verify: what holds, what does not, and what it says."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.ort.time_limit import time_limit

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def mlp(scale: float = 1.0) -> onnx.ModelProto:
    """Return two layers and a softmax whose hidden values are about `scale` large."""
    model = onnx.parser.parse_model(
        HEADER
        + """g (float[batch,16] x) => (float[batch,10] y) {
          h = MatMul(x, w1)
          r = Tanh(h)
          logits = MatMul(r, w2)
          y = Softmax(logits)
        }"""
    )
    rng = np.random.default_rng(0)
    for name, shape, size in (("w1", (16, 32), scale), ("w2", (32, 10), 1.0)):
        weight = (rng.standard_normal(shape) * size).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    return model


def low(model: onnx.ModelProto, precision: Any = "float16", **options: Any) -> Any:
    level = "UNSAFE_FORCE_ALL" if precision == "float16" else "default"
    result = amp.rewrite(model, precision=precision, target="schema", level=level, **options)
    return result.model


def feeds(count: int = 1, size: float = 1.0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": (rng.standard_normal((4, 16)) * size).astype(np.float32)} for _ in range(count)]


def test_a_good_rewrite_holds_and_every_number_is_there() -> None:
    report = verify(mlp(), low(mlp()), feeds(3))
    (output,) = report.outputs
    assert report.ok
    assert report.precision == "float16"
    assert report.feeds == 3
    assert output.elements == 3 * 4 * 10
    assert 0 < output.max_abs < 0.01
    assert output.cosine is not None
    assert output.cosine > 0.9999
    assert output.within > 0.9
    assert (output.nan, output.inf, output.top1) == (0, 0, 1.0)


def test_the_emulated_model_runs_once_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[set[str]] = []
    run_rewritten = Verification.run_rewritten

    def run(self: Verification, feeds: Any, names: Any = None) -> Any:
        runs.append(set(names))
        return run_rewritten(self, feeds, names)

    monkeypatch.setattr(Verification, "run_rewritten", run)
    assert verify(mlp(), low(mlp()), feeds(3), stress=False).ok
    assert len(runs) == 3
    assert all(names >= {"h", "r", "logits", "y"} for names in runs)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_low_inputs_and_outputs_are_compared_as_well(precision: str) -> None:
    model = mlp(0.1)
    report = verify(model, low(model, precision=precision, keep_io_types=False), feeds())
    assert report.ok
    assert report.precision == precision


def test_what_fails_when_the_time_is_over_is_reported_without_more_runs() -> None:
    before, after = (TypedModel.of(each) for each in (mlp(), low(mlp())))
    run = Verification(before, after, Tolerances.of(FLOAT16), targets.find("schema"))
    run.add(feeds()[0], inside=False)
    run.outputs["y"].shape_differs = True
    with time_limit(time.monotonic() - 1):
        report = run.report("", inside=False, stress=None, unfinished="the time is over")
    assert report.unfinished == "the time is over"
    assert not report.outputs[0].ok


def test_an_infinity_that_a_later_node_absorbs_is_a_failure() -> None:
    model = mlp(10)  # h overflows float16, and Tanh makes 1 of it in either precision
    report = verify(model, low(model), feeds(size=1e4))
    assert all(output.ok for output in report.outputs)
    assert not report.ok
    assert [i.value for i in report.infinities] == ["h"]
    assert report.infinities[0].node == "n0"
    assert report.infinities[0].inf > 0
    assert "where the original is finite" in report.to_text()


def test_an_infinity_in_a_cast_of_another_tool_is_a_failure() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y)
        <float c = {1000000}> { a = Mul (x, c) %s }"""
    before = onnx.parser.parse_model(text % "y = Sigmoid (a)")
    low_tail = "[b_cast] b = Cast <to = 10> (a) s = Sigmoid (b) y = Cast <to = 1> (s)"
    after = onnx.parser.parse_model(text % low_tail)
    report = verify(before, after, [{"x": np.full((2, 4), 5, np.float32)}], stress=False)
    assert (report.ok, [i.node for i in report.infinities]) == (False, ["b_cast"])


def test_an_infinity_that_the_original_has_as_well_is_none() -> None:
    model = onnx.parser.parse_model(
        HEADER + "g (float[2] x) => (float[2] y) { h = Log(x) y = Exp(h) }"
    )
    report = verify(model, low(model), {"x": np.array([0, 1], np.float32)})
    assert report.ok
    assert report.infinities == ()


def test_an_infinity_in_an_added_cast_is_found() -> None:
    model = onnx.parser.parse_model(
        HEADER + "g (float[2,2] x) => (float[2,2] y) { h = MatMul(x, x) y = Tanh(h) }"
    )
    x = np.full((2, 2), 1e5, np.float32)
    report = verify(model, amp.rewrite(model, target="schema").model, {"x": x})
    assert report.infinities[0].op == "Cast"
    assert report.infinities[0].value.startswith("x-CastToFp16")


def test_a_device_is_compared_with_the_emulation() -> None:
    model = mlp()
    report = verify(model, low(model), feeds(), providers=["CPUExecutionProvider"])
    assert report.device is not None
    assert report.device.error is None
    (output,) = report.device.outputs
    assert output.ok
    assert output.max_abs > 0  # the CPU provider computes in float32
    (original,) = report.device.original
    assert original.ok
    assert original.max_abs > 0
    assert "run on CPUExecutionProvider: worst error" in report.to_text()
    assert report.ok


def test_a_device_that_departs_from_the_original_fails() -> None:
    model = onnx.parser.parse_model(
        HEADER + "g (float[2,2] x) => (float[2,2] y) { h = MatMul(x, x) y = Mul(h, h) }"
    )
    given = {"x": np.array([[1, 2], [3, 4]], np.float32)}
    other = onnx.ModelProto.FromString(model.SerializeToString())
    other.graph.node[1].op_type = "Add"
    report = verify(model, other, given, providers=["CPUExecutionProvider"])
    device = [line for line in report.failures if line.startswith("on CPUExecutionProvider: ")]
    assert len(device) == 1
    assert " of its spread" in device[0]


def test_a_device_that_was_asked_for_and_cannot_run_the_model_fails() -> None:
    model = mlp()
    rewritten = low(model, precision="bfloat16")
    report = verify(model, rewritten, feeds(), providers=["CPUExecutionProvider"])
    assert report.device is not None
    assert report.device.error is not None
    assert not report.ok
    assert report.failures[-1].startswith("CPUExecutionProvider could not run the model: ")


def test_models_that_do_not_correspond_are_refused() -> None:
    other = onnx.parser.parse_model(HEADER + "g (float[2] x) => (float[2] z) { z = Neg(x) }")
    with pytest.raises(OptionError, match=r"other outputs.*found z; expected y"):
        verify(mlp(), other)


def test_integers_and_booleans_are_compared_exactly() -> None:
    comparer = Comparer("ids", Tolerances.of(FLOAT16, rtol=1.0))
    comparer.add(np.array([1, 2, 3]), np.array([1, 2, 4]))
    result = comparer.result()
    assert not result.ok
    assert result.within == 2 / 3
    assert result.max_abs == 1
    assert result.cosine is None


def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    from amp_rewrite.cli.command_table import command as command_called

    return command_called("verify")


@pytest.mark.parametrize(("scale", "status"), [(1.0, 0), (100.0, 1)])
def test_the_command_says_it_with_its_exit_status(
    scale: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlp(scale)
    onnx.save(model, tmp_path / "a.onnx")
    amp.save(low(model), tmp_path / "b.onnx")
    np.savez(tmp_path / "x.npz", **feeds(size=1e3)[0])
    names = ["a.onnx", "b.onnx", "--data", "x.npz", "--report", "r.json"]
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command(monkeypatch), names)
    assert result.exit_code == status
    assert ("Passed" in result.output) == (status == 0)
    assert json.loads(Path("r.json").read_text("utf-8"))["ok"] == (status == 0)
    quiet = CliRunner().invoke(command(monkeypatch), [*names, "--quiet"])
    assert quiet.output == ""
    assert quiet.exit_code == status


def test_a_relative_tolerance_is_one_of_the_largest_magnitude() -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    off = x.copy()
    off[0] += 0.001  # of the largest magnitude, which is 1
    for rtol, ok in ((1e-9, False), (0.0009, False), (0.0011, True)):
        comparer = Comparer("y", Tolerances.of(FLOAT16, rtol=rtol))
        comparer.add(x, off)
        assert comparer.result().ok is ok
    assert not verify(mlp(), low(mlp()), feeds(), rtol=1e-9).ok
    assert verify(mlp(), low(mlp()), feeds(), rtol=1e-2).ok


def test_what_is_printed_is_what_decides() -> None:
    x = np.linspace(-1, 1, 40_000, dtype=np.float32)
    off = x.copy()
    off[0] = 1
    tolerances = Tolerances.of(FLOAT16, rtol=1e-3)
    comparer = Comparer("y", tolerances)
    comparer.add(x, off)
    outputs = (comparer.result(),)
    report = VerifyReport("float16", 1, "x.npz", tolerances, outputs)
    told = report.to_text()
    assert not report.ok
    assert "99.997 %" in told  # not 100.00 %
    assert "every element within 0.001 of the output's peak" in told
    assert "1 of 40000 elements exceed the tolerance" in told
    usual = replace(report, tolerances=Tolerances.of(FLOAT16)).to_dict()
    assert usual["test"].startswith(
        "test: error (root mean square) at most 4.5 % of the output's spread"
    )


@pytest.mark.parametrize("opset", [9, 12, 17])
@pytest.mark.parametrize(("target", "distance"), [("webgpu", 0.5), ("cuda", 0.0)])
def test_sums_are_those_of_the_target_at_every_opset(
    opset: int, target: str, distance: float
) -> None:
    ones = ",".join(["1"] * 4096)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[1,4096] x) => (float[1,1] y)'
        f"<float[4096,1] w = {{{ones}}}> {{ [product] y = MatMul(x, w) }}"
    )
    rewritten = amp.rewrite(model, target="schema").model
    report = verify(model, rewritten, {"x": np.ones((1, 4096), np.float32)}, target=target)
    assert report.outputs[0].error == distance
