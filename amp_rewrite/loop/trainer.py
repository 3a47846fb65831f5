"""The loop as users call it: `Trainer`, and `train` for one run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from amp_rewrite.base import arguments
from amp_rewrite.base.hints import Hinted
from amp_rewrite.base.printable import counted
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.epoch_loop import resume as resumed
from amp_rewrite.loop.epoch_loop import train as run_plan
from amp_rewrite.loop.evaluation import Metrics, evaluate
from amp_rewrite.loop.plan_and_progress import Plan, Progress
from amp_rewrite.loop.run_with_callbacks import Callback, Run, interruptible
from amp_rewrite.rewriting.report.records import VERSION, Shown, json_form
from amp_rewrite.training.data.as_examples import as_examples
from amp_rewrite.training.session.training_session import TrainingSession

OPTIONS = "options of TrainingSession, such as {'precision': 'float16'}"
"""The argument `session` in words."""


class Trainer(Hinted):
    """A session, and the loop over data that trains it.

    Attributes:
        session: The session.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> batch = {"x": np.eye(4, 8, dtype=np.float32), "labels": np.arange(4)}
        >>> with amp.Trainer(amp.optimizers.Adam(0.01).minimize(loss)) as trainer:
        ...     history = trainer.train(batch, epochs=3, batch=2)
    """

    def __init__(self, step: Any, *further: Any, **options: Any) -> None:
        """Open a session, or take an open one.

        Args:
            step: A TrainOp, a step model or its file, or an open `TrainingSession`, which the
                caller closes.
            *further: Further arguments of `TrainingSession`.
            **options: Its options: providers, precision, emulate, shards, ...

        Raises:
            AmpError: There are arguments for an open session; or see `TrainingSession`.
        """
        self._open = ExitStack()
        if isinstance(step, TrainingSession):
            if further or options:
                raise OptionError(
                    "an open session takes no arguments any more",
                    found=", ".join(options) or "arguments",
                    remedy="give them to TrainingSession",
                )
            self.session = step
        else:
            self.session = self._open.enter_context(TrainingSession(step, *further, **options))

    def train(
        self,
        data: Any,
        *,
        epochs: int = 1,
        batch: int = 32,
        eval: Any = None,  # noqa: A002 what it is called everywhere
        metrics: Metrics = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 0,
        resume: bool = False,
        seed: int = 0,
        shuffle: bool = True,
    ) -> History:
        """Train.

        Ctrl-C, on any shard, ends training after the present update and saves the checkpoint. If
        gradients of several batches make an update, the last update of an epoch is of the remaining
        batches, and training is evaluated, saved and ended between updates only.

        Args:
            data: An .npz or .csv file; a mapping from input names to arrays, or a tuple of arrays
                in the order of the inputs, the first axis over the examples; or batches: a torch
                DataLoader, any iterable, or a function that returns one for each epoch.
            epochs: How often every example is seen, in all.
            batch: Examples in a step; an iterable has its own batches.
            eval: Held-out examples, as `data`, evaluated after each epoch.
            metrics: "accuracy", functions of labels and outputs such as scikit-learn's, or a list
                of these; None is the accuracy if the step names its logits.
            callbacks: Objects to call on the way: of `amp.callbacks`, or your own.
            checkpoint: The file to save after each epoch.
            checkpoint_every: Save also after every N steps, at the end of the update; 0 is off.
            resume: Continue from the checkpoint, bit for bit, in the middle of an epoch too.
            seed: Decides the order of the examples.
            shuffle: Whether each epoch has its own order.

        Returns:
            The measurements, and why training ended.

        Raises:
            AmpError: An argument is impossible or has no use; data do not fit; the loss is not
                finite; a file cannot be read or written.
        """
        plan = Plan(epochs, batch, seed, shuffle, checkpoint, checkpoint_every)
        names = self.session.info.inputs
        examples = as_examples(data, names)
        held_out = None if eval is None else as_examples(eval, names)
        at = resumed(self.session, plan) if arguments.switch("resume", resume) else Progress()
        history = History()
        with interruptible() as interrupt:
            run_plan(
                self.session,
                examples,
                plan,
                held_out=held_out,
                metrics=metrics,
                callbacks=[history, *_callbacks(callbacks), interrupt],
                progress=at,
            )
        return history

    def evaluate(self, data: Any, *, batch: int = 32, metrics: Metrics = None) -> dict[str, float]:
        """Return the mean loss over held-out examples in inference mode, and metrics.

        Args:
            data: See `train`.
            batch: Examples to run at once.
            metrics: See `train`.

        Returns:
            "eval_loss", and "eval_<name>" for each metric.

        Raises:
            AmpError: See `train`.
        """
        held_out = as_examples(data, self.session.info.inputs)
        return evaluate(self.session, held_out, Plan(1, batch).batch, metrics)

    def close(self) -> None:
        """Close the session, unless it was open before."""
        self._open.close()

    def __enter__(self) -> Self:
        """Return the trainer."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the session, unless it was open before."""
        self.close()


class History(Callback, Shown):
    """Measurements during training.

    Attributes:
        losses: Step (from 1) -> the loss of its batch.
        evaluations: Step -> the results of the evaluation after it.
        stopped: Why training ended before its last epoch, or None.
    """

    def __init__(self) -> None:
        """Begin without measurements."""
        self.losses: dict[int, float] = {}
        self.evaluations: dict[int, dict[str, float]] = {}
        self.stopped: str | None = None

    def lines(self) -> Iterator[str]:
        """Yield the steps and the last loss, the last evaluation, and why training ended."""
        steps = counted(len(self.losses), "step")
        yield steps + "".join(f", loss {loss:.4g}" for loss in [*self.losses.values()][-1:])
        yield from (f"{name} {number:.4g}" for name, number in self.evaluation.items())
        yield from () if self.stopped is None else (f"ended: {self.stopped}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes in a form for JSON; NaN and infinities are None."""
        return {"version": VERSION, **{name: json_form(each) for name, each in vars(self).items()}}

    @property
    def evaluation(self) -> dict[str, float]:
        """The last evaluation; empty if there was none."""
        return next(reversed(self.evaluations.values()), {})

    def on_step(self, run: Run) -> None:
        """Note the loss."""
        self.losses[run.at.step] = run.at.loss

    def on_evaluation(self, run: Run) -> None:
        """Note the results."""
        self.evaluations[run.at.step] = run.at.evaluation or {}

    def on_end(self, run: Run) -> None:
        """Note why the run has ended."""
        self.stopped = run.stopped


def train(
    step: Any,
    data: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    session: Mapping[str, Any] | None = None,
    **options: Any,
) -> History:
    """Train a step on data, in one call.

    Args:
        step: See `Trainer`.
        data: See `Trainer.train`.
        output: The file of the trained model, or None.
        session: Options of `TrainingSession`: providers, precision, emulate, ...
        **options: Options of `Trainer.train`.

    Raises:
        AmpError: See `Trainer.train`.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> batch = {"x": np.eye(4, 8, dtype=np.float32), "labels": np.arange(4)}
        >>> train_op = amp.optimizers.Adam(0.01).minimize(loss)
        >>> history = amp.train(train_op, batch, epochs=3, batch=2, output="trained.onnx")
    """
    with Trainer(step, **arguments.mapping("session", session or {}, what=OPTIONS)) as trainer:
        history = trainer.train(data, **options)
        if output is not None:
            trainer.session.export(output)
    return history


def _callbacks(callbacks: Sequence[Callback]) -> Sequence[Callback]:
    listed = isinstance(callbacks, Sequence)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    for callback in callbacks if listed else [callbacks]:
        if not isinstance(callback, Callback) or not listed:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                "not a callback in a list",
                found=f"an object of type {type(callback).__name__}",
                expected="a list of amp_rewrite.callbacks.Callback",
            )
    return callbacks
