#!/usr/bin/env python3
"""Write the table of costs of OpenVINO by measuring: lists/costs/openvino_<version>.json.

Usage: measure_costs.py [--output DIR] [--threads N] [--sessions N] [--only FAMILY|pairs ...]

It is what `amp-rewrite measure-costs --provider openvino` does, written where the package has its
tables. Takes five minutes on two quiet cores; --only measures some families, or the pairs, and
takes the rest from the table that is there. Needs the extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from amp_rewrite.errors import AmpError
from amp_rewrite.kernels.cost_files import to_text
from amp_rewrite.numerics.measure.cost_probe import PARTS, measure_costs
from amp_rewrite.runtimes.openvino.package import import_runtime, runtime_version
from amp_rewrite.targets import OPENVINO

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "lists" / "costs"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the table of costs of OpenVINO.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=4, help="how often each model is loaded")
    parser.add_argument("--only", nargs="+", default=[], choices=PARTS)
    options = parser.parse_args()
    version = runtime_version(import_runtime())
    path = options.output / f"openvino_{version.rpartition('.')[0]}.json"
    before = json.loads(path.read_text("utf-8")) if options.only else None
    try:
        table = measure_costs(
            OPENVINO,
            threads=options.threads,
            sessions=options.sessions,
            only=options.only,
            before=before,
            progress=lambda *at: print(*at),
        )
    except AmpError as error:
        sys.exit(str(error))
    options.output.mkdir(exist_ok=True)
    path.write_text(to_text(table), "utf-8")
    print(path)


if __name__ == "__main__":
    main()
