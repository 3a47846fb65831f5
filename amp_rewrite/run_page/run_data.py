"""The data of a run's page: the one place where they are made, and checked when a file is read."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.printable import printable
from amp_rewrite.run_page.history import History, mean_of, short
from amp_rewrite.trainer.loop.interrupt import INTERRUPTED
from amp_rewrite.trainer.loop.run import Run
from amp_rewrite.trainer.step.gradient_underflow import underflow_variables
from amp_rewrite.trainer.step.step_info import StepInfo
from amp_rewrite.version import __version__

VERSION = 1
"""Version of the data; pages of another one are not served."""

RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"
"""How a run is."""

Array = np.ndarray[Any, Any]


class Layers:
    """The shares of each variable's gradient that are zero and subnormal.

    Attributes:
        variables: The variables.
        zero: Of each, the share of zeros in the last step.
        small: Of each, the share of subnormal elements in the last step.
        most: Of each, the largest share of subnormal elements so far.
    """

    def __init__(self) -> None:
        """Know no variable."""
        self.variables: tuple[str, ...] = ()
        self.zero: list[float] = []
        self.small: list[float] = []
        self.most: list[float] = []
        self._sizes: list[float] = []

    def begin(self, info: StepInfo) -> None:
        """Take the variables of a step."""
        self.variables = underflow_variables(info)
        sizes = {state.name: float(math.prod(state.shape)) for state in info.states}
        self._sizes = [sizes.get(name, 0.0) for name in self.variables]

    def note(self, shares: Array) -> tuple[float, float]:
        """Take what a step fetched; return the shares of all elements together."""
        self.zero, self.small = shares[:, 0].tolist(), shares[:, 1].tolist()
        before = self.most or [0.0] * len(self.small)
        self.most = list(map(max, before, self.small))
        return mean_of(self.zero, self._sizes), mean_of(self.small, self._sizes)

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each variable of which something is known."""
        names = self.variables if self.zero else ()
        return {
            "variable": [printable(name) for name in names],
            "zero": [short(share) for share in self.zero],
            "small": [short(share) for share in self.small],
            "most": [short(share) for share in self.most],
        }


def states_of(run: Run) -> tuple[str, str]:
    """Return how a run that has ended is, and why."""
    error = run.failed
    if isinstance(error, KeyboardInterrupt):
        return STOPPED, INTERRUPTED
    if error is not None:
        return FAILED, " ".join(f"{type(error).__name__}: {error}".split())
    return (FINISHED, "") if run.stopped is None else (STOPPED, run.stopped)


def run_data(
    run: Run,
    history: History,
    layers: Layers,
    *,
    title: str,
    state: tuple[str, str] | None,
    every: float,
) -> dict[str, Any]:
    """Return what the page shows of a run, as JSON has it; names in it are printable.

    Args:
        run: The run.
        history: What it has measured.
        layers: What is known of its gradients.
        title: What it is called.
        state: How it has ended and why; None while it goes on.
        every: Seconds between two writings of the page, at least.
    """
    info, at = run.session.info, run.at
    how, why = (RUNNING, "") if state is None else state
    return {
        "version": VERSION,
        "tool": f"amp-rewrite {__version__}",
        "title": printable(title),
        "state": how,
        "reason": printable(why),
        "written": round(time.time(), 1),
        "every": every,
        "epoch": min(at.epoch + 1, run.plan.epochs),
        "epochs": run.plan.epochs,
        "step": at.step,
        "precision": info.precision,
        "accumulate": info.accumulate,
        "missing": _missing(info),
        "width": history.width,
        "curves": history.curves(),
        "evaluations": {printable(k): v for k, v in history.evaluation_curves().items()},
        "layers": layers.columns(),
    }


def _missing(info: StepInfo) -> list[str]:
    """Say what the step does not compute, and how it would."""
    found: list[str] = []
    if "gradient_norm" not in info.fetches:
        found.append("gradient norm: build the step with train-step --fetch gradient_norm")
    if "learning_rate" not in info.fetches and info.having("learning_rate") is None:
        found.append("learning rate: build the step with train-step --fetch learning_rate")
    return found


_TEXTS = ("tool", "title", "state", "reason", "precision")
_NUMBERS = ("written", "every", "epoch", "epochs", "step", "accumulate", "width")
_CURVES = (
    *("step", "seconds", "loss", "loss_scale", "skipped", "learning_rate", "gradient_norm"),
    *("throughput", "zero", "small"),
)
_LAYERS = ("zero", "small", "most")

_HUGE = 1e300
"""No page has a number of this size; Python's JSON reads integers and infinities beyond it."""


def checked(found: object) -> dict[str, Any] | None:
    """Return the data of a run that were read from a file, or None if they are none.

    Args:
        found: What JSON held; names in it are made printable, what no page of this version has is
            left out.
    """
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return None
    texts = {name: found.get(name) for name in _TEXTS}
    numbers = {name: found.get(name) for name in _NUMBERS}
    missing: object = found.get("missing")
    tables = [found.get(name) for name in ("curves", "evaluations", "layers")]
    if not (
        all(isinstance(value, str) for value in texts.values())
        and all(map(_is_number, numbers.values()))
        and isinstance(missing, list)
        and all(isinstance(line, str) for line in missing)
        and all(isinstance(table, dict) for table in tables)
    ):
        return None
    curves, evaluations, layers = tables
    names = layers.get("variable") if isinstance(layers, dict) else None
    columns = [_columns(curves, _CURVES), _columns(evaluations), _columns(layers, _LAYERS)]
    if None in columns or not _fits(names, columns[2]):
        return None
    return {
        "version": VERSION,
        **{name: printable(str(value)) for name, value in texts.items()},
        **numbers,
        "missing": [printable(str(line)) for line in missing],
        "curves": columns[0],
        "evaluations": columns[1],
        "layers": {"variable": [printable(str(n)) for n in names or ()], **(columns[2] or {})},
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE


def _columns(table: Any, names: Sequence[str] | None = None) -> dict[str, list[Any]] | None:
    """Return the columns of a table of numbers and None, or None if they are no such ones.

    Args:
        table: A mapping.
        names: The columns; None is all there are, with "step" among them.
    """
    wanted = list(table) if names is None else names
    found = {printable(str(name)): table.get(name) for name in wanted}
    lists = [column for column in found.values() if isinstance(column, list)]
    if len(lists) < len(wanted) or len({len(column) for column in lists}) > 1:
        return None
    if not all(value is None or _is_number(value) for column in lists for value in column):
        return None
    return None if names is None and "step" not in found else found


def _fits(names: object, columns: Mapping[str, Sequence[Any]] | None) -> bool:
    """Return whether names are texts, as many as the columns of their table are long."""
    if not isinstance(names, list) or columns is None:
        return False
    return len(names) == len(columns[_LAYERS[0]]) and all(isinstance(n, str) for n in names)
