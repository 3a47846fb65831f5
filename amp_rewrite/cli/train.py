"""`amp-rewrite train`: run a training step over a data set."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.cli import common
from amp_rewrite.cli.progress import counting_bar
from amp_rewrite.cli.train_options import check_options, given_options
from amp_rewrite.cli.train_output import (
    print_interrupted,
    print_run,
    print_search,
    show_progress,
)
from amp_rewrite.cli.train_setup import (
    begin_with,
    best_of,
    check_adapters,
    check_paths,
    check_restore,
    columns_of,
    examples_of,
    logs_of,
    source_of,
    stopping_of,
)
from amp_rewrite.distributed import started
from amp_rewrite.metrics.get_metric import NAMES, get
from amp_rewrite.targets import CPU
from amp_rewrite.trainer.loop.interrupt import INTERRUPTED, interruptible
from amp_rewrite.trainer.loop.loop import resume
from amp_rewrite.trainer.loop.loop import train as run
from amp_rewrite.trainer.loop.plan import Plan, Progress
from amp_rewrite.trainer.loop.ready_callbacks import (
    Watch,
)
from amp_rewrite.trainer.loop.trainer import Trainer
from amp_rewrite.trainer.session.input_checks import ALLOW
from amp_rewrite.trainer.session.training_session import TrainingSession


def train(
    context: typer.Context,
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
    adapters: Annotated[
        Path | None,
        typer.Option(
            help="Write the adapters of train-step --lora alone into this folder, as PEFT does."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the state here (safetensors) after every epoch.")
    ] = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(help="Save after so many steps too, or after their update; 0 does not."),
    ] = 0,
    resume_: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, bit for bit.")
    ] = False,
    restore: Annotated[
        Path | None, typer.Option(help="Begin with the states of this checkpoint.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict/--no-strict",
            help="--no-strict takes of --restore what fits by name, shape and type, across "
            "freezing, and says what that is not.",
        ),
    ] = True,
    eval_: Annotated[
        Path | None, typer.Option("--eval", help="Held-out data to evaluate after every epoch.")
    ] = None,
    eval_every: Annotated[
        int,
        typer.Option(help="Evaluate after so many steps instead, or their update; 0 does not."),
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
    restore_best: Annotated[
        bool,
        typer.Option(
            "--restore-best",
            help="Write the model of --best, not that of the last step.",
        ),
    ] = False,
    patience: Annotated[
        int,
        typer.Option(min=0, help="End after so many evaluations that are not better; 0 never."),
    ] = 0,
    min_delta: Annotated[
        float, typer.Option(min=0, help="What is better for --patience is so by more than this.")
    ] = 0.0,
    mode: Annotated[
        str | None,
        typer.Option(help="What is better: min or max. Default: min for losses and errors."),
    ] = None,
    averaged: Annotated[
        bool,
        typer.Option(
            "--averaged",
            help="Evaluate and write the averages of the weights that train-step --average keeps.",
        ),
    ] = False,
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
    find_learning_rate: Annotated[
        bool,
        typer.Option(
            "--find-learning-rate", help="Only try growing learning rates, and suggest one."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the order of the examples.")] = 0,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Give each epoch an order of its own.")
    ] = True,
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", help="Execution provider, or the name of its target; repeat."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Whose kernels --emulate emulates. Default: that of the provider."),
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

    Ctrl-C ends training after the present step, or the update that it is a part of; with
    --checkpoint it can be resumed from there.
    """
    check_options(given_options(context))
    every = checkpoint_every, eval_every
    plan = Plan(
        epochs, batch, seed, shuffle, checkpoint, *every, ahead, averaged and eval_ is not None
    )
    check_restore(restore, resume=resume_)
    measured = None if metric is None else [get(name) for name in metric]
    watching = [
        *best_of(best, monitor, mode, restore=restore_best),
        *stopping_of(patience, monitor, min_delta, mode),
    ]
    check_paths([step, data, eval_, restore], [output, checkpoint, metrics, best, page])
    with ExitStack() as stack:
        group = None if shards is None else stack.enter_context(started(shards))
        first = group is None or group.is_first
        quiet = quiet or not first
        session = stack.enter_context(
            TrainingSession(
                source_of(step),
                [targets.provider_named(name) for name in provider or [CPU]],
                threads=threads,
                target=target,
                emulate=emulate,
                cuda_graph=cuda_graph,
                shards=group,
                non_finite=non_finite,
            )
        )
        session.check_averages(averaged)
        check_adapters(session.info, adapters)
        examples, held_out = examples_of(group, data, eval_)
        if group is not None:
            group.compare("the order of steps", f"epochs {epochs}, {plan.order}")
        at = resume(session, plan) if resume_ else Progress()
        begin_with(session, restore, strict=strict, quiet=quiet)
        if find_learning_rate:
            found = Trainer(session).find_learning_rate(examples, batch=batch, seed=seed)
            print_search(found, common.console(quiet=quiet))
            return
        if learning_rate is not None:
            session.learning_rate = learning_rate
        after = at.step if resume_ else None
        written = metrics, tensorboard, page
        logs = logs_of(stack, *written, after, columns_of(measured)) if first else []
        bar = stack.enter_context(counting_bar(quiet=quiet))
        steps = examples.steps(batch, drop_last=session.fixed_batch)
        total = None if steps is None else epochs * steps
        task = bar.add_task("training", total=total, completed=at.step, note="")
        show = Watch(lambda progress: show_progress(bar, task, epochs, progress))
        interrupt = stack.enter_context(interruptible())
        done = run(
            session,
            examples,
            plan,
            held_out=held_out,
            metrics=measured,
            callbacks=[*logs, show, *watching, interrupt],
            progress=at,
        )
        interrupted = done.stopped == INTERRUPTED
        if output is not None and first and not interrupted:
            session.export(output, averaged=averaged)
        if adapters is not None and first and not interrupted:
            session.export_adapters(adapters, averaged=averaged)
    if interrupted:
        if first:
            print_interrupted(done.at, checkpoint)
        raise typer.Exit(common.INTERRUPTED)
    if not quiet:
        print_run(done, checkpoint, output, adapters)
