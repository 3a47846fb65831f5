"""OpenVINO's sessions: what they load and bind, in which types they compute, what errors say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from amp_rewrite.errors import AmpWarning, OptionError, RunError
from amp_rewrite.runtimes.openvino.compiled_model import HINT, Session
from amp_rewrite.runtimes.openvino.package import import_runtime

pytestmark = [pytest.mark.openvino, pytest.mark.usefixtures("openvino")]

HEADER = '<ir_version: 9, opset_import: ["" : 22, "local" : 1]>'
X = np.arange(4, dtype=np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


ADD = """g (float[N] x, float[1] z) => (float[K] y, float[N] n) <float[1] z = {2}> {
  y = Add(x, z) n = Neg(x) }"""
PRODUCTS = """g (float[4,4] x) => (float[4,4] y) {
  [wide] a = MatMul(x, x) c = Cast <to = 16> (a) [low] b = MatMul(c, c) y = Cast <to = 1> (b) }"""


def test_a_session_knows_its_inputs_and_outputs_and_runs_some_of_them() -> None:
    session = Session(parse(ADD))
    assert (session.inputs, session.overridable, session.outputs) == (("x",), (), ("y", "n"))
    y, n = session.run({"x": X})
    np.testing.assert_array_equal(y, X + 2)
    np.testing.assert_array_equal(n, -X)
    (n,) = session.run({"x": X[:2]}, ["n"])
    np.testing.assert_array_equal(n, -X[:2])


def test_a_default_is_a_constant_unless_the_session_is_told_that_it_is_fed() -> None:
    with pytest.raises(OptionError, match="z: the session has no such input to feed; expected x"):
        Session(parse(ADD)).run({"x": X, "z": X[1:2]})
    session = Session(parse(ADD), fed=["z"])
    assert session.overridable == ("z",)
    np.testing.assert_array_equal(session.run({"x": X}, ["y"])[0], X + 2)
    np.testing.assert_array_equal(session.run({"x": X, "z": X[1:2]}, ["y"])[0], X + 1)
    np.testing.assert_array_equal(session.run({"x": X}, ["y"])[0], X + 2)


def test_a_model_is_given_as_a_path_or_bytes_and_its_functions_are_inlined(tmp_path: Path) -> None:
    model = parse(
        "g (float[N] x) => (float[N] y) { y = local.twice(x) }"
        '<domain: "local", opset_import: ["" : 22]> twice (a) => (b) { b = Add(a, a) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", model.SerializeToString()):
        np.testing.assert_array_equal(Session(source).run({"x": X})[0], X + X)


def test_what_one_version_compiled_is_kept_and_no_other_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled() -> set[Path]:
        session = Session(parse(ADD), properties={"CACHE_DIR": tmp_path / "cache"}, threads=1)
        np.testing.assert_array_equal(session.run({"x": X}, ["y"])[0], X + 2)
        return {path for path in (tmp_path / "cache").rglob("*") if path.is_file()}

    first = compiled()
    assert first
    assert {path.parent.name for path in first} == {import_runtime().__version__.replace("/", "-")}
    assert compiled() == first
    monkeypatch.setattr(import_runtime(), "__version__", "2099.1.0-1")
    assert {path.parent.name for path in compiled() - first} == {"2099.1.0-1"}


@pytest.mark.usefixtures("bfloat16_processor")
def test_each_node_computes_in_its_own_type_unless_openvino_is_told_otherwise() -> None:
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    session = Session(parse(PRODUCTS), profile=True)
    (typed,) = session.run({"x": x})
    types = {name: node.type for node in session.ran_nodes() for name in node.covers}
    assert (types["wide"], types["low"]) == ("float32", "bfloat16")
    wide = (x @ x).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(typed, (wide @ wide).astype(ml_dtypes.bfloat16))

    hinted = Session(parse(PRODUCTS), properties={HINT: "bf16"}, profile=True)
    hinted.run({"x": x})
    types = {name: node.type for node in hinted.ran_nodes() for name in node.covers}
    assert types["wide"] == "bfloat16"


def test_profiling_ends_when_the_nodes_are_asked_for() -> None:
    session = Session(parse(ADD), profile=True)
    session.run({"x": np.zeros(1 << 20, np.float32)})
    nodes = session.ran_nodes()
    assert {name for node in nodes for name in node.covers} == {"y", "n"}
    assert all(node.provider == "OpenVINO" and node.microseconds >= 0 for node in nodes)
    np.testing.assert_array_equal(session.run({"x": X}, ["y"])[0], X + 2)
    assert session.ran_nodes() == ()


def test_bound_arrays_are_read_and_written_in_place() -> None:
    session = Session(
        parse(
            "g (float[4] x, float[4] s) => (float[4] y, float[4] t) { y = Mul(x, s) t = Add(s, y) }"
        )
    )
    x, state, new = X.copy(), np.full(4, 2, np.float32), np.empty(4, np.float32)
    binding = session.bind()
    binding.read("x", x)
    binding.read("s", state)
    binding.write("t", new)
    binding.allocate("y")
    binding.run("a step failed")
    np.testing.assert_array_equal(new, 2 + 2 * X)
    x += 1
    binding.run("a step failed")
    y, t = binding.outputs(["y", "t"])
    np.testing.assert_array_equal(y, 2 * (X + 1))
    assert t is new
    np.testing.assert_array_equal(new, 2 + 2 * (X + 1))


def test_bfloat16_goes_in_and_out_and_shares_its_memory() -> None:
    session = Session(parse("g (bfloat16[N] x) => (bfloat16[N] y) { y = Neg(x) }"))
    x = X.astype(ml_dtypes.bfloat16)
    (y,) = session.run({"x": x})
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, np.negative(x))
    out, binding = np.zeros_like(x), session.bind()
    binding.read("x", x)
    binding.write("y", out)
    binding.run("it failed")
    np.testing.assert_array_equal(out, np.negative(x))


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({}, "cannot run the model on these inputs; found no 'x'; expected x"),
        ({"x": np.ones((2, 2), np.float32)}, "cannot read the input x; found .*incompatible"),
        ({"x": X.astype(np.int64)}, "cannot read the input x; found .*precision"),
        ({"x": np.array(["a"])}, "cannot read the input x; found texts"),
    ],
)
def test_wrong_feeds_are_one_line(feeds: dict[str, Any], said: str) -> None:
    session = Session(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"))
    with pytest.raises(RunError, match=said) as caught:
        session.run(feeds)
    assert "\n" not in str(caught.value)


def test_a_model_that_it_does_not_load_is_one_line_with_the_node() -> None:
    bad = parse(
        "g (bfloat16[1,3,8,8] x, float[3] s) => (bfloat16[1,3,8,8] y) {"
        "[norm] y = BatchNormalization(x, s, s, s, s) }"
    )
    with pytest.raises(RunError) as caught:
        Session(bad)
    assert str(caught.value) == (
        "node 'norm' (BatchNormalization): OpenVINO cannot load the model; found Conversion is "
        "failed for: BatchNormalization-22; Input element types do not match.; run it on ONNX "
        "Runtime, or keep the node in float32 if that one loads"
    )
    with pytest.raises(RunError, match=r"OpenVINO cannot load the model; found .*PRECISION"):
        Session(parse(ADD), properties={HINT: "wrong"})


def test_an_integer_that_loses_its_upper_bits_is_warned_of() -> None:
    session = Session(parse("g (int64[N] i) => (int64[N] j) { j = Add(i, i) }"))
    with pytest.warns(AmpWarning, match="'i' is fed an integer beyond them: results may differ"):
        session.run({"i": np.array([1, 2**40])})
    np.testing.assert_array_equal(session.run({"i": np.array([1, 2**29])})[0], [2, 2**30])
