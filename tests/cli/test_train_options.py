"""Options of `amp-rewrite train` that would do nothing."""

from __future__ import annotations

import pytest

from amp_rewrite.cli.train_options import check_options
from amp_rewrite.errors import OptionError

USELESS = {
    "metric": "--metric does nothing without --eval; add --eval, or omit --metric",
    "eval-every": "--eval-every does nothing without --eval",
    "best": "--best does nothing without --eval",
    "patience": "--patience does nothing without --eval",
    "restore-best": "--restore-best does nothing without --best",
    "monitor": "--monitor does nothing without --best or --patience",
    "mode": "--mode does nothing without --best or --patience",
    "min-delta": "--min-delta does nothing without --patience",
    "checkpoint-every": "--checkpoint-every does nothing without --checkpoint",
    "averaged": "--averaged does nothing without --eval or --output",
    "no-strict": "--no-strict does nothing without --restore",
}


@pytest.mark.parametrize("option", USELESS)
def test_an_option_without_the_one_that_it_is_for_is_refused(option: str) -> None:
    with pytest.raises(OptionError, match=USELESS[option]):
        check_options({option, "epochs"})


def test_options_that_belong_together_are_taken() -> None:
    check_options({"eval", "metric", "best", "restore-best", "monitor", "averaged"})
    check_options({"eval", "patience", "min-delta", "mode", "checkpoint", "resume"})
    check_options({"find-learning-rate", "checkpoint", "resume", "batch", "seed"})


@pytest.mark.parametrize("option", ["output", "best", "eval", "epochs", "learning-rate", "shuffle"])
def test_a_search_for_a_rate_refuses_options_of_a_run(option: str) -> None:
    message = f"--find-learning-rate trains nothing and writes nothing; found --{option}"
    with pytest.raises(OptionError, match=message):
        check_options({"find-learning-rate", option})


def test_a_search_for_a_rate_writes_no_checkpoint() -> None:
    with pytest.raises(OptionError, match="found --output, --checkpoint; omit them"):
        check_options({"find-learning-rate", "output", "checkpoint"})
