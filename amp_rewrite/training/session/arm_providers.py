"""Training on Arm: the CPU provider of a machine that has such a processor itself."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from amp_rewrite import targets
from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.ort.arm64.machine import is_arm
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import ARM64, CPU


def on_arm(providers: Sequence[Provider], target: str | None, *, emulate: bool) -> list[Provider]:
    """Return the providers of a session, the CPU provider in place of the one on Arm.

    Args:
        providers: Those that were asked for.
        target: The target that was named.
        emulate: Whether the session emulates its target, which any machine does.

    Raises:
        OptionError: The provider or the target is that on Arm, and this machine is none: a session
            would train on another processor.
    """
    asked = any(name_and_options(provider)[0] == ARM64 for provider in providers)
    meant = target is not None and not emulate and targets.find(target).provider == ARM64
    if not asked and not meant:
        return list(providers)
    if not is_arm():
        raise OptionError(
            f"TrainingSession trains for {ARM64} on Arm machines only",
            found=platform.machine(),
            expected="arm64 or aarch64",
            remedy="run it there, pass emulate=True for its arithmetic, or write a step with "
            f"amp-rewrite train-step --target {ARM64}, which ONNX Runtime on Arm runs",
        )
    return [CPU if name_and_options(each)[0] == ARM64 else each for each in providers]
