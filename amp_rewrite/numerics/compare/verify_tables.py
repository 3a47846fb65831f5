"""The tables of a `verify` report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from amp_rewrite.base.html_table import HtmlTable
from amp_rewrite.base.printable import printable, share
from amp_rewrite.numerics.compare.distance import OutputComparison
from amp_rewrite.numerics.compare.verify_records import DeviceComparison, NodeGrowth

_SLICE = "slice"
_OUTPUT_COLUMNS = (
    *("output", "max abs", "max rel", "cosine", "distance", _SLICE, "within", "NaN", "Inf"),
    *("top-1", ""),
)
_NAME, _GAP = 12, 2
"""To how many characters names are folded in a table, and the spaces between columns."""
_GROWTH_COLUMNS = ("largest error growth", "operator", "error in", "error out", "times")


def html_tables(
    outputs: Sequence[OutputComparison], growth: Sequence[NodeGrowth]
) -> tuple[HtmlTable, HtmlTable]:
    """Return the tables of outputs and of error growth, for a notebook."""
    grown = HtmlTable(_GROWTH_COLUMNS, [_growth_row(node) for node in growth])
    return HtmlTable(*_output_table(outputs)), grown


def print_growth(growth: Sequence[NodeGrowth], console: Console) -> None:
    """Print which nodes magnify the error most, if any does."""
    if growth:
        _print_table(_GROWTH_COLUMNS, [_growth_row(node) for node in growth], console)


def print_device(device: DeviceComparison, console: Console) -> None:
    """Print what a device made of the model."""
    names = ", ".join(device.providers)
    if device.error is not None:
        console.print(f"{names} could not run the model: {device.error}")
        _print_excuses(device, console)
        return
    console.print(f"{names} against the emulation:")
    print_outputs(device.outputs, console)
    console.print(f"{names} against the original:")
    print_outputs(device.original, console)
    _print_excuses(device, console)
    for line in device.notes:
        console.print(line)


def _print_excuses(device: DeviceComparison, console: Console) -> None:
    """Print what is not among the failures."""
    for line in () if device.asked else device.excuses:
        console.print(line)


def print_outputs(outputs: Sequence[OutputComparison], console: Console) -> None:
    """Print how far the outputs are off."""
    _print_table(*_output_table(outputs), console)


def _output_table(
    outputs: Sequence[OutputComparison],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows; there is a column for slices if an output has some."""
    shown = [
        index
        for index, column in enumerate(_OUTPUT_COLUMNS)
        if column != _SLICE or any(output.slice is not None for output in outputs)
    ]
    rows = [_output_row(output) for output in outputs]
    columns = tuple(_OUTPUT_COLUMNS[index] for index in shown)
    return columns, [tuple(row[index] for index in shown) for row in rows]


def _output_row(o: OutputComparison) -> tuple[str, ...]:
    return (
        o.name,
        f"{o.max_abs:.3g}",
        f"{o.max_rel:.3g}",
        "-" if o.cosine is None else f"{o.cosine:.6f}",
        "-" if o.distance is None else f"{o.distance:.2g}",
        "-" if o.slice is None else f"{o.slice.distance:.2g}",
        share(o.within),
        str(o.nan),
        str(o.inf),
        "-" if o.top1 is None else share(o.top1, 1),
        ("ok" if o.compared else "-") if o.ok else "failed",
    )


def _growth_row(g: NodeGrowth) -> tuple[str, ...]:
    return g.node, g.op, f"{g.error_in:.2g}", f"{g.error_out:.2g}", f"{g.growth:.1f}"


def _print_table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Print a table, or each row line by line where it is too wide for the console."""
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if min(widths[0], _NAME) + sum(_GAP + width for width in widths[1:]) > console.width:
        for first, *others in cells:
            console.print(first)
            for name, cell in zip(columns[1:], others, strict=True):
                console.print(f"  {name}: {cell}" if name else f"  {cell}")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        table.add_column(name, justify="right")
    for row in cells:
        table.add_row(*row)
    console.print(table)
