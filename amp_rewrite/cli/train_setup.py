"""What the options of `amp-rewrite train` stand for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from amp_rewrite.cli.train_output import (
    print_restored,
)
from amp_rewrite.distributed import Shards
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.graph.keys import STEP_KEY
from amp_rewrite.metrics.metric import Metric
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.run_page.run_page import RunPage
from amp_rewrite.trainer.data.as_examples import read_examples
from amp_rewrite.trainer.data.examples import Examples
from amp_rewrite.trainer.loop.metrics_file import COLUMNS, MetricsFile
from amp_rewrite.trainer.loop.ready_callbacks import (
    Best,
    BestCheckpoint,
    EarlyStopping,
    Log,
)
from amp_rewrite.trainer.loop.run import Callback
from amp_rewrite.trainer.loop.tensorboard_log import TensorBoardLog
from amp_rewrite.trainer.session.adapter_files import TENSORS
from amp_rewrite.trainer.session.training_session import TrainingSession
from amp_rewrite.trainer.step.step_info import StepInfo
from amp_rewrite.training_info import has_training_info, read_training_info


def begin_with(session: TrainingSession, path: Path | None, *, strict: bool, quiet: bool) -> None:
    """Begin with the states of a checkpoint, if one is named."""
    if path is None:
        return
    session.restore(path, strict=strict)
    if not quiet:
        print_restored(session.restored, path)


def logs_of(
    stack: ExitStack,
    metrics: Path | None,
    tensorboard: Path | None,
    page: Path | None,
    after: int | None,
    columns: tuple[str, ...],
) -> list[Callback]:
    """Return what writes down how training goes; the stack closes the files of rows.

    Args:
        stack: Gets the files.
        metrics: The file of rows, or None.
        tensorboard: The folder of event files, or None.
        page: The page of the run, or None.
        after: The step behind which a file of rows is gone on with; None begins a new one.
        columns: What a row holds.
    """
    logs: list[Callback] = [] if page is None else [RunPage(page)]
    if metrics is not None:
        logs.append(Log(stack.enter_context(MetricsFile(metrics, after=after, columns=columns))))
    if tensorboard is not None:
        logs.append(Log(stack.enter_context(TensorBoardLog(tensorboard))))
    return logs


def examples_of(
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


def best_of(path: Path | None, monitor: str, mode: str | None, *, restore: bool) -> list[Best]:
    """Return what keeps the best checkpoint, if it is to be kept."""
    return [] if path is None else [BestCheckpoint(path, monitor, mode=mode, restore=restore)]


def stopping_of(evaluations: int, monitor: str, min_delta: float, mode: str | None) -> list[Best]:
    """Return what ends training when evaluations are not better any more, if anything is to."""
    if not evaluations:
        return []
    return [EarlyStopping(monitor, patience=evaluations, min_delta=min_delta, mode=mode)]


def check_restore(restore: Path | None, *, resume: bool) -> None:
    """Refuse to begin with two checkpoints.

    Raises:
        OptionError: Both are asked for.
    """
    if restore is not None and resume:
        raise OptionError(
            "--resume goes on from --checkpoint, and --restore begins with another one",
            remedy="leave one of them out",
        )


def check_adapters(info: StepInfo, folder: Path | None) -> None:
    """Refuse to write adapters that the step lacks, or where no folder can be made.

    Raises:
        OptionError: The step has none.
        SaveError: The folder cannot be made.
    """
    if folder is None:
        return
    if not info.adapters:
        raise OptionError(
            "the step has no adapters to write",
            where="--adapters",
            remedy="build it with train-step --lora, or write the model with --output",
        )
    check_writable(folder / TENSORS if folder.exists() else folder)


def columns_of(metrics: Sequence[Metric] | None) -> tuple[str, ...]:
    """Return what a row of a .csv file holds."""
    if metrics is None:
        return COLUMNS
    kept = COLUMNS[: COLUMNS.index("eval_loss") + 1]
    return (*kept, *(f"eval_{metric.name}" for metric in metrics))


def source_of(path: Path) -> Path | TrainOp:
    """Return the path of a step, or the step that a model's training_info describes."""
    model = load(path)
    if STEP_KEY in model.metadata_props or not has_training_info(model):
        return path
    return read_training_info(path)


def check_paths(read: list[Path | None], written: list[Path | None]) -> None:
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
