"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.printable import counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import ADVANCED, CHECKING, OUTPUT, TRAINING, argument, option
from amp_rewrite.distributed import Shards, mpi
from amp_rewrite.loop.evaluation import summary
from amp_rewrite.loop.plan_and_progress import Progress
from amp_rewrite.loop.ready_callbacks import CSVLogger
from amp_rewrite.loop.run_with_callbacks import INTERRUPTED, Callback, Run
from amp_rewrite.loop.trainer import Trainer
from amp_rewrite.targets import CPU
from amp_rewrite.training.data.as_examples import Examples, as_examples


def train(
    step: Path = argument("The step from `amp-rewrite train-step`."),
    data: Path = option(
        ...,
        "Training data: .npz (one array per input, examples along the first axis) or "
        "CSV (one column per input).",
    ),
    epochs: int = option(1, "Epochs in all."),
    batch: int = option(32, "Batch size over all shards."),
    output: Path | None = option(None, "The trained inference model to write.", "-o"),
    checkpoint: Path | None = option(
        None, "Save the training state here (safetensors) after every epoch.", group=TRAINING
    ),
    checkpoint_every: int = option(0, "Also save every N steps (0 = off).", group=TRAINING),
    resume: bool = option(False, "Continue from --checkpoint, bit for bit.", group=TRAINING),
    held_out: Path | None = option(
        None, "Held-out data, evaluated after every epoch.", "--eval", group=CHECKING
    ),
    metrics: Path | None = option(
        None, "Write one row per step and evaluation here (.csv).", group=OUTPUT
    ),
    learning_rate: float | None = option(None, "Learning rate. Default: the step's own."),
    seed: int = option(0, "Seed of the order of examples."),
    shuffle: bool = option(True, "Shuffle the examples in every epoch.", group=ADVANCED),
    provider: list[str] | None = option(None, "Execution provider, or a target's name."),
    target: str | None = option(
        None, "Target whose kernels --emulate emulates. Default: the provider's."
    ),
    threads: int = option(
        0, "Threads per operator (0 = all cores, or a shard's share).", group=ADVANCED, min=0
    ),
    shards: str | None = option(
        None,
        "mpi: train in the processes started by mpiexec; each takes its part of every batch.",
        group=ADVANCED,
    ),
    emulate: bool = option(
        False, "Emulate 16-bit rounding, which the CPU provider does not do.", group=ADVANCED
    ),
    quiet: bool = common.QUIET,
) -> None:
    """Train STEP on data, with checkpoints, metrics and evaluation.

    Ctrl-C stops training after the current update; with --checkpoint, --resume continues there.
    """
    if checkpoint is None:
        needing = {"--checkpoint-every": checkpoint_every or None, "--resume": resume}
        arguments.refuse(needing, "has no effect without --checkpoint", "add --checkpoint FILE")
    read = [data] if held_out is None else [data, held_out]
    common.check_files([step], read, output=output, checkpoint=checkpoint, metrics=metrics)
    resumes = resume and (checkpoint is None or checkpoint.exists())
    with ExitStack() as stack:
        group = None if shards is None else stack.enter_context(_started(shards))
        is_first = group is None or group.is_first
        quiet = quiet or not is_first
        trainer = stack.enter_context(
            Trainer(
                step,
                [targets.provider_named(name) for name in provider or [CPU]],
                threads=threads,
                target=target,
                emulate=emulate,
                shards=group,
            )
        )
        names = trainer.session.info.inputs
        whole = as_examples(data, names)
        held = None if held_out is None else as_examples(held_out, names)
        if group is not None:
            order = f"epochs {epochs}, batch {batch}, seed {seed}, shuffle {shuffle}"
            group.compare("the order of steps", order)
            group.compare("whether there is a checkpoint", str(resumes))
            group.compare("the training data", whole.signature)
            group.compare("the held-out data", "none" if held is None else held.signature)
            whole, held = group.data(whole), held and group.held_out(held)
        if not quiet:
            common.say_cpu(common.console(), target, *(provider or ()))
            if resume and not resumes:
                common.error_console().print(
                    f"{checkpoint} does not exist yet: training starts from the beginning"
                )
        bar = stack.enter_context(progress_bar("training", quiet=quiet))
        show = _Show(bar, whole, learning_rate, quiet=quiet)
        callbacks: list[Callback] = [show]
        if is_first and metrics is not None:
            callbacks.append(CSVLogger(metrics))
        history = trainer.train(
            whole,
            epochs=epochs,
            batch=batch,
            eval=held,
            callbacks=callbacks,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resumes,
            seed=seed,
            shuffle=shuffle,
        )
        interrupted = history.stopped == INTERRUPTED
        if is_first and output is not None and not interrupted:
            trainer.session.export(output)
    if interrupted:
        if is_first:
            where = f"after step {show.at.step}, in epoch {show.at.epoch + 1}"
            kept = checkpoint and f"{checkpoint} has the state; go on with --resume"
            kept = kept or "nothing is kept without --checkpoint"
            common.error_console().print(f"training ended {where}: {kept}")
        raise Exit(common.INTERRUPTED)
    if not quiet:
        _print_run(show.at, checkpoint, output)


class _Show(Callback):
    """Sets the learning rate, and draws a bar, or prints a line after each epoch without one."""

    def __init__(
        self, bar: Callable[..., None], data: Examples, rate: float | None, *, quiet: bool
    ) -> None:
        self._bar, self._data, self._rate = bar, data, rate
        self._steps: int | None = None
        self._says_epochs = not quiet and not sys.stderr.isatty()
        self.at = Progress()

    def on_begin(self, run: Run) -> None:
        """Set the rate, also of a run that is resumed; count the steps, if the data have an end."""
        if self._rate is not None:
            run.session.learning_rate = self._rate
        plan = run.plan
        steps = self._data.steps(plan.batch, drop_last=run.session.fixed_batch)
        self._steps = None if steps is None else plan.epochs * steps

    def on_step(self, run: Run) -> None:
        """Move the bar."""
        self.at, epochs = run.at, run.plan.epochs
        note = f"epoch {min(self.at.epoch + 1, epochs)}/{epochs}, {_values(self.at)}"
        self._bar(self.at.step, self._steps, note)

    on_evaluation = on_step

    def on_epoch(self, run: Run) -> None:
        """Print a line, or move the bar."""
        at, epochs = run.at, run.plan.epochs
        self.on_step(run)
        if self._says_epochs:
            line = f"epoch {at.epoch}/{epochs}, step {at.step}, {_values(at)}"
            common.error_console().print(line)


def _started(engine: str) -> Shards:
    """Return the shards that an engine has started."""
    arguments.one_of("engine of shards", engine, ("mpi",))
    return mpi()


def _values(at: Progress) -> str:
    note = f"loss {at.loss:.4g}"
    if at.loss_scale is not None:
        note += f", scale {at.loss_scale:g}, skipped {at.skipped_steps}"
    if at.evaluation is not None:
        note += f"; held out {summary(at.evaluation)}"
    return note


def _print_run(done: Progress, *written: Path | None) -> None:
    """Say how training ended, and what was written."""
    out = common.console()
    last = "" if math.isnan(done.loss) else f", last loss {done.loss:.4g}"
    out.print(f"{counted(done.epoch, 'epoch')}, {counted(done.step, 'step')}{last}")
    if done.loss_scale is not None:
        out.print(
            f"loss scale {done.loss_scale:g}, {counted(done.skipped_steps or 0, 'step')} skipped"
        )
    if done.evaluation is not None:
        out.print(f"held out: {summary(done.evaluation)}")
    for path in written:
        if path is not None:
            out.print(f"wrote {path}")
