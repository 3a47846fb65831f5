"""`amp-rewrite run`: run a model on an execution provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.device_run import run_on
from amp_rewrite.numerics.inputs.batches import npz_bytes
from amp_rewrite.rewriting.report.write_text import write_bytes
from amp_rewrite.targets import CPU


def run(
    model: Path = argument("The model to run, unchanged."),
    data: Path = option(..., f"{common.DATA_HELP} The first batch runs."),
    provider: str | None = option(
        None,
        f"Execution provider, or a target's name; openvino is the OpenVINO engine. Default: {CPU}.",
    ),
    original: Path | None = option(
        None,
        "The float32 model, to compare times. It also runs in the types that the engine chooses.",
    ),
    output: Path | None = option(None, "Save the outputs here (.npz).", "-o"),
    repeat: int = option(10, "Timed runs after the first run.", min=0),
    threads: int = option(0, "Threads per operator (0 = all cores).", min=0),
    report: Path | None = common.REPORT,
    quiet: bool = common.QUIET,
) -> None:
    """Run MODEL on an execution provider; print the time and which nodes ran there."""
    if output is not None and output.suffix != ".npz":
        raise OptionError("outputs are written as .npz", where=output, expected="NAME.npz")
    models = [model] if original is None else [model, original]
    common.check_files(models, [data], outputs=output, report=report)
    named = CPU if provider is None else targets.provider_named(provider)
    with progress_bar("running", quiet=quiet):
        device_run = run_on(model, data, named, repeat=repeat, threads=threads, original=original)
    if output is not None:
        write_bytes(output, npz_bytes(_name_arrays(device_run.outputs)))
    common.write_report(report, device_run.to_json)
    out = common.console(quiet=quiet)
    out.print_all(device_run.lines())
    common.say_cpu(out, provider)


def _name_arrays(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by name: what is a list item by item."""
    arrays: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            arrays |= {f"{name}.{i}": item for i, item in enumerate(value)}
        else:
            arrays[name] = value
    return arrays
