"""What `amp-rewrite train` prints."""

from __future__ import annotations

import math
from pathlib import Path

from amp_rewrite.cli import common
from amp_rewrite.loop.evaluation import summary
from amp_rewrite.loop.plan import Progress
from amp_rewrite.loop.rate_search import RateSearch
from amp_rewrite.loop.ready_callbacks import BestCheckpoint
from amp_rewrite.loop.recipe.training_run import RunOptions, TrainingRun
from amp_rewrite.loop.run import Callback, Run
from amp_rewrite.rewriting.report.plain_console import PlainConsole
from amp_rewrite.training.session.partial_restore import Restored


def note_of(at: Progress, epochs: int) -> str:
    """Return where training is, for the bar."""
    return f"epoch {min(at.epoch + 1, epochs)}/{epochs}, {_values(at)}"


def _values(at: Progress) -> str:
    note = f"loss {at.loss:.4g}"
    if at.loss_scale is not None:
        note += f", scale {at.loss_scale:g}, skipped {at.skipped_steps}"
    if at.evaluation is not None:
        note += f"; held out {summary(at.evaluation)}"
    return note


class EpochLines(Callback):
    """Says after each epoch where training is, where no bar is drawn."""

    def on_epoch(self, run: Run) -> None:
        """Print a line."""
        at, epochs = run.at, run.plan.epochs
        common.error_console().print(f"epoch {at.epoch}/{epochs}, step {at.step}, {_values(at)}")


def print_fresh(run: TrainingRun, options: RunOptions) -> None:
    """Say that there is nothing to go on from, if that was asked for."""
    if options.resume and not run.resumes:
        common.error_console().print(
            f"{options.checkpoint} is not there yet: training begins afresh"
        )


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


def print_restored(found: Restored | None, path: Path | None) -> None:
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
