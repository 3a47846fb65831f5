"""The results of a benchmark as JSON, with what they were measured on and with which command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from processor import onednn_instructions, processor_name

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = (
    *("amp-rewrite", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxconverter-common", "openvino"),
)
_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"

Row = dict[str, Any]
"""One line of a table: what was measured, and for each figure a list with a number a round."""


@dataclass(frozen=True)
class Results:
    """What one benchmark found.

    Attributes:
        command: What measures it again, behind `python benchmarks/bench.py`.
        date: When it was measured, in UTC.
        machine: What it was measured on.
        versions: Package -> its version.
        rows: The figures.
    """

    command: str
    date: str
    machine: dict[str, Any]
    versions: dict[str, str]
    rows: list[Row]

    @classmethod
    def of(cls, command: str, rows: list[Row], others: Mapping[str, str]) -> Results:
        """Return what was found here and now; `others` are versions in another interpreter."""
        today = datetime.now(UTC).date().isoformat()
        return cls(command, today, machine(), {**versions(), **others}, rows)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a file that `write` wrote."""
        return cls(**json.loads(path.read_text("utf-8")))

    def write(self, path: Path) -> None:
        """Write a JSON file, a row a line."""
        facts = asdict(self)
        rows = ",\n  ".join(json.dumps(row) for row in facts.pop("rows"))
        head = json.dumps(facts, indent=1).removesuffix("\n}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head},\n "rows": [\n  {rows}\n ]\n}}\n', "utf-8")


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    return {
        "cpu": processor_name(),
        "instructions": list(onednn_instructions()),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that take part."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def version_in(python: str, package: str) -> str:
    """Return the version of a package in another interpreter."""
    done = subprocess.run(
        [python, "-P", "-c", _VERSION, package], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "not installed"


def torch_versions(python: str) -> dict[str, str]:
    """Return the version of torch in an interpreter."""
    return {"torch": version_in(python, "torch")}
