"""What a session reads and writes, bound before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amp_rewrite.runtimes.ort.device import HOST, Device
from amp_rewrite.runtimes.ort.runtime import import_runtime, one_line
from amp_rewrite.targets import CPU


class Binding:
    """The OrtValues that are a session's inputs and outputs; they stay bound from run to run."""

    def __init__(self, session: Any) -> None:
        """Begin with nothing bound."""
        self._session, self._binding = session, session.io_binding()
        self._copies = session.get_providers() != [CPU]
        self._read: dict[str, Any] = {}
        self._order: dict[str, int] = {}
        self._allocated: dict[str, Device] = {}

    def read(self, name: str, value: Any) -> None:
        """Bind an OrtValue that an input is read from.

        If a node on another device reads it, ONNX Runtime copies it when it is bound, not when the
        session runs. So it is bound anew for every run, unless there is one device only.
        """
        if self._copies:
            self._read[name] = value
        else:
            self._binding.bind_ortvalue_input(name, value)

    def write(self, name: str, value: Any) -> None:
        """Bind an OrtValue that an output is written to."""
        self._order.setdefault(name, len(self._order))
        self._binding.bind_ortvalue_output(name, value)

    def allocate(self, name: str, device: Device = HOST) -> None:
        """Let every run allocate an output, whose shape may differ from run to run."""
        self._order.setdefault(name, len(self._order))
        self._allocated[name] = device
        self._bind_allocated(name)

    def run(self, failure: str) -> None:
        """Run the session.

        Args:
            failure: What an error says went wrong.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
        for name in self._allocated:  # what the last run allocated has its shape
            self._bind_allocated(name)
        with one_line(failure):
            self._bind_read()
            self._session.run_with_iobinding(self._binding)

    def outputs(self, names: Iterable[str]) -> list[Any]:
        """Return the OrtValues of outputs, as the last run left them."""
        ort_value = import_runtime().OrtValue
        values = self._binding.get_outputs_as_ortvaluevector()
        return [ort_value(values[self._order[name]]) for name in names]

    def _bind_read(self) -> None:
        for name, value in self._read.items():
            self._binding.bind_ortvalue_input(name, value)

    def _bind_allocated(self, name: str) -> None:
        device = self._allocated[name]
        self._binding.bind_output(name, device.kind, device.index)
