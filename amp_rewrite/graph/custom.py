"""Operators that no schema knows, as op lists describe them.

Such an operator is taken to have one type variable, T: that of all its float inputs. Its results
have the type and shape of its first input, unless the list says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.ports import Ports
from amp_rewrite.graph.schemas import Schema

VARIABLE = "T"

_FLOATS = frozenset(tensor(dtype.number) for dtype in (FLOAT32, FLOAT16, BFLOAT16))


class CustomOperator(NamedTuple):
    """A list's statements about an operator without a schema.

    Attributes:
        outputs: For each result the number of the input that it is like, or the number of an
            element type as a type string; results that are not named are like the first input.
        float32: The numbers of inputs that keep their type.
    """

    outputs: tuple[int | str, ...] = ()
    float32: tuple[int, ...] = ()

    def like(self, output: int) -> int | str:
        """Return what a result is like: the number of an input, or a type string."""
        return self.outputs[output] if output < len(self.outputs) else 0


Customs = Mapping[tuple[str, str], CustomOperator]
"""(domain, operator) -> what is said of it."""


def custom_ports(
    key: tuple[str, str], custom: CustomOperator, types: Sequence[str | None], n_outputs: int
) -> Ports:
    """Return the variables of a call whose inputs have these types."""
    inputs = tuple(
        VARIABLE if type_ in _FLOATS and index not in custom.float32 else f"in[{index}]"
        for index, type_ in enumerate(types)
    )
    outputs = list[str]()
    for index in range(n_outputs):
        like = custom.like(index)
        if isinstance(like, str):
            outputs.append(like)
        else:
            outputs.append(inputs[like] if like < len(inputs) else f"out[{index}]")
    return Ports(_schema(key), inputs, tuple(outputs))


@cache
def _schema(key: tuple[str, str]) -> Schema:
    return Schema(*key, 1, (), (), {VARIABLE: _FLOATS}, {}, deprecated=False)
