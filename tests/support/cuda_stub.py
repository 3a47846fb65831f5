"""The CUDA provider on libraries that compute nothing: tools/cuda_stub."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GIVEN = os.environ.get("AMP_CUDA_STUB")
STUB = Path(GIVEN or ROOT / "build" / "cuda_stub")
PYTHON = STUB / "venv" / "bin" / "python"

needs_stub = [
    pytest.mark.cuda_stub,
    pytest.mark.skipif(
        GIVEN is None and not PYTHON.exists(),
        reason=f"there is no CUDA stub in {STUB}; tools/cuda_stub/make_stub.py makes one",
    ),
]


@dataclass(frozen=True)
class Placement:
    """What the CUDA provider made of a model.

    Attributes:
        operators: Those of the optimised graph, fused ones among them, without Casts.
        cpu: Those that were left to the CPU, without Casts.
        error: Why the model does not load, or None.
    """

    operators: Counter[str]
    cpu: Counter[str]
    error: str | None


def placements(models: Iterable[Path], *options: str) -> dict[Path, Placement]:
    """Return what the CUDA provider makes of models; `options` are those of place.py."""
    paths = list(models)
    command = [PYTHON, ROOT / "tools" / "cuda_stub" / "place.py", *options, *paths]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB / "lib")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = map(json.loads, done.stdout.splitlines())
    return {path: _placement(said) for path, said in zip(paths, lines, strict=True)}


def _placement(said: dict[str, Any]) -> Placement:
    operators, cpu = (Counter(said.get(key, {})) for key in ("operators", "cpu"))
    del operators["Cast"], cpu["Cast"]
    return Placement(operators, cpu, said.get("error"))


def placed(models: Iterable[Path]) -> dict[Path, Counter[str]]:
    """Return the operators of each model's optimised graph on the CUDA provider, without Casts.

    A model that does not load fails the test.
    """
    found = placements(models)
    for path, placement in found.items():
        assert placement.error is None, f"{path.name}: {placement.error}"
    return {path: placement.operators for path, placement in found.items()}
