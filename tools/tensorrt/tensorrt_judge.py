#!/usr/bin/env python3
"""What TensorRT makes of models, without a GPU: JSON lines of parsed, built, or why not.

    pip install tensorrt_rtx_cu13_libs tensorrt_rtx_cu13_bindings
    python tools/tensorrt/tensorrt_judge.py [--build] MODEL.onnx ...

    {"model": "m.onnx", "parsed": true, "built": true, "error": ""}

TensorRT-RTX has the parser of TensorRT 11, whose networks are strongly typed: the types in the file
are those of the engine. It parses and builds on a machine without a GPU and without a driver.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

_NAMES = ("tensorrt_rtx", "tensorrt_rtx_bindings")
_SHORTEST, _LENGTH, _LONGEST = 1, 8, 64
"""What a free dimension may be in an engine: the least, the usual and the greatest length."""


def import_tensorrt() -> Any:
    """Return the module, which two packages bring under two names.

    Raises:
        ImportError: It is not installed.
    """
    for name in _NAMES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ImportError("pip install tensorrt_rtx_cu13_libs tensorrt_rtx_cu13_bindings")


Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a model.

    Attributes:
        parsed: Whether the parser took it.
        built: Whether an engine was made; None if that was not asked, or it was not parsed.
        error: The first error, "" if there was none.
    """

    parsed: bool
    built: bool | None = None
    error: str = ""


class Judge:
    """Parses models into strongly typed networks, and builds them."""

    def __init__(self) -> None:
        """Load TensorRT.

        Raises:
            ImportError: It is not installed.
        """
        self.module = import_tensorrt()
        self.messages: list[str] = []

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.module.__version__)

    @cached_property
    def _logger(self) -> Any:
        module, messages = self.module, self.messages

        class Logger(module.ILogger):
            def __init__(self) -> None:
                module.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity <= module.ILogger.Severity.ERROR:
                    messages.append(message)

        return Logger()

    @cached_property
    def _builder(self) -> Any:
        return self.module.Builder(self._logger)

    def judge(
        self, model: bytes, *, build: bool = False, path: str = "", shapes: Shapes | None = None
    ) -> Verdict:
        """Return what becomes of a serialized model.

        Args:
            model: The model.
            build: Whether to make an engine of it.
            path: Where the model is from, if its external data lie there.
            shapes: Input -> the shape that an engine is for, of inputs with free dimensions.
        """
        self.messages.clear()
        flag = self.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        network = self._builder.create_network(1 << int(flag))
        parser = self.module.OnnxParser(network, self._logger)
        if not parser.parse(model, path or None):
            error = parser.get_error(0).desc() if parser.num_errors else "not said"
            return Verdict(parsed=False, error=error)
        if not build:
            return Verdict(parsed=True)
        config = self._builder.create_builder_config()
        config.add_optimization_profile(self._profile(network, shapes or {}))
        built = self._builder.build_serialized_network(network, config) is not None
        error = "" if built else next(iter(self.messages), "not said")
        return Verdict(parsed=True, built=built, error=error)

    def _profile(self, network: Any, shapes: Shapes) -> Any:
        """Return lengths for the free dimensions of inputs."""
        profile = self._builder.create_optimization_profile()
        for index in range(network.num_inputs):
            given = network.get_input(index)
            if given.is_shape_tensor:
                count = max(1, *given.shape) if len(given.shape) else 1
                profile.set_shape_input(given.name, *([n] * count for n in (1, _LENGTH, _LONGEST)))
            elif given.name in shapes:
                profile.set_shape(given.name, *[list(shapes[given.name])] * 3)
            elif -1 in given.shape:
                lengths = (_SHORTEST, _LENGTH, _LONGEST)
                fixed = ([n if d == -1 else d for d in given.shape] for n in lengths)
                profile.set_shape(given.name, *fixed)
        return profile


def main() -> None:
    """Print a line for each model of the command line."""
    parser = argparse.ArgumentParser(description="Parse models with TensorRT, and build them.")
    parser.add_argument("--build", action="store_true", help="make engines as well")
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    judge = Judge()
    for path in options.models:
        with open(path, "rb") as file:
            verdict = judge.judge(file.read(), build=options.build, path=path)
        print(json.dumps({"model": path, **asdict(verdict)}), flush=True)


if __name__ == "__main__":
    main()
