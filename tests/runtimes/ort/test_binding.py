"""Bound inputs and outputs."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import RunError
from amp_rewrite.runtimes.ort.binding import Binding
from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.ort.ort_values import empty, to_ort_value
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.targets import CPU, CUDA


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


def test_a_failed_run_says_what_failed(binding: Binding):
    binding.allocate("y")
    binding.read("x", to_ort_value(np.ones((2, 2), np.float32), HOST))
    with pytest.raises(RunError, match=r"it fails; found .*rank"):
        binding.run("it fails")


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
