"""Policies: the types of computation and of variables."""

from __future__ import annotations

from dataclasses import dataclass

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32, LOW

_MIXED = "mixed_"
_TYPES = (*LOW, FLOAT32.name, "float64")


@dataclass(frozen=True)
class Policy:
    """The types of a model.

    Attributes:
        name: A type, for both; or "mixed_float16" or "mixed_bfloat16", with float32 variables.

    Raises:
        OptionError: There is no such policy.
    """

    name: str

    def __post_init__(self) -> None:
        """Check the name."""
        arguments.one_of("policy", self.name, _NAMES)

    @property
    def compute_dtype(self) -> str:
        """The type of computation."""
        return self.name.removeprefix(_MIXED)

    @property
    def variable_dtype(self) -> str:
        """The type of variables."""
        return FLOAT32.name if self.name.startswith(_MIXED) else self.name

    @property
    def is_mixed(self) -> bool:
        """Whether the two differ."""
        return self.compute_dtype != self.variable_dtype


_NAMES = (*_TYPES, *(f"{_MIXED}{name}" for name in LOW))


def policy_of(policy: str | Policy) -> Policy:
    """Return a policy, given itself or its name."""
    return policy if isinstance(policy, Policy) else Policy(policy)
