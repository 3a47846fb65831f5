"""Lines and the table of a report's text, each from the records that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from amp_rewrite.base.printable import counted
from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.rewriting.report.phrases import plain_phrase
from amp_rewrite.rewriting.report.records import (
    AlignmentRecord,
    OpsetAdvice,
    RaisedOpset,
    StoredRecord,
    Summary,
    TwiceRecord,
    UnmatchedRule,
)

if TYPE_CHECKING:
    from rich.table import Table


MOST_REASONS = 12
"""How many (reason, operator) rows the table shows."""

_MOST_LENGTHS = 4
"""How many lengths that tensor cores do not fill the text shows."""

_MOST_RULES = 3
"""How many rules that match nothing the text shows."""


def raised_line(raised: RaisedOpset, opset: int, compute_converted: float) -> str:
    """Return how the model came to its opset, and what that gained of low multiply-accumulates."""
    checked = "same outputs in float32"
    if raised.unverified is not None:
        checked = f"outputs not compared: {raised.unverified}"
    changes = [f"opset {raised.before} raised to {opset}"] if raised.before != opset else []
    if raised.folded:
        changes.append(f"{counted(raised.folded, 'operator')} computed into weights")
    if raised.spelled:
        changes.append(f"{counted(raised.spelled, 'Einsum')} written as matrix products")
    return (
        f"{', '.join(changes)} ({checked}): it converts "
        f"{compute_converted:.1%} instead of {raised.compute_before:.1%}"
    )


def mended_shapes_line(names: Sequence[str]) -> str:
    """Return which declared shapes were wrong; there is at least one."""
    first = "" if len(names) == 1 else ", the first"
    return (
        f"mended: {counted(len(names), 'declared shape')} contradicted inference and "
        f"{'has' if len(names) == 1 else 'have'} the inferred form{first}: {names[0]}"
    )


def axes_line(count: int) -> str:
    """Return how many operands of products got axes, without which a runtime loads no file."""
    return (
        f"{counted(count, 'matrix product')} {'has' if count == 1 else 'have'} operands of one "
        "rank now: ONNX Runtime 1.32 does not load the file otherwise"
    )


def opset_line(advice: OpsetAdvice, precision: str) -> str:
    """Return what a newer opset would gain, and which operators would lose their kernels."""
    gain = (
        f"opset {advice.opset} would let up to {advice.compute_converted:.1%} of the "
        f"multiply-accumulates be {precision}"
    )
    if not advice.lost:
        return f"{gain}: convert --opset {advice.opset}"
    lost = ", ".join(advice.lost)
    return (
        f"{gain}, but the target has no kernel for {lost} there, which would run on the CPU; "
        f"convert --opset {advice.opset} moves the model all the same"
    )


def cast_line(summary: Summary) -> str:
    """Return how many bytes casts move."""
    known, unknown = f"{summary.cast_bytes:,} bytes a run", summary.casts_of_unknown_size
    if not unknown:
        return f"casts move {known}"
    return f"casts move {known}, without {unknown} of unknown size (--explain-casts infers shapes)"


def alignment_line(alignment: Sequence[AlignmentRecord]) -> str:
    """Return which lengths tensor cores do not fill; there is at least one."""
    shown = [f"{a.node} ({a.dimension} {a.length})" for a in alignment[:_MOST_LENGTHS]]
    more = ["..."] if len(alignment) > _MOST_LENGTHS else []
    lengths = "length of low products is" if len(alignment) == 1 else "lengths of low products are"
    return (
        f"tensor cores: {len(alignment)} {lengths} not a multiple of "
        f"{alignment[0].multiple}: {', '.join(shown + more)}"
    )


def unmatched_line(rules: Sequence[UnmatchedRule]) -> str:
    """Return which rules about nodes match nothing in the model; there is at least one."""
    more = ["..."] if len(rules) > _MOST_RULES else []
    shown = ", ".join([*map(str, rules[:_MOST_RULES]), *more])
    return f"{counted(len(rules), 'node rule')} without a match in the model: {shown}"


def stored_line(stored: Sequence[StoredRecord]) -> str:
    """Return what storing float32 constants in 16 bits saves and loses; there is at least one."""
    saved = sum(record.bytes_saved for record in stored)
    small = sum(record.small for record in stored)
    worst = max(record.largest_relative for record in stored)
    types = " or ".join(dict.fromkeys(record.dtype for record in stored))
    return (
        f"stored in {types} though float32: {len(stored)} constants, {saved:,} bytes less; "
        f"relative error at most {worst:.2g}, {small} elements below the normal numbers"
    )


def twice_line(twice: Sequence[TwiceRecord]) -> str:
    """Return which constants are stored in both types, the largest first; there is at least one."""
    first = twice[0]
    added = sum(record.bytes_added for record in twice)
    return (
        f"stored in both types: {counted(len(twice), 'constant')}, {added:,} bytes more; first "
        f"{first.name}, which {first.low_reader} reads low and {first.float32_reader} as float32"
    )


def reason_table(reasons: Mapping[tuple[str, str], int], precision: str, target: str) -> Table:
    """Return the table of what stays float32: (reason, operator) -> how many nodes, in order."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="stays float32", title_justify="left", box=None, pad_edge=False)
    table.add_column("nodes", justify="right")
    table.add_column("operator")
    table.add_column("because it")
    for (reason, op), count in list(reasons.items())[:MOST_REASONS]:
        said = plain_phrase(reason, precision, target)
        table.add_row(str(count), op, Text(f"{said} ").append(f"({reason})", "dim"))
    rest = sum(list(reasons.values())[MOST_REASONS:])
    if rest:
        table.add_row(str(rest), "...", "the JSON report names every node")
    return table


class _Generation(NamedTuple):
    """The first GPUs with tensor cores for a type.

    Attributes:
        capability: Their compute capability.
        name: What NVIDIA calls them, and some of them.
    """

    capability: str
    name: str


GENERATIONS = {
    FLOAT16.name: _Generation("7.0", "Volta: V100; then T4, RTX 20"),
    BFLOAT16.name: _Generation("8.0", "Ampere: A100, A10, RTX 30"),
}
"""Since when `wmma` multiplies matrices of a type: sm_70 for .f16, sm_80 for .bf16 (NVIDIA, "PTX
ISA", sections "wmma" and "mma", "Target ISA Notes",
https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions)."""


def device_lines(precision: str, multiple: int | None) -> Iterator[str]:
    """Yield the advice in words; `multiple` is that of free lengths, None without tensor cores."""
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
