"""Measure whether time is linear in nodes, and what else a graph may have many of.

    python benchmarks/bench.py scaling                          every model
    python benchmarks/bench.py scaling --tools amp_rewrite      without the others

chain100k and chain10k are chains of small operators; fanout50k has a value with 50,000 consumers,
init10k 10,000 initializers, nested30 towers of 30 nested subgraphs, names10k names of 10 KB each.
What chain8 costs, the start of the process among it, is taken off before a time is divided by the
number of nodes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conversions import add_options, compare, made_models
from tables import report

MODELS = ("chain8", "chain100k", "chain10k", "fanout50k", "init10k", "nested30", "names10k")


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    options = parser.parse_args(arguments)
    chosen = [Path(name).resolve() for name in options.models] or made_models(MODELS)
    report("scaling", ["scaling", *arguments], compare(chosen, options), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
