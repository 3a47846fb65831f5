"""Limits of devices that a session refuses, or warns of: OpenVINO, Arm, slow 16-bit types."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.processor import is_arm
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import FeedError, OptionError, StepError
from amp_rewrite.runtimes.openvino.package import computes_in, core
from amp_rewrite.runtimes.openvino.wide_arithmetic import exceeds
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import is_ort_value, shared_array
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import ARM64, CPU, OPENVINO
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.step.step_info import StepInfo


def check_openvino(info: StepInfo, options: object, *, emulate: bool) -> None:
    """Refuse what OpenVINO cannot do for a session, and warn where a type gains nothing."""
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
    for state in info.states:  # ONNX Runtime computes single numbers
        if state.dtype == "double" and state.shape not in ((), (1,)):
            raise StepError(
                f"{OPENVINO} does not round states of this type as ONNX says",
                where=f"state {state.name!r}",
                found="float64",
                expected="float32",
                remedy=f"train it with {CPU}, or store the model in float32",
            )
    if info.precision in LOW and not computes_in(info.precision):
        global_state.warn_once(
            f"{OPENVINO}-{info.precision}",
            f"this processor has no instructions for {info.precision}: OpenVINO computes it in "
            "float32, and gains nothing. The step runs as asked for.",
        )


def check_fed_integers(feeds: Mapping[str, Any]) -> None:
    """Refuse integers that are beyond the 32 bits in which OpenVINO computes."""
    for name, tensor in feeds.items():
        array = shared_array(tensor) if is_ort_value(tensor) else tensor
        if exceeds(array):
            raise FeedError(
                f"the feed {name!r} has an integer beyond 32 bits, which {OPENVINO} cuts off",
                found=f"{array.min()} to {array.max()}",
                expected="-2147483648 to 2147483647",
                remedy=f"train with {CPU}",
            )


def on_arm(providers: Sequence[Provider], target: str | None, *, emulate: bool) -> list[Provider]:
    """Return the providers of a session, the CPU provider in place of that on Arm.

    Other machines refuse that provider, and its target unless the session emulates it.
    """
    asked = any(name_and_options(provider)[0] == ARM64 for provider in providers)
    meant = target is not None and not emulate and targets.find(target).provider == ARM64
    if (asked or meant) and not is_arm():
        raise OptionError(
            f"TrainingSession trains for {ARM64} on Arm machines only",
            found=platform.machine(),
            expected="arm64 or aarch64",
            remedy="run it there, pass emulate=True for its arithmetic, or write a step with "
            f"amp-rewrite train-step --target {ARM64}, which ONNX Runtime on Arm runs",
        )
    return [CPU if name_and_options(each)[0] == ARM64 else each for each in providers]


def warn_if_slow(precision: str, device: Device) -> None:
    """Warn, once per process, of 16-bit types on a CPU."""
    if precision in LOW and device.is_host:
        global_state.warn_once(
            "slow-device",
            f"{precision} on a CPU is slower than float32: ONNX Runtime has few {precision} "
            "kernels there, and computes the others in float32; it pays on CUDA devices of compute "
            "capability 7.0 or more. To round as they do, use --emulate (emulate=True in Python).",
        )


def warn_if_unknown(provider: Provider) -> None:
    """Warn, once per process, of a provider that is no target's.

    One was met that gave back old values, or zeros, of the states that another device had computed.
    """
    name = name_and_options(provider)[0]
    if targets.of_provider(name) is None:
        global_state.warn_once(
            f"unknown-{name}",
            f"nobody has tried to train with {name}: compare the first losses with those of {CPU}",
        )
