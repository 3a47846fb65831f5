"""The interface of every engine: a model that it has loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Provider = str | tuple[str, Mapping[str, Any]]
"""The name of an execution provider, or its name and options."""


def name_and_options(provider: Provider) -> tuple[str, Mapping[str, Any]]:
    """Return the two parts of a provider."""
    return (provider, {}) if isinstance(provider, str) else provider


@dataclass(frozen=True, slots=True)
class RanNode:
    """A node as an engine ran it: after its optimizer, copies and casts of its own included.

    Attributes:
        provider: The execution provider that took it, or the engine that has none.
        microseconds: The time that the host was busy with it in the first run.
        type: The element type that it computed in, as ONNX spells it; "" if that is not known.
        covers: The names of the model's nodes that it computes, as far as the engine says; a node
            without a name is called as its first output.
    """

    name: str
    op: str
    provider: str
    microseconds: int
    type: str = ""
    covers: tuple[str, ...] = ()


class Binding(Protocol):
    """Tensors that are a session's inputs and outputs; they stay bound from run to run.

    Tensors are what the engine shares its memory by: OrtValues, or numpy arrays.
    """

    def read(self, name: str, value: Any) -> None:
        """Bind a tensor that an input is read from."""
        ...

    def write(self, name: str, value: Any) -> None:
        """Bind a tensor that an output is written to."""
        ...

    def allocate(self, name: str) -> None:
        """Let every run allocate an output, whose shape may differ from run to run."""
        ...

    def run(self, failure: str) -> None:
        """Run the session; `failure` is what a RunError says went wrong."""
        ...

    def outputs(self, names: Iterable[str]) -> list[Any]:
        """Return the tensors of outputs, as the last run left them."""
        ...


class Session(Protocol):
    """A model that an engine has loaded.

    Attributes:
        inputs: The names of the inputs that must be fed.
        overridable: The names of those that have a default.
        outputs: The names of the outputs.
    """

    inputs: tuple[str, ...]
    overridable: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return outputs in order, all of them by default; raises RunError."""
        ...

    def bind(self) -> Binding:
        """Return a new binding of the inputs and outputs; there may be several."""
        ...

    def end_profiling(self) -> str:
        """End profiling, which options of the engine began; return the path of the profile."""
        ...

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes of the first run, in order, and end profiling.

        The session was asked to profile. What it runs afterwards costs nothing more.
        """
        ...


def threads_of_environment() -> int:
    """Return the first number of OMP_NUM_THREADS; 0 without one, or with an impossible one.

    The engines do not read it. Whoever starts several processes on one machine sets it:
    threads that wait for work spin, and two processes with a thread for each core take twice the
    time of two with one thread.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if re.fullmatch("[0-9]{1,4}", first) else 0
