"""Start scripts on several shards."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def launcher(shards):
    """Return the words in front of a script that start it on several shards."""
    folder = Path(sys.executable).parent
    command = shutil.which("mpiexec", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    if command is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py or MPI is not installed: pip install '.[mpi]'")
    return [command, "-n", str(shards), sys.executable, "-P"]


def start(shards, *words, timeout=240, env=None):
    """Run a script on shards; return the finished process, with its output as text."""
    with subprocess.Popen(
        [*launcher(shards), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
