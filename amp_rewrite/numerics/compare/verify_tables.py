"""The tables of a `verify` report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from amp_rewrite.base.printable import percent, printable, share, shortened
from amp_rewrite.numerics.compare.distance import OutputComparison
from amp_rewrite.numerics.compare.verify_records import DeviceComparison

_OUTPUT_COLUMNS = (
    *("output", "of peak", "distance", "slice", "max abs", "max rel", "cosine", "within"),
    *("NaN", "Inf", "top-1", ""),
)
"""What a table of outputs shows: the error relative to the peak, the distance relative to the size
(Euclidean), that of the worst slice, and what else `OutputComparison` has."""

_DROPPED = ("max rel", "cosine", "within", "max abs", "NaN", "Inf")
"""Columns that a narrow console does without, in this order."""

_OF_SOME = {"slice": "-", "NaN": "0", "Inf": "0"}
"""Columns that are shown only where a row has something else in them."""

_NAME, _GAP = 16, 2
"""To how many characters names are shortened at most, and the spaces between columns."""


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
    """Return columns and rows, without the columns in which there is nothing to see."""
    rows = [_output_row(output) for output in outputs]
    shown = [
        index
        for index, column in enumerate(_OUTPUT_COLUMNS)
        if any(row[index] != _OF_SOME.get(column) for row in rows) or not rows
    ]
    columns = tuple(_OUTPUT_COLUMNS[index] for index in shown)
    return columns, [tuple(row[index] for index in shown) for row in rows]


def _output_row(o: OutputComparison) -> tuple[str, ...]:
    return (
        o.name,
        percent(o.scaled_error),
        "-" if o.distance is None else percent(o.distance),
        "-" if o.slice is None else percent(o.slice.distance),
        f"{o.max_abs:.3g}",
        f"{o.max_rel:.3g}",
        "-" if o.cosine is None else f"{o.cosine:.6f}",
        share(o.within),
        str(o.nan),
        str(o.inf),
        "-" if o.top1 is None else share(o.top1, 1),
        ("ok" if o.compared else "-") if o.ok else "FAILED",
    )


def _print_table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Print a table; a narrow console shows shorter names, then fewer columns, then lines."""
    every = [tuple(map(printable, row)) for row in (columns, *rows)]
    cells, dropped = every, [name for name in _DROPPED if name in columns]
    while (room := console.width - _width_of(cells)) < _NAME and dropped:
        at = cells[0].index(dropped.pop(0))
        cells = [(*row[:at], *row[at + 1 :]) for row in cells]
    if room < _NAME:
        _print_lines(every[0], every[1:], console)
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(shortened(cells[0][0], room), overflow="fold")
    for name in cells[0][1:]:
        table.add_column(name, justify="right")
    for first, *others in cells[1:]:
        table.add_row(shortened(first, room), *others)
    console.print(table)


def _print_lines(
    columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], console: Console
) -> None:
    """Print a table cell by cell."""
    for first, *others in rows:
        console.print(first)
        for name, cell in zip(columns[1:], others, strict=True):
            console.print(f"  {name}: {cell}" if name else f"  {cell}")


def _width_of(cells: Sequence[tuple[str, ...]]) -> int:
    """Return how many columns of a console all but the first cells take."""
    return sum(_GAP + max(map(cell_len, column)) for column in list(zip(*cells, strict=True))[1:])
