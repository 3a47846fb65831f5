"""`amp-rewrite run`: run a model on an execution provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import Argument, Option
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.device_run import run_on
from amp_rewrite.numerics.inputs.batches import npz_bytes, read_batch
from amp_rewrite.rewriting.report.write_text import write_bytes, write_text
from amp_rewrite.targets import CPU


def run(
    model: Annotated[Path, Argument(help="The model to run, unchanged.")],
    data: Annotated[Path, Option(help="An .npz file with one array per input.")],
    provider: Annotated[
        str | None,
        Option(
            help="Execution provider, or a target's name; openvino is the OpenVINO engine. "
            f"Default: {CPU}."
        ),
    ] = None,
    original: Annotated[
        Path | None,
        Option(
            help="The float32 model, to compare times: both run in turn, and ORIGINAL once more "
            "in the types that the engine chooses."
        ),
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Save the outputs here (.npz).")
    ] = None,
    repeat: Annotated[int, Option(min=0, help="Timed runs after the first run.")] = 10,
    threads: Annotated[int, Option(min=0, help="Threads per operator (0 = all cores).")] = 0,
    report: common.ReportFile = None,
    quiet: common.Quiet = False,
) -> None:
    """Run MODEL on an execution provider; print the time and which nodes ran there."""
    _check_paths([model, data, *([original] if original else [])], [output, report])
    named = CPU if provider is None else targets.provider_named(provider)
    with progress_bar("running", quiet=quiet):
        device_run = run_on(
            model, read_batch(data), named, repeat=repeat, threads=threads, original=original
        )
    if output is not None:
        write_bytes(output, npz_bytes(_name_arrays(device_run.outputs)))
    if report is not None:
        write_text(report, device_run.to_json())
    if not quiet:
        out = common.console()
        out.print_all(device_run.lines())
        common.say_cpu_provider(provider, out)


def _check_paths(read: list[Path], written: list[Path | None]) -> None:
    """Refuse to overwrite what is read, or one output by the other."""
    outputs = [path.resolve() for path in written if path is not None]
    taken = [path.resolve() for path in read]
    for path in outputs:
        if path in taken or outputs.count(path) > 1:
            raise OptionError("two files have one name", found=path, remedy="name different files")


def _name_arrays(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by name: what is a list item by item."""
    arrays: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            arrays |= {f"{name}.{i}": item for i, item in enumerate(value)}
        else:
            arrays[name] = value
    return arrays
