"""A training run from files: a step, data, what watches the run, and what is written in the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from amp_rewrite import targets
from amp_rewrite.distributed import Shards, started
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.loop.epoch_loop import resume, train
from amp_rewrite.loop.metrics.get_metric import get
from amp_rewrite.loop.metrics.metric import Metric
from amp_rewrite.loop.metrics_file import COLUMNS, MetricsFile
from amp_rewrite.loop.plan_and_progress import Plan, Progress
from amp_rewrite.loop.rate_search import RateSearch
from amp_rewrite.loop.ready_callbacks import Best, BestCheckpoint, EarlyStopping, Log
from amp_rewrite.loop.run_with_callbacks import INTERRUPTED, Callback, Run, interruptible
from amp_rewrite.loop.tensorboard import TensorBoard
from amp_rewrite.loop.trainer import Trainer
from amp_rewrite.targets import CPU
from amp_rewrite.training.data.as_examples import read_examples
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.session.input_checks import ALLOW
from amp_rewrite.training.session.partial_restore import Restored
from amp_rewrite.training.session.training_session import TrainingSession


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `amp-rewrite train` is asked to do; its help says what each of them means."""

    step: Path
    data: Path
    epochs: int = 1
    batch: int = 32
    output: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 0
    resume: bool = False
    restore: Path | None = None
    strict: bool = True
    held_out: Path | None = None
    eval_every: int = 0
    metric: list[str] | None = None
    best: Path | None = None
    restore_best: bool = False
    patience: int = 0
    min_delta: float = 0.0
    mode: str | None = None
    averaged: bool = False
    monitor: str = "eval_loss"
    metrics: Path | None = None
    tensorboard: Path | None = None
    learning_rate: float | None = None
    find_learning_rate: bool = False
    seed: int = 0
    shuffle: bool = True
    provider: list[str] | None = None
    target: str | None = None
    threads: int = 0
    shards: str | None = None
    emulate: bool = False
    non_finite: str = ALLOW
    ahead: int | None = None

    def plan(self) -> Plan:
        """Return how to go through the data.

        Raises:
            OptionError: A number is impossible.
        """
        return Plan(
            self.epochs,
            self.batch,
            self.seed,
            self.shuffle,
            self.checkpoint,
            self.checkpoint_every,
            self.eval_every,
            self.ahead,
            self.averaged and self.held_out is not None,
        )


class TrainingRun:
    """A run whose files are checked, and whose session is open; a context that closes it.

    Attributes:
        is_first: Whether this process is the one of all shards that writes and speaks.
        resumes: Whether there is a checkpoint to go on from, if that was asked for.
        restored: What was taken of `restore`, if that does not fit as a whole.
        steps: How many steps there are in all; None if the data do not say.
    """

    def __init__(self, options: RunOptions) -> None:
        """Open what is read.

        Raises:
            AmpError: An option is impossible, a file cannot be read or written, or shards differ.
        """
        self._options, self._plan = options, options.plan()
        _check(options)
        self.resumes = options.resume and (
            options.checkpoint is None or options.checkpoint.exists()
        )
        self._metrics = None if options.metric is None else [get(name) for name in options.metric]
        self._watching = _watching_callbacks(options)
        self.restored: Restored | None = None
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()

    def _open(self, stack: ExitStack) -> None:
        options, plan = self._options, self._plan
        group = None if options.shards is None else stack.enter_context(started(options.shards))
        self.is_first = group is None or group.is_first
        session = self._session = stack.enter_context(_session(options, group))
        session.check_averages(options.averaged)
        self._examples, self._held_out = _examples(group, options, session.info.inputs)
        if group is not None:
            group.compare("the order of steps", f"epochs {options.epochs}, {plan.order}")
            group.compare("whether there is a checkpoint", str(self.resumes))
        self._at = resume(session, plan) if self.resumes else Progress()
        if options.restore is not None:
            session.restore(options.restore, strict=options.strict)
            self.restored = session.restored
        if options.learning_rate is not None:
            session.learning_rate = options.learning_rate
        steps = self._examples.steps(options.batch, drop_last=session.fixed_batch)
        self.steps = None if steps is None else options.epochs * steps

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session and the files of rows."""
        self._stack.close()

    def find_learning_rate(self) -> RateSearch:
        """Try growing learning rates.

        Raises:
            AmpError: What `Trainer.find_learning_rate` raises.
        """
        options = self._options
        search = Trainer(self._session).find_learning_rate
        return search(self._examples, batch=options.batch, seed=options.seed)

    def train(self, callbacks: Sequence[Callback]) -> Run:
        """Train, and write the trained model unless that is interrupted.

        Args:
            callbacks: What is called besides the logs and what may end the run.

        Raises:
            AmpError: What `train` of the loop raises.
        """
        logs = self._logs() if self.is_first else []
        interrupt = self._stack.enter_context(interruptible())
        done = train(
            self._session,
            self._examples,
            self._plan,
            held_out=self._held_out,
            metrics=self._metrics,
            callbacks=[*logs, *callbacks, *self._watching, interrupt],
            progress=self._at,
        )
        if self.is_first and done.stopped != INTERRUPTED:
            self._write()
        return done

    def _write(self) -> None:
        options = self._options
        if options.output is not None:
            self._session.export(options.output, averaged=options.averaged)

    def _logs(self) -> list[Callback]:
        """Return what writes down how training goes; files of rows close with the run."""
        options = self._options
        logs: list[Callback] = []
        if options.metrics is not None:
            after = self._at.step if self.resumes else None
            columns = _columns(self._metrics)
            rows = MetricsFile(options.metrics, after=after, columns=columns)
            logs.append(Log(self._stack.enter_context(rows)))
        if options.tensorboard is not None:
            logs.append(TensorBoard(options.tensorboard))
        return logs


def _check(options: RunOptions) -> None:
    """Refuse two beginnings, and to overwrite what is read, or one output by another.

    Raises:
        SaveError: An output is an input, or cannot be written.
        OptionError: Two beginnings are asked for, or two outputs are one file.
    """
    if options.restore is not None and options.resume:
        raise OptionError(
            "--resume goes on from --checkpoint, and --restore begins with another one",
            remedy="leave one of them out",
        )
    read = [options.step, options.data, options.held_out, options.restore]
    written = [options.output, options.checkpoint, options.metrics, options.best]
    outputs = [path for path in written if path is not None]
    for output in outputs:
        for path in read:
            if path is not None:
                check_output_path(path, output)
        check_writable(output)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise OptionError(
            "two outputs are one file",
            found=", ".join(map(str, outputs)),
            remedy="name different files",
        )


def _session(options: RunOptions, group: Shards | None) -> TrainingSession:
    return TrainingSession(
        options.step,
        [targets.provider_named(name) for name in options.provider or [CPU]],
        threads=options.threads,
        target=options.target,
        emulate=options.emulate,
        shards=group,
        non_finite=options.non_finite,
    )


def _examples(
    group: Shards | None, options: RunOptions, names: Sequence[str]
) -> tuple[Examples, Examples | None]:
    """Return the examples to train on and to evaluate on; those of this shard if there are any."""
    whole = read_examples(options.data, names)
    held = None if options.held_out is None else read_examples(options.held_out, names)
    if group is None:
        return whole, held
    group.compare("the training data", whole.signature)
    group.compare("the held-out data", "none" if held is None else held.signature)
    return group.data(whole), None if held is None else group.held_out(held)


def _watching_callbacks(options: RunOptions) -> list[Best]:
    """Return what keeps the best checkpoint, and what ends training when nothing is better."""
    monitor, mode = options.monitor, options.mode
    callbacks: list[Best] = []
    if options.best is not None:
        restore = options.restore_best
        callbacks.append(BestCheckpoint(options.best, monitor, mode=mode, restore=restore))
    if options.patience:
        patience, least = options.patience, options.min_delta
        callbacks.append(EarlyStopping(monitor, patience=patience, min_delta=least, mode=mode))
    return callbacks


def _columns(metrics: Sequence[Metric] | None) -> tuple[str, ...]:
    """Return what a row of a .csv file holds."""
    if metrics is None:
        return COLUMNS
    kept = COLUMNS[: COLUMNS.index("eval_loss") + 1]
    return (*kept, *(f"eval_{metric.name}" for metric in metrics))
