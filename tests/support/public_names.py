"""What the package offers to be called: functions, classes and methods that take arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

MODULES = (
    "amp_rewrite",
    "amp_rewrite.losses",
    "amp_rewrite.optimizers",
    "amp_rewrite.loss_scaling",
    "amp_rewrite.distributed",
    "amp_rewrite.callbacks",
)
"""The public modules, as in the API reference."""


def callables() -> set[str]:
    """Return the qualified names of everything public that takes arguments."""
    return {qualified(f) for f in _everything() if _takes_arguments(f)}


def qualified(function: Callable[..., Any]) -> str:
    """Return where a function, class or method is defined, whatever it is bound to."""
    plain = getattr(function, "__func__", function)
    return f"{plain.__module__.removeprefix('amp_rewrite.')}:{plain.__qualname__}"


def _everything() -> Iterator[Callable[..., Any]]:
    for module in map(import_module, MODULES):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield found
            elif inspect.isclass(found) and not issubclass(found, BaseException):
                yield found
                yield from _methods(found)


def _methods(owner: type[Any]) -> Iterator[Callable[..., Any]]:
    for name, member in inspect.getmembers(owner, inspect.isroutine):
        defined = getattr(member, "__module__", None) or ""
        is_ours = not name.startswith("_") and defined.startswith("amp_rewrite")
        if is_ours and callable(member):  # Python 3.13 takes a cached_property for a routine
            yield member


def _takes_arguments(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    return bool(parameters.keys() - {"self", "cls"})


RECORDS = (
    *("RewriteResult", "Report", "VerifyReport", "CheckReport", "Conversion", "Calibration"),
    *(
        "RaisedModel",
        "WideResult",
        "SafetyReport",
        "Verdict",
        "FolderReport",
        "Repair",
        "OpLists",
        "TrainOp",
        "GraphValue",
        "IndexedSlices",
        "UpdateInput",
    ),
    *("LossScaleState", "Shards", "Diagnosis", "Run"),
)
"""Classes whose objects functions return: nobody calls them to make one."""

HOOKS = (
    *("UpdateRule.*", "*Rule.*", "LossScale.*", "*LossScale.applied"),
    *("*LossScale.skipped", "*.factor", "Collective*", "OptimizerWrapper"),
    *("*.apply_reduced", "Shards.fail"),
    *("RewriteOptions.check_names", "RewriteOptions.keeps_type"),
    *("RewriteResult.report_of_run", "*.member", "VerifyReport.verdict_beside"),
    *("TrainingSession.cause", "*.on_*", "*.fetches"),
    *("Best.restore", "Callback.restore"),
    *("Run.call", "Best*.check"),
    "Callback.check",
)
"""Patterns of what the package calls, and a user at most overrides."""


def is_called_by_users(name: str) -> bool:
    """Return whether a qualified name is something that a user calls."""
    own = name.rpartition(":")[2]
    others = (*RECORDS, *HOOKS)
    return not any(fnmatchcase(own, pattern) for pattern in others)


def unused_patterns() -> list[str]:
    """Return what the lists above have, and the package has not."""
    own = [name.rpartition(":")[2] for name in callables()]
    patterns = (*RECORDS, *HOOKS)
    return [p for p in patterns if not any(fnmatchcase(name, p) for name in own)]
