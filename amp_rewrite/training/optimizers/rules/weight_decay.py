"""What AdamW and LAMB have in common: Adam's moments, and a decay of some variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.hyperparameter import Hyperparameter
from amp_rewrite.training.optimizers.rules.adam import Adam, AdamRule
from amp_rewrite.training.optimizers.update_rule import checked


def patterns(name: str, expressions: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions for variable names, checked.

    Args:
        name: What they are called.
        expressions: What was given.

    Raises:
        OptimizerTypeError: They are not a list of texts; a single text is none.
        OptimizerValueError: One is not a regular expression.
    """
    listed = isinstance(expressions, Iterable) and not isinstance(expressions, str)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    given = tuple(expressions) if listed else ()
    if not listed or not all(isinstance(entry, str) for entry in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptimizerTypeError(
            f"{name} must be a list of regular expressions",
            found=repr(expressions),
        )
    for expression in given:
        try:
            re.compile(expression)
        except re.error as error:
            raise OptimizerValueError(
                "not a regular expression", where=repr(expression), found=error
            ) from error
    return given


@dataclass(frozen=True, kw_only=True)
class DecayingAdamRule(AdamRule):
    """A rule with Adam's moments and a weight decay that is not a part of the gradient."""

    weight_decay: float = checked(check.number)
    exclude_from_weight_decay: Iterable[str] = checked(patterns)

    def variant(self, variable: State) -> bool:
        """Return whether a variable decays."""
        excluded = (re.search(e, variable.name) for e in self.exclude_from_weight_decay)
        return bool(self.weight_decay) and not any(excluded)


class DecayingAdam(Adam):
    """An optimizer with such a rule."""

    weight_decay = Hyperparameter[float]()
    exclude_from_weight_decay = Hyperparameter[tuple[str, ...]]()
