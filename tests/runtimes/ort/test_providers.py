"""What a provider may be, and which ones there are."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.runtimes.ort import providers
from amp_rewrite.runtimes.ort.device import HOST, device_of
from amp_rewrite.runtimes.ort.providers import (
    add_to_options,
    check_providers,
    check_started,
    devices_of,
)
from amp_rewrite.targets import CPU, CUDA, Target


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], r"must be a list of execution providers; found \[\]; pass providers="),
        (CPU, "must be a list of execution providers; found 'CPU"),
        ([3], "must be a name, or a tuple of a name and options; found 3"),
        ([(CPU,)], "must be a name, or a tuple"),
        ([(CPU, "x")], "must be a name, or a tuple"),
        (
            [CPU, "Nope"],
            r"has no such execution provider; found 'Nope'; expected .*CPU.* or OpenVINO; install",
        ),
    ],
)
def test_what_is_not_a_provider_is_refused(given: list, text: str):
    with pytest.raises(OptionError, match=text):
        check_providers(given)


def test_a_provider_that_did_not_start_is_an_error():
    check_started([(CUDA, {}), CPU], [CUDA, CPU])
    with pytest.raises(RunError, match=r"CUDAE.*: ONNX Runtime cannot start .* it would use CPU"):
        check_started([CUDA, CPU], [CPU])


FAKE = "FakeExecutionProvider"


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add targets whose providers are plugins, and forget what was registered."""
    monkeypatch.setattr(
        targets,
        "TARGETS",
        (
            *targets.TARGETS,
            Target("fake", "cuda", FAKE, plugin="fake_plugin"),
        ),
    )
    providers._register.cache_clear()
    yield
    providers._register.cache_clear()


class FakeRuntime(SimpleNamespace):
    """Takes plugins as ONNX Runtime does; a library brings two devices."""

    def __init__(self, *, brings: int = 2) -> None:
        super().__init__(__version__="1.99", registered=[], brings=brings)

    def register_execution_provider_library(self, name: str, path: str) -> None:
        if path == "broken.so":
            raise RuntimeError("cannot load broken.so\nin some file")
        assert name not in self.registered, "ONNX Runtime takes a library once"
        self.registered.append(name)

    def get_ep_devices(self) -> list[Any]:
        own = [SimpleNamespace(ep_name=CPU)]
        return own + [SimpleNamespace(ep_name=FAKE, number=n) for n in self._numbers()]

    def _numbers(self) -> range:
        return range(self.brings if self.registered else 0)


class FakeOptions(SimpleNamespace):
    """Remembers which devices were added."""

    def __init__(self) -> None:
        super().__init__(added=[])

    def has_providers(self) -> bool:
        return bool(self.added)

    def add_provider_for_devices(self, devices: list[Any], options: dict[str, str]) -> None:
        if "nonsense" in options:
            raise ValueError("unknown option nonsense")
        self.added.append((devices, options))


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(providers, "import_runtime", lambda: fake)
    package = SimpleNamespace(get_library_path=lambda: "fake.so")
    monkeypatch.setitem(sys.modules, "fake_plugin", package)
    return fake


def test_a_plugin_is_registered_once_and_then_has_devices(runtime: FakeRuntime):
    for _ in range(2):
        assert [d.number for d in devices_of(FAKE)] == [0, 1]
    assert runtime.registered == ["fake_plugin"]


def test_a_plugin_is_a_provider_whose_tensors_lie_where_its_target_says(runtime: FakeRuntime):
    check_providers([(FAKE, {"device_id": 1})])
    assert device_of([FAKE]) == HOST
    assert runtime.registered == ["fake_plugin"]


def test_options_name_the_devices_of_all_providers_but_the_cpu(runtime: FakeRuntime):
    options = FakeOptions()
    add_to_options(options, [(FAKE, {"device_id": "1", "layout": 2}), (CPU, {})])
    (((device,), settings),) = options.added
    assert device.number == 1
    assert settings == {"layout": "2"}
    add_to_options(options, [(FAKE, {})])  # a second session of the same options
    assert len(options.added) == 1


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"device_id": 2}, OptionError, "no such device; found 2; expected a number below 2"),
        ({"nonsense": 1}, RunError, "cannot use FakeExecutionProvider; found unknown option"),
    ],
)
def test_what_a_plugin_does_not_take_is_refused(
    given: dict, error: type[amp.AmpError], text: str, runtime: FakeRuntime
):
    with pytest.raises(error, match=text):
        add_to_options(FakeOptions(), [(FAKE, given)])


def test_every_reason_why_a_plugin_cannot_be_used_is_an_error(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "fake_plugin", None)
    with pytest.raises(OptionError, match=r"fake_plugin: .*not installed; pip install fake-plugin"):
        devices_of(FAKE)
    broken = SimpleNamespace(get_library_path=lambda: "broken.so")
    monkeypatch.setitem(sys.modules, "fake_plugin", broken)
    with pytest.raises(RunError, match=r"cannot register fake_plugin; found cannot load broken.so"):
        devices_of(FAKE)
    broken.get_library_path = lambda: "fake.so"
    runtime.brings = 0
    with pytest.raises(OptionError, match="FakeExecutionProvider: there is no device for the exec"):
        devices_of(FAKE)


@pytest.mark.webgpu
def test_a_plugin_computes_in_float16(webgpu: str):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[2,2] x) => (float[2,2] y) { h = MatMul(x, x) y = Mul(h, h) }"
    )
    low = amp.rewrite(model, target="schema", level="UNSAFE_FORCE_ALL").model
    x = np.full((2, 2), 40, np.float32)  # (2 x 40 x 40)^2 is infinite in float16 alone
    evaluator = amp.Evaluator(low, emulate=False, providers=[webgpu])
    assert np.isinf(evaluator.run({"x": x})["y"]).all()
    device = verify(model, low, {"x": x / 20}, providers=[webgpu]).device
    assert device is not None
    assert device.error is None
    assert device.outputs[0].ok
