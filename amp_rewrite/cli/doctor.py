"""`amp-rewrite doctor`: why training fails."""

from __future__ import annotations

import json
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite import targets
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import ADVANCED, CHECKING, TRAINING, argument, option
from amp_rewrite.loop.doctor import doctor as examine
from amp_rewrite.targets import CPU
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis


def doctor(
    step: Path = argument("The step from `amp-rewrite train-step`."),
    data: Path = option(..., "The training data, as for train."),
    batch: int = option(32, "Batch size."),
    steps: int = option(20, "Steps to run; the last one is examined if all values are finite."),
    skips: int = option(5, "Stop after N skipped updates in a row."),
    checkpoint: Path | None = option(None, "Start from this checkpoint.", group=TRAINING),
    seed: int = option(0, "Seed of the order of examples, as in train.", group=CHECKING),
    shuffle: bool = option(True, "Shuffle the examples.", group=ADVANCED),
    provider: list[str] | None = option(None, "Execution provider, or a target's name."),
    emulate: bool | None = option(
        None,
        "Emulate 16-bit rounding during training. Default: without --provider.",
        group=ADVANCED,
    ),
    top: int = option(10, "Layers to print.", min=0),
    report: Path | None = common.REPORT,
    quiet: bool = common.QUIET,
) -> None:
    """Train STEP until a value is not finite; name its source, and values that underflow.

    Exit status 1: a value is not finite, or too many updates were skipped.
    """
    common.check_files([step], [data], report=report)
    diagnosis = examine(
        step,
        data,
        batch=batch,
        steps=steps,
        skips=skips,
        checkpoint=checkpoint,
        seed=seed,
        shuffle=shuffle,
        session={
            "providers": [targets.provider_named(name) for name in provider or [CPU]],
            "emulate": not provider if emulate is None else emulate,
        },
    )
    common.write_report(report, lambda: json.dumps(diagnosis.to_dict(), indent=1))
    if not quiet:
        common.say_cpu(common.console(), *(provider or ()))
        _print(diagnosis, top)
    if not diagnosis.finite or diagnosis.skipped is not None:
        raise Exit(common.FAILED)


def _print(diagnosis: Diagnosis, top: int) -> None:
    out = common.console()
    out.print(
        f"step {diagnosis.step}, batch {diagnosis.batch} of epoch {diagnosis.epoch}: "
        f"loss {diagnosis.loss:.4g}"
    )
    if diagnosis.skipped is not None:
        out.print(f"{diagnosis.skipped}, at loss scale {diagnosis.loss_scale:g}")
    out.print(diagnosis.to_text())
    losing = diagnosis.losing()
    for layer in losing[:top]:
        out.print(
            f"underflow: {layer.layer}: {layer.zeros:.1%} of {layer.elements} elements of a "
            f"gradient are zero, {layer.lost:.1%} of those that are not in float32; they live at "
            f"loss scale {layer.lives_at:g}"
        )
    if len(losing) > top:
        out.print(f"... and {len(losing) - top} more layers")
    if diagnosis.layers and not losing:
        out.print(f"no gradient underflows at loss scale {diagnosis.loss_scale:g}")
    if diagnosis.scales is not None:
        lives, most = diagnosis.scales
        out.print(f"all layers live at loss scale {lives:g}; none overflows up to {most:g}")
