"""Measure time, memory and validity of conversions, side by side with other converters.

    python benchmarks/bench.py rewrite                   large models and some of the corpus
    python benchmarks/bench.py rewrite a.onnx b.onnx     these models
    python benchmarks/bench.py rewrite --no-big3g        without the 3 GiB model

Every conversion is a process of its own, and its imports count. "floor" copies the external data
of a model and converts them with numpy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conversions import add_options, compare, corpus_models, made_models
from tables import report

MADE = ("bert_base", "llama80", "big3g")
CORPUS = ("minilm_l3", "resnet50_rand", "ppocrv4_rec", "silero_v6")


def models(options: argparse.Namespace) -> list[Path]:
    """Return the models to measure."""
    if options.models:
        return [Path(name).resolve() for name in options.models]
    made = [name for name in MADE if options.big3g or name != "big3g"]
    return [*corpus_models(CORPUS), *made_models(made)]


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--no-big3g", dest="big3g", action="store_false")
    options = parser.parse_args(arguments)
    report("rewrite", ["rewrite", *arguments], compare(models(options), options), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
