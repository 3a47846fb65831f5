"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bar
from rich.progress import TaskID

from amp_rewrite import targets
from amp_rewrite.cli import common
from amp_rewrite.cli.progress import counting_bar
from amp_rewrite.distributed import started
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.targets import CPU
from amp_rewrite.train.data.data_set import DataSet
from amp_rewrite.train.loop.evaluation import summary
from amp_rewrite.train.loop.loop import resume
from amp_rewrite.train.loop.loop import train as run
from amp_rewrite.train.loop.metrics_file import MetricsFile
from amp_rewrite.train.loop.plan import Plan, Progress
from amp_rewrite.train.session.input_checks import ALLOW
from amp_rewrite.train.session.training_session import TrainingSession
from amp_rewrite.train.step.step_info import STEP_KEY
from amp_rewrite.training_info import has_training_info, read_training_info


def train(
    step: Annotated[
        Path,
        typer.Argument(
            help="The step that amp-rewrite train-step wrote, or a model with training_info."
        ),
    ],
    data: Annotated[
        Path, typer.Option(help="An .npz file: an array per input, the first axis over examples.")
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
        Path | None, typer.Option("--eval", help="Held-out .npz to evaluate after every epoch.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Write a row per step here: .csv or .jsonl.")
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
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Train STEP on data, with checkpoints, metrics and evaluation."""
    plan = Plan(epochs, batch, seed, shuffle, checkpoint, checkpoint_every)
    _check_paths([step, data, eval_], [output, checkpoint, metrics])
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
        examples = DataSet.read(data) if group is None else group.data(data)
        held_out = None if eval_ is None else DataSet.read(eval_)
        if group is not None:
            group.compare("the training data", examples.signature)
            group.compare("the held-out data", "none" if held_out is None else held_out.signature)
            group.compare("the order of steps", f"epochs {epochs}, {plan.order}")
        if held_out is not None and group is not None:
            held_out = group.held_out(held_out)
        at = resume(session, plan) if resume_ else Progress()
        if learning_rate is not None:
            session.learning_rate = learning_rate
        rows = None
        if metrics is not None and first:
            rows = stack.enter_context(MetricsFile(metrics, after=at.step if resume_ else None))
        bar = stack.enter_context(counting_bar(quiet=quiet))
        total = epochs * examples.steps(batch, drop_last=session.fixed_batch)
        task = bar.add_task("training", total=total, completed=at.step, note="")
        done = run(
            session,
            examples,
            plan,
            held_out=held_out,
            metrics=rows,
            progress=at,
            watch=lambda progress: _show(bar, task, epochs, progress),
        )
        if output is not None and first:
            session.export(output)
    if not quiet:
        _print(done, output, checkpoint)
        for name, count in session.fed_non_finite.items():
            common.console().print(f"{name}: {count} numbers fed were not finite")


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


def _print(done: Progress, output: Path | None, checkpoint: Path | None) -> None:
    out = common.console()
    last = "" if math.isnan(done.loss) else f", last loss {done.loss:.4g}"
    out.print(f"{done.epoch} epochs, {done.step} steps{last}")
    if done.loss_scale is not None:
        out.print(f"loss scale {done.loss_scale:g}, {done.skipped_steps} steps skipped")
    if done.evaluation is not None:
        out.print(f"held out: {summary(done.evaluation)}")
    for path in (checkpoint, output):
        if path is not None:
            out.print(f"wrote {path}")
