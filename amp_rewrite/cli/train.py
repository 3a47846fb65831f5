"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bar
from rich.progress import TaskID

from amp_rewrite import targets
from amp_rewrite.cli import common
from amp_rewrite.cli.progress import counting_bar
from amp_rewrite.distributed import Shards, started
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.metrics.get_metric import NAMES, get
from amp_rewrite.metrics.metric import Metric
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.run_page.run_page import RunPage
from amp_rewrite.targets import CPU
from amp_rewrite.trainer.data.as_examples import read_examples
from amp_rewrite.trainer.data.examples import Examples
from amp_rewrite.trainer.loop.evaluation import summary
from amp_rewrite.trainer.loop.interrupt import INTERRUPTED, interruptible
from amp_rewrite.trainer.loop.loop import resume
from amp_rewrite.trainer.loop.loop import train as run
from amp_rewrite.trainer.loop.metrics_file import COLUMNS, MetricsFile
from amp_rewrite.trainer.loop.plan import Plan, Progress
from amp_rewrite.trainer.loop.ready_callbacks import (
    Best,
    BestCheckpoint,
    EarlyStopping,
    Log,
    Watch,
)
from amp_rewrite.trainer.loop.run import Callback, Run
from amp_rewrite.trainer.loop.tensorboard_log import TensorBoardLog
from amp_rewrite.trainer.session.input_checks import ALLOW
from amp_rewrite.trainer.session.training_session import TrainingSession
from amp_rewrite.trainer.step.step_info import STEP_KEY
from amp_rewrite.training_info import has_training_info, read_training_info


def train(
    step: Annotated[
        Path,
        typer.Argument(
            help="The step that amp-rewrite train-step wrote, or a model with training_info."
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="An .npz file or a folder of .npy files, an array per input, the first axis over "
            "examples; or Parquet or Arrow files, a column per input."
        ),
    ],
    epochs: Annotated[int, typer.Option(help="How often every example is seen, in all.")] = 1,
    batch: Annotated[int, typer.Option(help="Examples in a step, of all shards.")] = 32,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write the trained inference model."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the state here (safetensors) after every epoch.")
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(help="Save after so many steps too; 0 does not.")
    ] = 0,
    resume_: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, bit for bit.")
    ] = False,
    eval_: Annotated[
        Path | None, typer.Option("--eval", help="Held-out data to evaluate after every epoch.")
    ] = None,
    eval_every: Annotated[
        int, typer.Option(help="Evaluate after so many steps instead; 0 does not.")
    ] = 0,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help=f"What to measure there: {', '.join(NAMES)}, or METRIC:PREDICTIONS:LABELS; "
            "repeat. Default: the accuracy if it is known.",
            autocompletion=common.completing(NAMES),
        ),
    ] = None,
    best: Annotated[
        Path | None, typer.Option(help="Keep the checkpoint of the best evaluation here.")
    ] = None,
    patience: Annotated[
        int,
        typer.Option(min=0, help="End after so many evaluations that are not better; 0 never."),
    ] = 0,
    monitor: Annotated[
        str, typer.Option(help="What --best and --patience watch: eval_loss, eval_accuracy, ...")
    ] = "eval_loss",
    metrics: Annotated[
        Path | None, typer.Option(help="Write a row per step here: .csv or .jsonl.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write event files for TensorBoard into this folder.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write a page here (.html) that shows the run in a browser and refreshes itself."
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Another learning rate than the step's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the order of the examples.")] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Give each epoch an order of its own.")
    ] = True,
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", help="Execution provider, or the name of its target; repeat."),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=0, help="Threads inside an operator; 0 is all, or a shard's share.")
    ] = 0,
    shards: Annotated[
        str | None,
        typer.Option(
            help="mpi or torch: this process is one of those that mpiexec or torchrun has started; "
            "each takes its part of every batch."
        ),
    ] = None,
    emulate: Annotated[
        bool,
        typer.Option(
            help="Round as a device with float16 or bfloat16 does; the CPU provider does not."
        ),
    ] = False,
    cuda_graph: Annotated[
        bool,
        typer.Option(
            "--cuda-graph",
            help="Capture each step as a CUDA graph; its loss scale needs --conditional select.",
        ),
    ] = False,
    non_finite: Annotated[
        str,
        typer.Option(help="NaN and infinities in the data: allow, count (and print) or refuse."),
    ] = ALLOW,
    ahead: Annotated[
        int | None,
        typer.Option(help="Batches to read ahead on a thread. Default: 2 for data not in memory."),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Train STEP on data, with checkpoints, metrics and evaluation.

    Ctrl-C ends training after the present step; with --checkpoint it can be resumed from there.
    """
    plan = Plan(epochs, batch, seed, shuffle, checkpoint, checkpoint_every, eval_every, ahead)
    measured = None if metric is None else [get(name) for name in metric]
    watching = [*_best(best, monitor), *_patience(patience, monitor)]
    if watching and eval_ is None:
        raise OptionError("--best and --patience watch evaluations", remedy="name data by --eval")
    _check_paths([step, data, eval_], [output, checkpoint, metrics, best, page])
    with ExitStack() as stack:
        group = None if shards is None else stack.enter_context(started(shards))
        first = group is None or group.is_first
        quiet = quiet or not first
        session = stack.enter_context(
            TrainingSession(
                _source(step),
                [targets.provider_named(name) for name in provider or [CPU]],
                threads=threads,
                emulate=emulate,
                cuda_graph=cuda_graph,
                shards=group,
                non_finite=non_finite,
            )
        )
        examples, held_out = _examples(group, data, eval_)
        if group is not None:
            group.compare("the order of steps", f"epochs {epochs}, {plan.order}")
        at = resume(session, plan) if resume_ else Progress()
        if learning_rate is not None:
            session.learning_rate = learning_rate
        logs: list[Callback] = [] if page is None or not first else [RunPage(page)]
        if metrics is not None and first:
            after, columns = at.step if resume_ else None, _columns(measured)
            logs.append(
                Log(stack.enter_context(MetricsFile(metrics, after=after, columns=columns)))
            )
        if tensorboard is not None and first:
            logs.append(Log(stack.enter_context(TensorBoardLog(tensorboard))))
        bar = stack.enter_context(counting_bar(quiet=quiet))
        steps = examples.steps(batch, drop_last=session.fixed_batch)
        total = None if steps is None else epochs * steps
        task = bar.add_task("training", total=total, completed=at.step, note="")
        show = Watch(lambda progress: _show(bar, task, epochs, progress))
        # Shards stop together or not at all: their engine ends them.
        interrupt = [stack.enter_context(interruptible())] if group is None else []
        done = run(
            session,
            examples,
            plan,
            held_out=held_out,
            metrics=measured,
            callbacks=[*logs, show, *watching, *interrupt],
            progress=at,
        )
        if done.stopped == INTERRUPTED:
            _print_interrupted(done.at, checkpoint)
            raise typer.Exit(common.INTERRUPTED)
        if output is not None and first:
            session.export(output)
    if not quiet:
        _print(done, output, checkpoint)


def _examples(
    group: Shards | None, data: Path, held_out: Path | None
) -> tuple[Examples, Examples | None]:
    """Return the examples to train on and to evaluate on; those of this shard if there are any.

    Raises:
        ShardError: The shards have different ones.
    """
    whole = read_examples(data)
    held = None if held_out is None else read_examples(held_out)
    if group is None:
        return whole, held
    group.compare("the training data", whole.signature)
    group.compare("the held-out data", "none" if held is None else held.signature)
    return group.data(whole), None if held is None else group.held_out(held)


def _best(path: Path | None, monitor: str) -> list[Best]:
    return [] if path is None else [BestCheckpoint(path, monitor)]


def _patience(evaluations: int, monitor: str) -> list[Best]:
    return [EarlyStopping(monitor, patience=evaluations)] if evaluations else []


def _columns(metrics: Sequence[Metric] | None) -> tuple[str, ...]:
    """Return what a row of a .csv file holds."""
    if metrics is None:
        return COLUMNS
    kept = COLUMNS[: COLUMNS.index("eval_loss") + 1]
    return (*kept, *(f"eval_{metric.name}" for metric in metrics))


def _source(path: Path) -> Path | TrainOp:
    """Return the path of a step, or the step that a model's training_info describes."""
    model = load(path)
    if STEP_KEY in model.metadata_props or not has_training_info(model):
        return path
    return read_training_info(path)


def _check_paths(read: list[Path | None], written: list[Path | None]) -> None:
    """Refuse to overwrite what is read, or one output by another.

    Raises:
        SaveError: An output is an input, or cannot be written.
        OptionError: Two outputs are one file.
    """
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


def _show(bar: Bar, task: TaskID, epochs: int, at: Progress) -> None:
    note = f"epoch {min(at.epoch + 1, epochs)}/{epochs}, loss {at.loss:.4g}"
    if at.loss_scale is not None:
        note += f", scale {at.loss_scale:g}, skipped {at.skipped_steps}"
    if at.evaluation is not None:
        note += f"; held out {summary(at.evaluation)}"
    bar.update(task, completed=at.step, note=note)


def _print_interrupted(at: Progress, checkpoint: Path | None) -> None:
    where = f"after step {at.step}, in epoch {at.epoch + 1}"
    kept = (
        "nothing is kept without --checkpoint"
        if checkpoint is None
        else f"{checkpoint} has the state; go on with --resume"
    )
    common.error_console().print(f"training ended {where}: {kept}")


def _print(run: Run, output: Path | None, checkpoint: Path | None) -> None:
    out, done = common.console(), run.at
    if run.stopped is not None:
        out.print(f"stopped: {run.stopped}")
    last = "" if math.isnan(done.loss) else f", last loss {done.loss:.4g}"
    out.print(f"{done.epoch} epochs, {done.step} steps{last}")
    if done.loss_scale is not None:
        out.print(f"loss scale {done.loss_scale:g}, {done.skipped_steps} steps skipped")
    if done.evaluation is not None:
        out.print(f"held out: {summary(done.evaluation)}")
    for path in (checkpoint, output):
        if path is not None:
            out.print(f"wrote {path}")
    for name, count in run.session.fed_non_finite.items():
        out.print(f"{name}: {count} numbers fed were not finite")
