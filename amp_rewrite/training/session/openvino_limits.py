"""What a session on OpenVINO refuses or warns of, since the engine cannot do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import FeedError, OptionError, StepError
from amp_rewrite.runtimes.openvino.package import computes_in, core
from amp_rewrite.runtimes.openvino.wide_arithmetic import exceeds
from amp_rewrite.runtimes.ort.ort_values import is_ort_value, shared_array
from amp_rewrite.targets import CPU, OPENVINO
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.step.step_info import StepInfo


def check_openvino(info: StepInfo, options: object, *, emulate: bool) -> None:
    """Refuse what OpenVINO cannot do for a session, and warn of what it does otherwise.

    Raises:
        OptionError: Options of ONNX Runtime, or emulation, are asked for.
        StepError: A state is a float64 tensor.
        RuntimeMissingError: OpenVINO is not installed, or too old.
        RunError: It has no device.
    """
    core()
    if options is not None:
        raise OptionError(
            "OpenVINO does not take the options of a session of ONNX Runtime",
            remedy=f"leave options out, or pass providers=[({OPENVINO!r}, {{property: value}})]",
        )
    if emulate:
        raise OptionError(
            "OpenVINO cannot emulate low precision: it leaves out casts to float16 and back",
            remedy=f"emulate on {CPU}, or leave emulate out",
        )
    _check_states(info)
    if info.precision in LOW and not computes_in(info.precision):
        global_state.warn_once(
            f"{OPENVINO}-{info.precision}",
            f"this processor has no instructions for {info.precision}: OpenVINO computes it in "
            "float32, and gains nothing. The step runs as asked for.",
        )


def check_fed_integers(feeds: Mapping[str, Any]) -> None:
    """Refuse integers that are beyond the 32 bits in which OpenVINO computes.

    Raises:
        FeedError: An array has one.
    """
    for name, tensor in feeds.items():
        array = shared_array(tensor) if is_ort_value(tensor) else tensor
        if exceeds(array):
            raise FeedError(
                f"the feed {name!r} has an integer beyond 32 bits, which {OPENVINO} cuts off",
                found=f"{array.min()} to {array.max()}",
                expected="-2147483648 to 2147483647",
                remedy=f"train with {CPU}",
            )


def _check_states(info: StepInfo) -> None:
    """Refuse tensors of float64 among the states; single numbers are ONNX Runtime's affair."""
    for state in info.states:
        if state.dtype == "double" and state.shape not in ((), (1,)):
            raise StepError(
                f"{OPENVINO} computes float64 in float32",
                where=f"state {state.name!r}",
                found="float64",
                expected="float32 or lower",
                remedy=f"train it with {CPU}, or store the model in float32",
            )
