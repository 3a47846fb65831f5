"""`convert --precision float32`: the float32 form of a model file in other types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.streams import shown
from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.plan.option_words import option_words
from amp_rewrite.rewriting.plan.options import RewriteOptions

_TAKEN = ("--precision", "--keep-io", "--no-keep-io-types")


def widen_file(
    model: Path,
    options: RewriteOptions,
    output: Path,
    beside: Mapping[str, object],
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Write the float32 form of a model.

    Args:
        model: The file.
        options: What keeps its type at the ends; nothing else of it may be given.
        output: Where to write.
        beside: What else the command line gave, by its flag.
        dry_run: Write nothing.
        quiet: Print nothing.

    Raises:
        OptionError: Something was given that says how to make a model low, or how to judge one.
        AmpError: The model is wrong, or cannot be written.
    """
    words = [words[0] for words in option_words(options)]
    extra = [word for word in words if word not in _TAKEN]
    extra += [flag for flag, value in beside.items() if value]
    if extra:
        raise OptionError(
            f"{extra[0]} says nothing of a float32 form, in which nothing is low",
            remedy="leave it away, or ask for --precision float16 or bfloat16",
        )
    from amp_rewrite.rewriting.widen import widen  # most conversions need nothing of it

    with progress_bar("widening", quiet=quiet) as progress:
        made = widen(model, keep_io_types=options.keep_io_types)
        if not dry_run:
            made.save(output, progress=progress)
    out = common.console(quiet=quiet)
    out.print(made.in_short())
    out.print("nothing was written" if dry_run else f"wrote {shown(output)}")
