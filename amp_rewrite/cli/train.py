"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.train_options import check_options, given_options, with_run_options
from amp_rewrite.loop.evaluation import summary
from amp_rewrite.loop.plan_and_progress import Progress
from amp_rewrite.loop.rate_search import RateSearch
from amp_rewrite.loop.ready_callbacks import BestCheckpoint, Watch
from amp_rewrite.loop.recipe.training_run import RunOptions, TrainingRun
from amp_rewrite.loop.run_with_callbacks import INTERRUPTED, Callback, Run
from amp_rewrite.rewriting.report.plain_console import PlainConsole
from amp_rewrite.training.session.partial_restore import Restored


@with_run_options
def train(
    context: typer.Context,
    options: RunOptions,
    quiet: common.Quiet = False,
) -> None:
    """Train STEP on data, with checkpoints, metrics and evaluation.

    Ctrl-C stops training after the current update; with --checkpoint, --resume continues there.
    """
    check_options(given_options(context))
    with TrainingRun(options) as run:
        quiet = quiet or not run.is_first
        if not quiet:
            _print_processors(options)
            _print_fresh(run, options)
            _print_restored(run.restored, options.restore)
        if options.find_learning_rate:
            _print_search(run.find_learning_rate(), common.console(quiet=quiet))
            return
        epochs = options.epochs
        with progress_bar("training", quiet=quiet) as bar:
            show: Callback = Watch(lambda at: bar(at.step, run.steps, _note_of(at, epochs)))
            lines = [] if quiet or sys.stderr.isatty() else [_EpochLines()]
            done = run.train([show, *lines])
    if done.stopped == INTERRUPTED:
        if run.is_first:
            _print_interrupted(done.at, options.checkpoint)
        raise typer.Exit(common.INTERRUPTED)
    if not quiet:
        _print_run(done, options.checkpoint, options.output)


def _note_of(at: Progress, epochs: int) -> str:
    """Return where training is, for the bar."""
    return f"epoch {min(at.epoch + 1, epochs)}/{epochs}, {_values(at)}"


def _values(at: Progress) -> str:
    note = f"loss {at.loss:.4g}"
    if at.loss_scale is not None:
        note += f", scale {at.loss_scale:g}, skipped {at.skipped_steps}"
    if at.evaluation is not None:
        note += f"; held out {summary(at.evaluation)}"
    return note


class _EpochLines(Callback):
    """Says after each epoch where training is, where no bar is drawn."""

    def on_epoch(self, run: Run) -> None:
        """Print a line."""
        at, epochs = run.at, run.plan.epochs
        common.error_console().print(f"epoch {at.epoch}/{epochs}, step {at.step}, {_values(at)}")


def _print_processors(options: RunOptions) -> None:
    """Say which processor is meant where a target or a provider is called "cpu"."""
    out = common.console()
    common.say_cpu(options.target, out)
    for name in options.provider or ():
        common.say_cpu_provider(name, out, target=options.target)


def _print_fresh(run: TrainingRun, options: RunOptions) -> None:
    """Say that there is nothing to go on from, if that was asked for."""
    if options.resume and not run.resumes:
        common.error_console().print(
            f"{options.checkpoint} does not exist yet: training starts from the beginning"
        )


def _print_interrupted(at: Progress, checkpoint: Path | None) -> None:
    """Say where training was interrupted, and what is kept of it."""
    where = f"after step {at.step}, in epoch {at.epoch + 1}"
    kept = (
        "nothing is kept without --checkpoint"
        if checkpoint is None
        else f"{checkpoint} has the state; go on with --resume"
    )
    common.error_console().print(f"training ended {where}: {kept}")


def _print_run(run: Run, *written: Path | None) -> None:
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


def _print_restored(restored: Restored | None, path: Path | None) -> None:
    """Say what was taken from a checkpoint that does not fit as a whole."""
    if restored is None or not (restored.left or restored.kept or restored.begun):
        return
    out = common.error_console()
    out.print(f"{path}: {len(restored.taken)} tensors taken")
    for name, why in restored.left.items():
        out.print(f"left: {name} ({why})")
    if restored.kept:
        out.print(f"as they were: {', '.join(restored.kept)}")
    if restored.begun:
        out.print(f"begin anew at the weights: {', '.join(restored.begun)}")


def _print_search(search: RateSearch, out: PlainConsole) -> None:
    """Say which learning rate to begin with."""
    tried = f"{len(search.rates)} rates from {search.rates[0]:.3g} to {search.rates[-1]:.3g}"
    if search.suggestion is None:
        out.print(
            f"no learning rate to suggest: the loss falls nowhere clearly, of {tried}; the model "
            "is trained already, or needs larger batches"
        )
    else:
        out.print(
            f"suggested learning rate {search.suggestion:.3g}: the loss falls most steeply there, "
            f"of {tried}"
        )
