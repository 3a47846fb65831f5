"""Add the folders of shared code: importmode importlib does not."""

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / "tools"
for folder in map(str, (TOOLS, HERE)):
    if folder not in sys.path:
        sys.path.append(folder)


@pytest.fixture(scope="session")
def run_programs(tmp_path_factory):
    """Return a function that runs programs of shard_programs.py; each is started once."""
    from launch import start  # its folder is known now

    known = {}

    def run(engine, shards, *names):
        key = engine, shards, names
        if key not in known:
            folder = tmp_path_factory.mktemp("shards")
            script = HERE / "shard_programs.py"
            done = start(engine, shards, script, engine, folder, *names)
            assert done.returncode == 0, done.stderr[-4000:]
            known[key] = json.loads((folder / "results.json").read_text())
        return known[key]

    return run
