"""What pages and Node run models with: packages of npm.

AMP_NPM names a folder in which `npm ci` has put what tests/web/package.json names. Without it, or
without node or Chromium, these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from chromium import find_chromium, missing

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # importmode importlib does not add it
    sys.path.append(str(HERE))


@pytest.fixture(scope="session")
def modules() -> Path:
    """Return the folder of npm's packages."""
    given = os.environ.get("AMP_NPM")
    if given is None:
        pytest.skip("AMP_NPM names no folder where npm has put tests/web/package.json")
    folder = Path(given).resolve() / "node_modules"
    if not (folder / "onnxruntime-web").is_dir():
        pytest.fail(f"AMP_NPM: {folder} has no onnxruntime-web")
    return folder


@pytest.fixture(scope="session")
def node() -> str:
    """Return the path of Node.js."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node here")
    return found


@pytest.fixture(scope="session")
def program() -> str:
    """Return the path of a Chromium."""
    found = find_chromium()
    if found is None:
        missing("Chromium")
    assert found is not None, "missing never returns"
    return found
