"""`amp-rewrite inputs`: inputs to begin with, for a model of which no data are at hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from amp_rewrite.base.printable import aligned, counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.compare.made_up_inputs import MadeUpInputs, make_inputs
from amp_rewrite.numerics.inputs.batches import npz_bytes
from amp_rewrite.rewriting.plan.input_ranges import input_ranges
from amp_rewrite.rewriting.report.write_text import write_bytes

_SUFFIX = ".npz"
_OTHERS = (".csv", ".tsv", ".npy", ".json", ".txt", ".onnx")
_FEW = 4
"""Batches in a folder, if nothing is said."""


def inputs(
    model: Path = argument("ONNX model."),
    output: Path = option(
        ..., "Where to write: NAME.npz (one batch), or a folder of .npz files.", "-o"
    ),
    batches: int | None = option(
        None, f"Number of batches. Default: {_FEW} in a folder, else 1.", min=1
    ),
    seed: int = option(0, "Seed of the random numbers.", min=0),
    input_range: list[str] | None = common.INPUT_RANGE,
    quiet: bool = common.QUIET,
) -> None:
    """Generate plausible inputs for MODEL, for --data; edit them as you like."""
    files = _files(output, batches)
    with progress_bar("making inputs", quiet=quiet):
        made_up = make_inputs(model, len(files), seed=seed, ranges=input_ranges(input_range or ()))
        contents = [npz_bytes(batch) for batch in made_up.batches]
    if files[0] != output:
        output.mkdir(parents=True, exist_ok=True)
    for path, content in zip(files, contents, strict=True):
        write_bytes(path, content)
    if not quiet:
        _print(made_up, model, output, files[0])


def _files(output: Path, batches: int | None) -> list[Path]:
    """Return the files to write, one a batch; OptionError if that is not possible."""
    if output.suffix == _SUFFIX:
        if batches is not None and batches > 1:
            raise OptionError(
                "an .npz file is one batch",
                found=f"--batches {batches}",
                remedy=f"name a folder: -o {output.with_suffix('')}",
            )
        return [output]
    if output.is_file() or output.suffix in _OTHERS:
        raise OptionError(
            "inputs are written as .npz",
            where=output,
            expected="NAME.npz or a folder",
            remedy=f"-o {output.with_suffix(_SUFFIX)}",
        )
    count = batches or _FEW
    digits = len(str(count - 1))
    files = [output / f"{i:0{digits}}{_SUFFIX}" for i in range(count)]
    others = sorted(set(output.glob(f"*{_SUFFIX}")).difference(files))
    if others:
        raise OptionError(
            "the folder holds other data, which would be batches as well",
            where=output,
            found=others[0].name,
            remedy="name a folder that is not there",
        )
    return files


def _print(made_up: MadeUpInputs, model: Path, output: Path, first: Path) -> None:
    """Print what was made, and how to go on."""
    out = common.console()
    rows: list[tuple[str, ...]] = []
    for name, array in made_up.batches[0].items():
        shape = " x ".join(map(str, array.shape)) or "one number"
        rows.append((name, str(made_up.roles[name].role), str(array.dtype), shape, _values(array)))
    out.print_all(aligned(("input", "read as", "type", "shape", "values"), rows))
    out.print(f"wrote {counted(len(made_up.batches), 'batch')} to {output}")
    name = next(iter(made_up.batches[0]), None)
    if name is not None:
        out.print("These inputs are made up. Replace them by real ones where you can:")
        out.print(f"  batch = dict(numpy.load({str(first)!r}))")
        out.print(f"  batch[{name!r}] = ...")
        out.print(f"  numpy.savez({str(first)!r}, **batch)")
    data = f"{shlex.quote(str(model))} -o {shlex.quote(str(model.with_suffix('.fp16.onnx')))}"
    out.print("next: Convert with these inputs; the result is written only if it passes.")
    out.print(f"  amp-rewrite convert {data} --data {shlex.quote(str(output))}")


def _values(array: Any) -> str:
    """Return the least and the greatest of numbers, as far as there are any."""
    if not array.size or array.dtype.kind not in "iufVb":
        return ""
    numbers = array.astype(np.float64)
    low, high = numbers.min(), numbers.max()
    return f"{low:.6g}" if low == high else f"{low:.6g} .. {high:.6g}"
