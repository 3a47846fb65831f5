"""Advice about devices in words: which GPUs have tensor cores for a type, and what fills them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.dtypes import BFLOAT16, FLOAT16


class Generation(NamedTuple):
    """The first GPUs with tensor cores for a type.

    Attributes:
        capability: Their compute capability.
        name: What NVIDIA calls them, and some of them.
    """

    capability: str
    name: str


GENERATIONS = {
    FLOAT16.name: Generation("7.0", "Volta: V100; then T4, RTX 20"),
    BFLOAT16.name: Generation("8.0", "Ampere: A100, A10, RTX 30"),
}
"""Since when `wmma` multiplies matrices of a type: sm_70 for .f16, sm_80 for .bf16 (NVIDIA, "PTX
ISA", sections "wmma" and "mma", "Target ISA Notes",
https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions)."""


def device_lines(precision: str, multiple: int | None) -> Iterator[str]:
    """Yield the advice in words.

    Args:
        precision: The low type.
        multiple: What free lengths have to be multiples of; None for a target without tensor cores.
    """
    if multiple is None:
        return
    since = GENERATIONS[precision]
    older = "; older ones have them for float16 alone" if precision == BFLOAT16.name else ""
    yield (
        f"GPUs: tensor cores for {precision} since compute capability {since.capability} "
        f"({since.name}){older}"
    )
    if multiple > 1:
        yield f"batches: multiples of {multiple} fill the tensor cores in all low products"
