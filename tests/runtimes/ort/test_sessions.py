"""Sessions: what they load, how, and what errors say."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.errors import RunError
from amp_rewrite.graph.tensors import ConvertedTensor
from amp_rewrite.runtimes import model_source
from amp_rewrite.runtimes.ort import providers
from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.ort.ort_values import empty, to_ort_value
from amp_rewrite.runtimes.ort.sessions import Binding, Session, session_options
from amp_rewrite.targets import CPU, CUDA

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'
X = np.arange(4, dtype=np.float32)


def add() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        HEADER
        + "g (float[N] x, float[1] z) => (float[K] y, float[N] n) <float[1] z = {2}>"
        + "{ y = Add(x, z) n = Neg(x) }"
    )


def test_a_session_knows_its_inputs_and_outputs_and_runs_some_of_them():
    session = Session(amp.load(add()))
    assert (session.inputs, session.overridable, session.outputs) == (("x",), ("z",), ("y", "n"))
    y, n = session.run({"x": X})
    np.testing.assert_array_equal(y, X + 2)
    np.testing.assert_array_equal(n, -X)
    (n,) = session.run({"x": X, "z": X[1:2]}, ["n"])
    np.testing.assert_array_equal(n, -X)


def scaled(size: int) -> tuple[onnx.ModelProto, np.ndarray]:
    model = onnx.parser.parse_model(HEADER + "g (float[N] x) => (float[N] y) { y = Mul(x, w) }")
    weight = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model, weight


def rounded(model: ir.Model) -> ir.Model:
    """Return a model whose weight becomes float16 and float32 again when it is read."""
    (value,) = model.graph.initializers.values()
    low = ConvertedTensor(cast("Any", value.const_value), FLOAT16)
    value.const_value = ConvertedTensor(low, FLOAT32)
    return model


def folders() -> set[str]:
    import tempfile

    return {p.name for p in Path(tempfile.gettempdir()).glob("amp_rewrite-*")}


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_large_model_goes_through_a_folder_that_ends_with_the_session(
    limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(model_source, "_IN_MEMORY", limit)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, weight = scaled(1000)
    session = Session(amp.load(model))
    assert len(folders()) == (0 if limit else 1)
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(session.run({"x": x})[0], weight)
    del session
    assert folders() == set()


def test_weights_stay_in_their_files_and_what_is_converted_is_written_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    model, weight = scaled(1000)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    x = {"x": np.ones(1000, np.float32)}
    session = Session(amp.load(path))
    np.testing.assert_array_equal(session.run(x)[0], weight)
    assert [*temporary.iterdir()] == []
    first, second = (Session(rounded(amp.load(path))) for _ in range(2))
    expected = weight.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(first.run(x)[0], expected)
    np.testing.assert_array_equal(second.run(x)[0], expected)
    written = [*temporary.rglob("*.data")]
    assert sum(file.stat().st_size for file in written) == weight.nbytes
    del first
    np.testing.assert_array_equal(second.run(x)[0], expected)
    assert written[0].exists()
    other = np.arange(1000, dtype=np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(other, "w"))
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    third = Session(rounded(amp.load(path)))  # the file was replaced in the meantime
    np.testing.assert_array_equal(third.run(x)[0], other)
    del second, third
    assert [*temporary.iterdir()] == []


def test_a_model_that_cannot_be_loaded_is_one_line():
    model = onnx.parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { y = com.Nope(x) }")
    model.opset_import.add(domain="com", version=1)
    with pytest.raises(RunError, match=r"ONNX Runtime cannot load the toy; found .*Nope") as caught:
        Session(amp.load(model), what="the toy")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_does_not_fall_back_to_another_provider(monkeypatch: pytest.MonkeyPatch):
    absent = "DmlExecutionProvider"
    monkeypatch.setattr(providers, "available_providers", lambda: (absent, CPU))
    if absent in onnxruntime.get_available_providers():
        pytest.skip("the provider is there")
    with pytest.raises(RunError, match="cannot start the execution provider; found it would use"):
        Session(amp.load(add()), providers=[absent])


@pytest.mark.parametrize(
    ("variable", "threads"),
    [("1", 1), ("4,2", 4), (" 2 ", 2), ("", 0), ("many", 0), ("-1", 0), ("9" * 9, 0)],
)
def test_the_environment_says_how_many_threads_unless_an_argument_does(
    variable: str, threads: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert session_options().intra_op_num_threads == threads
    assert session_options(threads=3).intra_op_num_threads == 3


@pytest.fixture
def binding() -> Binding:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[N] x) => (float[N] y, float[N] n)'
    model = onnx.parser.parse_model(text + "{ y = Add(x, x) n = Neg(x) }")
    return Session(amp.load(model)).bind()


def feed(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


def test_bound_values_are_read_and_written_where_they_are(binding: Binding):
    target = empty((3,), ir.DataType.FLOAT, HOST)
    source = to_ort_value(feed(3), HOST)
    binding.allocate("n")
    binding.write("y", target)
    binding.read("x", source)
    for factor in (1, 2):
        source.update_inplace(feed(3) * np.float32(factor))
        binding.run("it fails")
        np.testing.assert_array_equal(target.numpy(), feed(3) * 2 * factor)
        y, n = binding.outputs(["y", "n"])
        assert y.data_ptr() == target.data_ptr()
        np.testing.assert_array_equal(n.numpy(), -feed(3) * factor)


def test_an_allocated_output_has_the_shape_of_each_run(binding: Binding):
    binding.allocate("y")
    binding.allocate("n")
    for size in (2, 5, 3):
        binding.read("x", to_ort_value(feed(size), HOST))
        binding.run("it fails")
        (y,) = binding.outputs(["y"])
        np.testing.assert_array_equal(y.numpy(), feed(size) * 2)


@pytest.mark.parametrize(("providers", "expected"), [([CPU], 1), ([CUDA, CPU], 3)])
def test_what_other_devices_read_is_bound_anew_for_every_run(providers: list, expected: int):
    # ONNX Runtime copies an input to another device when it is bound, not when it is run.
    bound: list[str] = []
    session = SimpleNamespace(
        io_binding=lambda: SimpleNamespace(bind_ortvalue_input=lambda name, _: bound.append(name)),
        run_with_iobinding=lambda *_: None,
        get_providers=lambda: providers,
    )
    binding = Binding(session)
    binding.read("x", None)
    for _ in range(3):
        binding.run("it fails")
    assert bound == ["x"] * expected
