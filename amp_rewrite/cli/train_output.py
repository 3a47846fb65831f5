"""What `amp-rewrite train` prints."""

from __future__ import annotations

import math
from pathlib import Path

from rich.progress import Progress as Bar
from rich.progress import TaskID

from amp_rewrite.cli import common
from amp_rewrite.report.plain_console import PlainConsole
from amp_rewrite.trainer.loop.evaluation import summary
from amp_rewrite.trainer.loop.plan import Progress
from amp_rewrite.trainer.loop.rate_search import RateSearch
from amp_rewrite.trainer.loop.ready_callbacks import BestCheckpoint
from amp_rewrite.trainer.loop.run import Run
from amp_rewrite.trainer.session.partial_restore import Restored


def show_progress(bar: Bar, task: TaskID, epochs: int, at: Progress) -> None:
    """Show where training is."""
    note = f"epoch {min(at.epoch + 1, epochs)}/{epochs}, loss {at.loss:.4g}"
    if at.loss_scale is not None:
        note += f", scale {at.loss_scale:g}, skipped {at.skipped_steps}"
    if at.evaluation is not None:
        note += f"; held out {summary(at.evaluation)}"
    bar.update(task, completed=at.step, note=note)


def print_interrupted(at: Progress, checkpoint: Path | None) -> None:
    """Say where training was interrupted, and what is kept of it."""
    where = f"after step {at.step}, in epoch {at.epoch + 1}"
    kept = (
        "nothing is kept without --checkpoint"
        if checkpoint is None
        else f"{checkpoint} has the state; go on with --resume"
    )
    common.error_console().print(f"training ended {where}: {kept}")


def print_run(run: Run, *written: Path | None) -> None:
    """Say how training ended, and what was written."""
    out, done = common.console(), run.at
    if run.stopped is not None:
        out.print(f"stopped: {run.stopped}")
    last = "" if math.isnan(done.loss) else f", last loss {done.loss:.4g}"
    out.print(f"{done.epoch} epochs, {done.step} steps{last}")
    if done.loss_scale is not None:
        out.print(f"loss scale {done.loss_scale:g}, {done.skipped_steps} steps skipped")
    if done.evaluation is not None:
        out.print(f"held out: {summary(done.evaluation)}")
    for callback in run.callbacks:
        if isinstance(callback, BestCheckpoint) and callback.restores and callback.best is not None:
            best = summary({callback.monitor: callback.best})
            out.print(f"restored: step {callback.step}, held out {best}")
    for path in written:
        if path is not None:
            out.print(f"wrote {path}")
    for name, count in run.session.fed_non_finite.items():
        out.print(f"{name}: {count} numbers fed were not finite")


def print_restored(found: Restored | None, path: Path) -> None:
    """Say what was taken from a checkpoint that does not fit as a whole."""
    if found is None or not (found.left or found.kept or found.begun):
        return
    out = common.error_console()
    out.print(f"{path}: {len(found.taken)} tensors taken")
    for name, why in found.left.items():
        out.print(f"left: {name} ({why})")
    if found.kept:
        out.print(f"as they were: {', '.join(found.kept)}")
    if found.begun:
        out.print(f"begin anew at the weights: {', '.join(found.begun)}")


def print_search(found: RateSearch, out: PlainConsole) -> None:
    """Say which learning rate to begin with."""
    tried = f"{len(found.rates)} rates from {found.rates[0]:.3g} to {found.rates[-1]:.3g}"
    if found.suggestion is None:
        out.print(
            f"no learning rate to suggest: the loss falls nowhere clearly, of {tried}; the model "
            "is trained already, or needs larger batches"
        )
    else:
        out.print(
            f"suggested learning rate {found.suggestion:.3g}: the loss falls most steeply there, "
            f"of {tried}"
        )
