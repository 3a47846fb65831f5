"""The data of a run's page: the one place where they are made, and checked when a file is read."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from amp_rewrite.base.fields import TEXT, kind, list_of, mapping_to, object_of, or_null
from amp_rewrite.base.printable import printable
from amp_rewrite.base.version import __version__
from amp_rewrite.loop.interrupt import INTERRUPTED
from amp_rewrite.loop.run import Run
from amp_rewrite.loop.run_page.history import History, mean_of, short
from amp_rewrite.training.step.gradient_underflow import underflow_variables
from amp_rewrite.training.step.step_info import StepInfo

VERSION = 1
"""Version of the data; pages of another one are not served."""

RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"
"""How a run is."""

Array = np.ndarray[Any, Any]

Setting = str | float | bool
"""What a hyperparameter is."""


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
    settings: Mapping[str, Setting] | None = None,
) -> dict[str, Any]:
    """Return what the page shows of a run, as JSON has it; names in it are printable.

    `layers` is what is known of gradients; `state` is how the run ended and why, None while it goes
    on; `every` is the seconds between two writings of the page, at least; `settings` are
    hyperparameters by name.
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
        "settings": {printable(k): _shown(v) for k, v in (settings or {}).items()},
        "missing": _missing(info),
        "width": history.width,
        "curves": history.curves(),
        "evaluations": {printable(k): v for k, v in history.evaluation_curves().items()},
        "layers": layers.columns(),
    }


def settings_of(run: Run) -> dict[str, Setting]:
    """Return what a run was given, as far as its plan and its step tell when it begins."""
    session, plan = run.session, run.plan
    info = session.info
    found: dict[str, Setting] = {"precision": info.precision, "batch": plan.batch}
    for role, name in (("learning_rate", "learning rate"), ("loss_scale", "initial loss scale")):
        state = info.having(role)
        if state is not None and math.prod(state.shape) == 1:
            found[name] = float(np.ravel(session.read_state(state.name))[0])
    if info.accumulate > 1:
        found["accumulate"] = info.accumulate
    return {**found, "epochs": plan.epochs, "seed": plan.seed}


def _shown(setting: Setting) -> str | float | None:
    """Return a setting as JSON has it."""
    if isinstance(setting, str | bool):
        return printable(str(setting))
    return short(setting)


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE


_NUMBER = kind("a number", _is_number)
_COLUMN = list_of(or_null(_NUMBER))
_FORM = object_of(
    {
        "version": kind(str(VERSION), lambda found: found == VERSION),
        **dict.fromkeys(_TEXTS, TEXT),
        **dict.fromkeys(_NUMBERS, _NUMBER),
        "missing": list_of(TEXT),
        "curves": object_of(dict.fromkeys(_CURVES, _COLUMN), more=True),
        "evaluations": mapping_to(_COLUMN),
        "layers": object_of(
            {"variable": list_of(TEXT), **dict.fromkeys(_LAYERS, _COLUMN)}, more=True
        ),
    },
    more=True,
)


def checked(found: object) -> dict[str, Any] | None:
    """Return the data of a run that were read from a file, or None if they are none.

    Args:
        found: What JSON held; names in it are made printable, what no page of this version has is
            left out.
    """
    if _FORM(found, "") is not None:
        return None
    run = cast("dict[str, Any]", found)
    tables = {
        "curves": {name: run["curves"][name] for name in _CURVES},
        "evaluations": {printable(name): v for name, v in run["evaluations"].items()},
        "layers": {name: run["layers"][name] for name in ("variable", *_LAYERS)},
    }
    if "step" not in tables["evaluations"] or not all(map(_is_rectangular, tables.values())):
        return None
    tables["layers"]["variable"] = list(map(printable, tables["layers"]["variable"]))
    return {
        "version": VERSION,
        **{name: printable(run[name]) for name in _TEXTS},
        **{name: run[name] for name in _NUMBERS},
        "settings": _settings(run.get("settings")),
        "missing": list(map(printable, run["missing"])),
        **tables,
    }


def _settings(found: object) -> dict[str, Any]:
    """Return the settings that were read from a file; other pages of this version have none."""
    given: dict[Any, Any] = found if isinstance(found, dict) else {}
    return {
        printable(str(name)): printable(value) if isinstance(value, str) else value
        for name, value in given.items()
        if value is None or isinstance(value, str) or _is_number(value)
    }


def _is_rectangular(table: Mapping[str, Sequence[Any]]) -> bool:
    return len({len(column) for column in table.values()}) == 1
