"""Targets: what a rewrite is made for. The only file that knows one by its name.

A new target is a row of TARGETS, its name in TargetName, its op lists and its kernel table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from amp_rewrite.base.hints import give_hints
from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32, LOW, DType
from amp_rewrite.errors import KernelTableError, OptionError

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
WEBGPU = "WebGpuExecutionProvider"
DIRECTML = "DmlExecutionProvider"
COREML = "CoreMLExecutionProvider"

TENSORRT = "TensorRT"
"""Its name in the kernel table of TensorRT: the library, which no provider has to run."""

OPENVINO = "OpenVINO"
"""Its name as a provider and in the kernel table of OpenVINO: an engine of its own, beside ONNX
Runtime, which this package uses directly."""

ARM64 = "cpu-arm64"
"""The name of ONNX Runtime's CPU provider on an Arm processor, where it computes float16: its
kernels are others than on x86-64, and the processor may be emulated."""

NEEDS_A_DRIVER = "install the driver that it needs, or use another provider"

ONNX_RUNTIME = "onnxruntime_1.31.1"
"""The table of what ONNX Runtime fuses, on whatever provider."""


def _data() -> Traversable:
    """Return the package amp_rewrite.lists, or lists/ of a checkout that is not installed."""
    if find_spec("amp_rewrite.lists") is not None:
        return files("amp_rewrite.lists")
    return Path(__file__).resolve().parents[1] / "lists"


DATA = _data()
"""The folder with the op lists of all targets, kernel tables in kernels/, schemas in schemas/."""


@dataclass(frozen=True, slots=True)
class Target:
    """The facts about a target.

    Attributes:
        name: Its name in options and errors.
        lists: Whose op lists it uses: lists/<precision>_<lists>.yaml, whose `target` is this name.
        provider: The execution provider of ONNX Runtime that it stands for, or the engine beside
            it (OPENVINO), or None for any.
        plugin: The Python package that brings the provider, for ONNX Runtime's
            register_execution_provider_library; None if ONNX Runtime has it built in.
        needs: What the provider needs besides packages, and how to get it, for errors.
        device: ONNX Runtime's name of the memory that the provider computes in.
        kernels: Whose kernel table says what can be 16-bit: lists/kernels/<kernels>_<version>.json,
            or the path of a table, which ends in .json; None admits whatever the ONNX schemas do.
        fusions: The table of groups of nodes that it computes as one operator:
            lists/fusions/<fusions>.json; None if that is not known, or differs by part.
        rounding: The table of nodes that it computes as one, without rounding between:
            lists/fusions/rounding_<rounding>.json; None if it rounds every result, or is unknown.
        tensor_cores: Whether float16 products have units of their own, which the levels
            TENSOR_CORES_ONLY and UNSAFE_FORCE_ALL are about.
        precisions: The 16-bit types that its kernels compute in.
        accumulates_in: The type of its kernels' partial sums. A 16-bit type is kept in sums of that
            type only: a CPU may add float16 in float16, but bfloat16 in float32.
        narrow_stash: The operators that it computes in float32 inside, whatever their stash_type
            says, after casting their inputs to that type: a 16-bit type saves these casts.
        converts_rows: Whether it converts single rows of a 16-bit table, rather than the table.
        opset: The opset of ai.onnx to which an older model is moved where that gives it more
            kernels of the 16-bit type; None if models stay as they are.
        parts: The targets that it stands for together; its kernels are those that all have.
    """

    name: str
    lists: str
    provider: str | None = None
    plugin: str | None = None
    needs: str = NEEDS_A_DRIVER
    device: str = "cpu"
    kernels: str | None = None
    fusions: str | None = None
    rounding: str | None = None
    tensor_cores: bool = False
    precisions: tuple[str, ...] = tuple(LOW)
    accumulates_in: DType = FLOAT32
    narrow_stash: tuple[str, ...] = ()
    converts_rows: bool = False
    opset: int | None = None
    parts: tuple[Target, ...] = ()

    @property
    def list_owners(self) -> tuple[str, ...]:
        """Whose op lists it uses, of all its parts."""
        return tuple(dict.fromkeys(part.lists for part in self.parts or (self,)))

    @property
    def meets_onnx_runtime(self) -> bool:
        """Whether models for it are loaded by ONNX Runtime: to run, or at least to be compared."""
        return any(part.kernels != OPENVINO for part in self.parts or (self,))

    def check_precision(self, precision: str) -> None:
        """Refuse a 16-bit type that the target does not compute in."""
        if precision not in self.precisions:
            remedy = "name fewer targets"
            if self.precisions:
                remedy = f"use precision {self.precisions[0]}, or another target"
            raise OptionError(
                f"target {self.name} does not compute in {precision}",
                expected=" or ".join(self.precisions) or "targets that compute in one 16-bit type",
                remedy=remedy,
            )


TargetName = Literal[
    "cuda", "cpu", "cpu-arm64", "webgpu", "tensorrt", "directml", "coreml", "openvino", "schema"
]
TargetChoice = TargetName | str
"""A target, the path of a kernel table, or several of both with commas between."""

ANY = "any"
"""One file for everybody: what all targets of ONNX Runtime can do that people have at home."""

_ANYWHERE = frozenset({"cuda", "webgpu", "directml", "cpu-arm64"})

DEFAULT: TargetName = "cuda"
SCHEMA: TargetName = "schema"
BROWSERS: TargetName = "webgpu"
"""The target of models for transformers.js."""

TARGETS: tuple[Target, ...] = (
    Target(
        "cuda",
        "cuda",
        CUDA,
        device="cuda",
        kernels=CUDA,
        fusions=ONNX_RUNTIME,
        tensor_cores=True,
    ),
    Target("cpu", "cpu", CPU, kernels=CPU, fusions=ONNX_RUNTIME),
    Target(
        "cpu-arm64",
        "cpu-arm64",
        ARM64,
        needs="run this on an Arm machine, or see docs/arm.md for an emulated one",
        kernels=ARM64,
        fusions=ONNX_RUNTIME,
        precisions=(FLOAT16.name,),
        accumulates_in=FLOAT16,
        opset=17,  # MaxPool begins at 12, Add, Sub, Mul and Div at 14; AveragePool ends at 18
    ),
    Target(
        "webgpu",
        "webgpu",
        WEBGPU,
        plugin="onnxruntime_ep_webgpu",
        needs="install a GPU's Vulkan, Metal or Direct3D 12 driver, or for one that computes on "
        'the CPU run `eval "$(python tools/software_vulkan.py .cache/vulkan)"`',
        device="webgpu",
        kernels=WEBGPU,
        fusions=ONNX_RUNTIME,
        precisions=(FLOAT16.name,),
        accumulates_in=FLOAT16,
    ),
    Target("tensorrt", "tensorrt", kernels=TENSORRT, tensor_cores=True),
    Target(
        "directml",
        "directml",
        DIRECTML,
        device="dml",
        kernels=DIRECTML,
        fusions=ONNX_RUNTIME,
        precisions=(FLOAT16.name,),
        accumulates_in=FLOAT16,
    ),
    Target(
        "coreml",
        "directml",
        COREML,
        kernels=COREML,
        precisions=(FLOAT16.name,),
        accumulates_in=FLOAT16,
    ),
    Target(
        "openvino",
        "openvino",
        OPENVINO,
        kernels=OPENVINO,
        rounding="openvino_2026.4",
        precisions=(BFLOAT16.name,),
        # operators: those with a stash_type that OpenVINO's frontend casts to.
        narrow_stash=("LayerNormalization", "RMSNormalization"),
        converts_rows=True,
    ),
    Target("schema", "cuda", tensor_cores=True),
)


def find(name: str) -> Target:
    """Return a target by its name, or by the path of a kernel table, which ends in .json.

    Several with commas between are what all of them support; "any" is several that are named here.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise _unknown(name)
    if name.strip().lower() == ANY:
        return _together(ANY, tuple(target for target in TARGETS if target.name in _ANYWHERE))
    parts = tuple(dict.fromkeys(_one(part.strip()) for part in name.split(",")))
    return parts[0] if len(parts) == 1 else _together(name, parts)


def spelled(name: object) -> str:
    """Return a choice of targets with their names as they are written here, whatever the case."""
    if not isinstance(name, str):
        raise _unknown(name)
    return ",".join(part if is_table(part) else _named(part) for part in name.split(","))


def _one(name: str) -> Target:
    name = name if is_table(name) else _named(name)
    for target in TARGETS:
        if target.name == name:
            return target
    if is_table(name):
        return _of_table(name)
    raise _unknown(name)


_ARM_NAMES = frozenset({"arm", "arm64", "aarch64", "armv8", "cpu-arm", "arm64-v8a"})
"""Other names of Arm processors."""


def provider_hint(name: str) -> str | None:
    """Return what a provider is called that a name may mean; None if it is a name or means none."""
    if name == ARM64 or name.strip().lower() in _ARM_NAMES:
        return (
            f"name {CPU} on an Arm machine; elsewhere verify --target {ARM64} emulates its "
            "arithmetic"
        )
    runnable = (target.name for target in TARGETS if target.provider)
    return None if of_provider(name) else did_you_mean(name, runnable)


_ALIASES = {
    "trt": "tensorrt",
    "tensorrtexecutionprovider": "tensorrt",
    "nvtensorrtrtxexecutionprovider": "tensorrt",
    "dml": "directml",
    "ov": "openvino",
    "openvinoexecutionprovider": "openvino",
    "jsexecutionprovider": "webgpu",
    **{t.provider.lower(): t.name for t in TARGETS if t.provider not in (None, ARM64)},
}
"""Other names of targets, in small letters: short names, and their execution providers."""

_SEVERAL = {
    **dict.fromkeys(
        _ARM_NAMES, f"did you mean {ARM64}? ONNX Runtime's CPU provider on Arm processors"
    ),
    "gpu": "which? cuda for NVIDIA, directml for Windows, webgpu for browsers, coreml for Apple",
    **dict.fromkeys(
        ("ort", "onnxruntime"),
        "name the provider that runs the model: cuda, cpu, webgpu, directml or coreml",
    ),
    **dict.fromkeys(("web", "browser", "wasm"), f"did you mean {BROWSERS}?"),
    **dict.fromkeys(("nvidia", "rocm", "amd"), "did you mean cuda, or tensorrt?"),
    **dict.fromkeys(("apple", "mps", "metal", "mac"), "did you mean coreml?"),
    "all": "name one target after another; `check --target all` was removed in 0.1.0",
    **dict.fromkeys(
        ("npu", "tpu", "qnn"), "did you mean any, or `schema` for whatever ONNX admits?"
    ),
}
"""Words of users that mean several targets, or are close to one -> which to choose from."""


def _named(name: str) -> str:
    """Return a target's name as it is written here, of a short name or a provider's too."""
    name = name.strip().lower()
    return _ALIASES.get(name, name)


def target_hint(name: object) -> str | None:
    """Return what to ask for instead of a name that is no target's."""
    return _SEVERAL.get(name.strip().lower()) if isinstance(name, str) else None


def _unknown(name: object) -> OptionError:
    names = (*(target.name for target in TARGETS), ANY)
    return OptionError(
        "unknown target",
        found=repr(name),
        expected=" or ".join(names),
        remedy=target_hint(name)
        or did_you_mean(str(name), names)
        or "or name a kernel table, a .json file that tools/make_kernel_table.py writes",
    )


def is_table(kernels: str) -> bool:
    """Return whether `Target.kernels` is the path of a table rather than the name of one."""
    return kernels.endswith(".json")


def _of_table(path: str) -> Target:
    """Return the target of a kernel table, with the kernels of the table.

    For a provider without a target, op lists and the rest are those of target schema.
    """
    try:
        provider = json.loads(Path(path).read_text("utf-8"))["provider"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelTableError(
            "the kernel table cannot be read",
            where=path,
            found=f"{type(error).__name__}: {error}",
            remedy="make one with tools/make_kernel_table.py",
        ) from error
    target = of_provider(provider) or replace(_one(SCHEMA), provider=provider)
    return replace(target, name=path, kernels=path)


def _together(name: str, parts: tuple[Target, ...]) -> Target:
    """Return the target that has what all of `parts` have."""
    one_provider = len({part.provider for part in parts}) == 1
    adding_low = (p.accumulates_in for p in parts if p.accumulates_in is not FLOAT32)
    return replace(
        parts[0] if one_provider else Target(name, SCHEMA),
        name=name,
        lists=",".join(dict.fromkeys(part.lists for part in parts)),
        kernels=None,
        fusions=None,
        rounding=None,
        tensor_cores=all(part.tensor_cores for part in parts),
        precisions=tuple(p for p in LOW if all(p in part.precisions for part in parts)),
        accumulates_in=next(adding_low, FLOAT32),
        narrow_stash=(),
        converts_rows=False,
        opset=None,
        parts=parts,
    )


def of_provider(provider: str) -> Target | None:
    """Return the target that an execution provider is known from, or None."""
    return next((target for target in TARGETS if target.provider == provider), None)


def provider_named(name: str) -> str:
    """Return the execution provider that a target stands for, of its name; any other name as is."""
    named = (target.provider for target in TARGETS if target.name == _named(name))
    return next((provider for provider in named if provider is not None), name)


def which_cpu(name: str | None) -> str | None:
    """Return what a target called "cpu", or its provider, stands for; None for any other name."""
    if name is None or name.strip().lower() not in ("cpu", CPU.lower()):
        return None
    return (
        f"{name} as a target is an x86-64 processor, where ONNX Runtime computes float16 in "
        f"float32 and has no bfloat16; {ARM64} is the target for Arm processors with float16"
    )


def list_targets() -> tuple[str, ...]:
    """Return the names that op list files may give as their target, "any" left aside."""
    return tuple(dict.fromkeys(target.lists for target in TARGETS))


def with_tensor_cores() -> tuple[str, ...]:
    """Return the names of the targets that have tensor cores."""
    return tuple(target.name for target in TARGETS if target.tensor_cores)


def in_words() -> str:
    """Return the names as the command line's help explains them."""
    tested = ", ".join(target.name for target in TARGETS if target.kernels is not None)
    parts = ", ".join(part.name for part in find(ANY).parts)
    free = ", ".join(target.name for target in TARGETS if target.kernels is None)
    return f"The runtime: {tested}, {ANY} (all of {parts}) or {free} (no limits)."


give_hints(__name__)
