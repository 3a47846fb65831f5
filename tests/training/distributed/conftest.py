"""Programs that run on several shards, each started once."""

import json
from pathlib import Path

import pytest
from launch import start

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(scope="session")
def run_programs(tmp_path_factory):
    """Return a function that runs programs of shard_programs.py; each is started once."""
    known = {}

    def run(shards, *names):
        key = shards, names
        if key not in known:
            folder = tmp_path_factory.mktemp("shards")
            script = SUPPORT / "shard_programs.py"
            done = start(shards, script, folder, *names)
            assert done.returncode == 0, done.stderr[-4000:]
            known[key] = json.loads((folder / "results.json").read_text())
        return known[key]

    return run
