"""The last question to a file that was made here: does ONNX Runtime load it?"""

from __future__ import annotations

from typing import Any

from amp_rewrite import targets
from amp_rewrite.errors import UnloadableError
from amp_rewrite.runtimes.ort.isolated_load import LoadResult, isolated_load


class LoadJudge:
    """Refuses a file that ONNX Runtime does not load (`judged_by`).

    Attributes:
        result: What ONNX Runtime made of the file.
    """

    def __init__(self, result: Any, target: str, *, insists: bool) -> None:
        """Judge what was made for a target; it is written anyway if somebody `insists`."""
        self._made, self._target, self._insists = result, targets.find(target), insists
        self.result = LoadResult("unknown", "the file was not loaded")

    def __call__(self, path: str) -> None:
        """Load a file in a process of its own.

        Raises:
            UnloadableError: It does not load.
        """
        self.result = isolated_load(path)
        if self.result.fails(self._target) and not self._insists:
            raise UnloadableError(self.result.said, self._made)
