"""What holds for every test."""

import gc
import os

# Threads of ONNX Runtime and of BLAS that wait for work take the cores from the other workers. Set
# before numpy is loaded, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensorrt_judge
from chromium import find_chromium, missing
from hypothesis import find, settings
from hypothesis.strategies import booleans
from loaded_here import loaded_here
from resources import give_back, has_amx, memory, peak_memory
from thinned import mark_rest
from tools_installed import REQUIRED

from amp_rewrite.errors import OptionError, RuntimeMissingError
from amp_rewrite.runtimes.openvino.package import computes_in
from amp_rewrite.runtimes.openvino.package import import_runtime as import_openvino
from amp_rewrite.runtimes.ort.providers import devices_of
from amp_rewrite.training.global_state import global_state

# A shell lets what it runs in the background ignore SIGINT, which all processes from here on would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A time says nothing on a machine with others; in CI a second run tries what the first one tried.
settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")

WEBGPU = "WebGpuExecutionProvider"

PEAK = 3 << 29
"""What a process may ever hold: two processes, and what they start, fit 4 GiB."""

ALONE = 3 << 30
"""The same where tests run one at a time, on an engine with memory of its own in the process."""

ADDED = 1 << 30
"""What a test may add to what the process holds: in any order the tests stay below the peak."""

GARBAGE = 1 << 27
"""Growth that is worth a collection, which takes as long as ten tests: models are rings of objects,
which wait for one.
"""


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the fast suite its share of the tests that have many parameter sets."""
    mark_rest(items)


def pytest_collection_finish() -> None:
    """Let no later collection look at the tests themselves: 13,000 of them, which all stay.

    Hypothesis 6.100 looks for who holds its generator of random numbers when it first runs, and
    does not find a holder that is frozen: it runs here first.
    """
    find(booleans(), bool, settings=settings(database=None))
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # `_collect_what_has_grown` looks at what is held


_kept = 0
"""The least that the process held since the last collection."""


@pytest.fixture(autouse=True)
def _nothing_is_set_for_the_process() -> Iterator[None]:
    """Let no test see what another one has enabled, registered or been warned of."""
    global_state.reset()
    yield
    global_state.reset()


@pytest.fixture(autouse=True)
def _files_are_loaded_in_this_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load files without a process for each, unless a test is marked `own_process`.

    The start of one takes half a second, and most tests that check or repair a file are not about
    files that end it.
    """
    if request.node.get_closest_marker("own_process") is None:
        monkeypatch.setattr("amp_rewrite.runtimes.ort.isolated_load._run_apart", loaded_here)


@pytest.fixture(autouse=True)
def _the_process_stays_small(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that takes this process beyond a limit, unless it is slow.

    Tests with other tools import TensorFlow and PyTorch, which alone take more.
    """
    if not sys.platform.startswith("linux") or os.environ.get(REQUIRED) == "required":
        yield
        return
    _collect_what_has_grown()
    held, highest = memory(), peak_memory()
    yield
    peak = peak_memory()
    is_own = peak > highest  # the peak may be that of an earlier test
    most = ALONE if any(map(request.node.get_closest_marker, ("openvino", "webgpu"))) else PEAK
    too_much = peak > most or peak - held > ADDED
    if is_own and too_much and request.node.get_closest_marker("slow") is None:
        pytest.fail(
            f"this test added {peak - held >> 20} MiB to the {held >> 20} that the process held; "
            f"at most {ADDED >> 20} may be added, and {most >> 20} held in all"
        )


def _collect_what_has_grown() -> None:
    global _kept
    held = memory()
    if held > _kept + GARBAGE:
        give_back()
        held = _kept = memory()
    _kept = min(_kept, held)


@pytest.fixture(scope="session")
def webgpu() -> str:
    """Return the WebGPU provider where it has a device, if only an emulated one.

    A test that uses it has the mark webgpu. tools/software_vulkan.py provides a device.
    """
    try:
        devices_of(WEBGPU)
    except OptionError as error:
        if os.environ.get("AMP_WEBGPU") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))
    return WEBGPU


@pytest.fixture(scope="session")
def arm64() -> Any:
    """Return what runs models on an Arm processor, where there is one, if only an emulated one.

    A test that uses it has the mark arm64. tools/arm64/make_arm64.py makes one.
    """
    from arm_processor import ArmEvaluator, check_machine  # it imports the whole emulation

    try:
        check_machine()
    except OptionError as error:
        if os.environ.get("AMP_ARM64") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))
    return ArmEvaluator


@pytest.fixture(scope="session")
def openvino() -> Any:
    """Return OpenVINO where it is installed, which needs no more than a CPU.

    A test that uses it has the mark openvino. The extra openvino installs it.
    """
    try:
        return import_openvino()
    except RuntimeMissingError as error:
        if os.environ.get("AMP_OPENVINO") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bfloat16_processor(openvino: Any) -> None:
    """Skip a test where the processor has no instructions for bfloat16."""
    if not computes_in("bfloat16"):
        pytest.skip("the processor has no instructions for bfloat16")


@pytest.fixture(scope="session")
def measured_processor(bfloat16_processor: None) -> None:
    """Skip a test of what OpenVINO rounds as one on a processor of which that was not measured."""
    if has_amx():
        pytest.skip(
            "the table of rounding is of processors without AMX; with it OpenVINO fuses more"
        )


@pytest.fixture(scope="session")
def tensorrt() -> tensorrt_judge.Judge:
    """Return TensorRT-RTX where it is installed, which needs no GPU.

    A test that uses it has the mark tensorrt. The extra tensorrt installs it.
    """
    try:
        return tensorrt_judge.Judge()
    except ImportError as error:
        if os.environ.get("AMP_TENSORRT") == "required":
            pytest.fail(f"TensorRT-RTX is not installed: {error}")
        pytest.skip(f"TensorRT-RTX is not installed: {error}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Return a headless Chromium that playwright has started, where there are both.

    A test that uses it has the mark browser.
    """
    path = find_chromium()
    if path is None:
        missing("Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    else:
        with sync_playwright() as playwright:
            # Chromium's own sandbox needs rights that containers rarely give; what is opened here
            # was written by the tests.
            yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
