"""A loader of Polygraphy, https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

import onnx
from polygraphy.backend.base import BaseLoader  # pyright: ignore[reportMissingImports] no extra
from polygraphy.util import invoke_if_callable  # pyright: ignore[reportMissingImports]

from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.rewriting.api import rewrite

Model = onnx.ModelProto | str | PathLike[str]


class ToMixedPrecision(BaseLoader):  # pyright: ignore[reportUntypedBaseClass] not installed
    """Rewrites the model of another loader, where `ConvertToFp16` would stand."""

    def __init__(self, model: Model | Callable[[], Model], **changes: Any) -> None:
        """Take what loads the model; nothing is loaded yet.

        Args:
            model: A model, its file, or a loader of one.
            **changes: Options of `rewrite` by name, such as `target="tensorrt"`.
        """
        self._model = model
        self._changes = changes

    def call_impl(self) -> onnx.ModelProto:
        """Return the model in mixed precision.

        Raises:
            AmpError: The model or an option is wrong.
        """
        model, _ = invoke_if_callable(self._model)
        return to_proto(rewrite(model, **self._changes).model)
