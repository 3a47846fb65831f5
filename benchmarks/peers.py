"""Converters that are installed apart, each in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conversions import CACHE
from results import version_in


@dataclass(frozen=True)
class Peer:
    """What pip installs for a converter.

    Attributes:
        package: The distribution whose version counts.
        requirement: What is asked of pip.
    """

    package: str
    requirement: str


PEERS = {
    "autocast": Peer("nvidia-modelopt", "nvidia-modelopt[onnx]"),
    "onnxsim": Peer("onnxsim", "onnxsim>=0.8"),
}
"""Converter -> what it needs; those that are not here are in the benchmark's own environment."""

Pythons = Mapping[str, str]
"""Converter -> an interpreter that has it."""


def given_pythons(words: Iterable[str]) -> dict[str, str]:
    """Read TOOL=PYTHON words.

    Raises:
        SystemExit: A word is none.
    """
    pairs = [word.partition("=") for word in words]
    for tool, _, python in pairs:
        if tool not in PEERS or not python:
            raise SystemExit(f"--peer-python takes {' or '.join(PEERS)}=PYTHON, not {tool!r}")
    return {tool: python for tool, _, python in pairs}


def python_of(tool: str, given: Pythons) -> str:
    """Return the interpreter that has a converter, in an environment that is made once.

    Raises:
        SystemExit: pip cannot install it.
    """
    if tool not in PEERS:
        return sys.executable
    return given[tool] if tool in given else _made(tool)


def peer_versions(tools: Iterable[str], given: Pythons) -> dict[str, str]:
    """Return the versions of the converters that are installed apart."""
    return {
        PEERS[tool].package: version_in(python_of(tool, given), PEERS[tool].package)
        for tool in tools
        if tool in PEERS
    }


def _made(tool: str) -> str:
    folder = CACHE / f"peer-{tool}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {PEERS[tool].requirement} in {folder} ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-q", PEERS[tool].requirement]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise SystemExit(f"{tool} cannot be installed: {said[-1] if said else 'pip failed'}")
        (folder / "ready").touch()
    return str(python)
