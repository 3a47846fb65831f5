"""The processor, and its instructions for low precision."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

# as /proc/cpuinfo has them; those of x86 in the order in which oneDNN counts them
_INSTRUCTIONS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16"),
    "bf16",
)

_LIMITS = {
    "SSE41": 0,
    "AVX": 0,
    "AVX2": 1,
    "AVX2_VNNI": 1,
    "AVX2_VNNI_2": 1,
    "AVX512_CORE": 2,
    "AVX512_CORE_VNNI": 3,
    "AVX512_CORE_BF16": 4,
    "AVX512_CORE_FP16": 5,
    "AVX10_1_512": 5,
    "AVX512_CORE_AMX": 6,
    "AVX10_1_512_AMX": 6,
}
"""Value of ONEDNN_MAX_CPU_ISA, as oneDNN's documentation of CPU dispatcher control has them -> how
many of `_INSTRUCTIONS` stay; others do not limit them."""


@cache
def _cpuinfo() -> dict[str, str]:
    """Return what Linux says of the processor; nothing on other systems."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    return {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}


def processor_name() -> str:
    """Return what the processor is called."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def is_arm() -> bool:
    """Return whether this machine has an Arm processor."""
    return platform.machine().lower() in ("arm64", "aarch64")


def instructions() -> tuple[str, ...]:
    """Return the processor's instructions for low precision, as Linux calls them; () elsewhere."""
    flags = (_cpuinfo().get("flags") or _cpuinfo().get("Features") or "").split()
    return tuple(flag for flag in _INSTRUCTIONS if flag in flags)


def onednn_instructions() -> tuple[str, ...]:
    """Return those that oneDNN, and so OpenVINO, uses: ONEDNN_MAX_CPU_ISA may allow only some."""
    limit = _LIMITS.get(os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper(), len(_INSTRUCTIONS))
    allowed = _INSTRUCTIONS[:limit]
    return tuple(flag for flag in instructions() if flag in allowed)
