"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.train_options import check_options, given_options, with_run_options
from amp_rewrite.cli.train_output import (
    EpochLines,
    note_of,
    print_fresh,
    print_interrupted,
    print_restored,
    print_run,
    print_search,
)
from amp_rewrite.loop.interrupt import INTERRUPTED
from amp_rewrite.loop.ready_callbacks import Watch
from amp_rewrite.loop.recipe.training_run import RunOptions, TrainingRun
from amp_rewrite.loop.run import Callback


@with_run_options
def train(
    context: typer.Context,
    options: RunOptions,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Train STEP on data, with checkpoints, metrics and evaluation.

    Ctrl-C ends training after the present step, or the update that it is a part of; with
    --checkpoint it can be resumed from there.
    """
    check_options(given_options(context))
    with TrainingRun(options) as run:
        quiet = quiet or not run.is_first
        if not quiet:
            print_fresh(run, options)
            print_restored(run.restored, options.restore)
        if options.find_learning_rate:
            print_search(run.find_learning_rate(), common.console(quiet=quiet))
            return
        epochs = options.epochs
        with progress_bar("training", quiet=quiet) as bar:
            show: Callback = Watch(lambda at: bar(at.step, run.steps, note_of(at, epochs)))
            lines = [] if quiet or sys.stderr.isatty() else [EpochLines()]
            done = run.train([show, *lines])
    if done.stopped == INTERRUPTED:
        if run.is_first:
            print_interrupted(done.at, options.checkpoint)
        raise typer.Exit(common.INTERRUPTED)
    if not quiet:
        print_run(done, options.checkpoint, options.output, options.adapters)
