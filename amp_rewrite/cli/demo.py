"""`amp-rewrite demo`: a small model, end to end, in seconds."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import onnx
import typer

from amp_rewrite.cli import common
from amp_rewrite.cli.demo_model import demo_model
from amp_rewrite.cli.inputs import table_of
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import RuntimeMissingError
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_report import print_verify
from amp_rewrite.numerics.inputs.batches import npz_bytes
from amp_rewrite.numerics.made_up import make_inputs
from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.explain import explain
from amp_rewrite.rewriting.report.gains import Sizes
from amp_rewrite.rewriting.report.rewrite_report import print_report
from amp_rewrite.rewriting.report.write_text import write_bytes

EXPLAINED = ("norm1.normalized", "attention.masked")
"""The nodes whose reasons the demo shows: one that stays float32 and one that does not."""


@with_rewrite_options()
def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Where to write the two models and the data; a new temporary folder."),
    ] = None,
    *,
    options: RewriteOptions,
) -> None:
    """Make a small image classifier, rewrite it, and compare it with float32."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _show(folder, options)
        return
    made = Path(tempfile.mkdtemp(prefix="amp-rewrite-demo-"))
    try:
        _show(made, options)
    except BaseException:  # Ctrl-C too: nobody was told of the folder
        shutil.rmtree(made, ignore_errors=True)
        raise


def _show(folder: Path, options: RewriteOptions) -> None:
    """Run the commands of the demo in a folder."""
    out = common.console()
    before, after = folder / "demo.onnx", folder / f"demo.{options.precision}.onnx"
    data = folder / "demo.npz"
    onnx.save(demo_model(), before)
    out.print(f"made {before}: a small image classifier in float32")
    out.print()

    out.print(f"$ amp-rewrite convert {before.name} -o {after.name}")
    result = rewrite(before, options)
    result.save(after)
    sizes = before.stat().st_size, after.stat().st_size
    print_report(result.report, out, Sizes(*sizes, exact=True))
    out.print(f"file: {sizes[0]:,} -> {sizes[1]:,} bytes ({sizes[1] / sizes[0]:.0%})")
    out.print()

    out.print(f"$ amp-rewrite explain {before.name} {' '.join(EXPLAINED)}")
    for node in EXPLAINED:
        out.print_lines(explain(result, node))

    out.print()
    try:
        out.print(f"$ amp-rewrite inputs {before.name} -o {data.name}")
        made = make_inputs(before)
        write_bytes(data, npz_bytes(made.batches[0]))
        out.print(table_of(made))
        out.print()
        out.print(f"$ amp-rewrite verify {before.name} {after.name} --data {data.name} --stress")
        print_verify(verify(before, after, data, stress=True, target=options.target), out)
    except RuntimeMissingError as error:
        out.print(f"skipped: {error}")
    out.print()
    out.print(f"The models and the data are in {folder.resolve()}")
    out.print_lines(
        "Next: amp-rewrite convert YOUR_MODEL.onnx -o YOUR_MODEL.fp16.onnx\n"
        "      amp-rewrite explain YOUR_MODEL.onnx NODE         why a node has its type\n"
        "      amp-rewrite inputs YOUR_MODEL.onnx -o inputs.npz  to be changed into real ones\n"
        "      amp-rewrite verify YOUR_MODEL.onnx YOUR_MODEL.fp16.onnx --data inputs.npz",
    )
