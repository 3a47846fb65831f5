"""The CUDA provider on libraries that compute nothing: tools/cuda_stub."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = Path(os.environ.get("AMP_CUDA_STUB", ROOT / "build" / "cuda_stub"))
PYTHON = STUB / "venv" / "bin" / "python"

needs_stub = pytest.mark.skipif(
    not PYTHON.exists(),
    reason=f"there is no CUDA stub in {STUB}; tools/cuda_stub/make_stub.py makes one",
)


def placed(models: Iterable[Path]) -> dict[Path, Counter[str]]:
    """Return the operators of each model's optimised graph on the CUDA provider, without Casts.

    A model that does not load fails the test.
    """
    paths = list(models)
    command = [PYTHON, ROOT / "tools" / "cuda_stub" / "place.py", *paths]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB / "lib")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[Path, Counter[str]] = {}
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        said = json.loads(line)
        assert "error" not in said, f"{path.name}: {said['error']}"
        found[path] = Counter(said["operators"])
        del found[path]["Cast"]
    return found
