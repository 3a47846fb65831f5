"""The inputs of a model that are states: what an output was one call earlier.

Names say which output that is: they are the same but for words of time (`h_in`, `h_out`). That it
is a state say words for such (`past` and `present`, `state`, `cache`, `h` and `hn`), or the nodes
between the two: arithmetic, products with constants, or a recurrent layer that begins with it.

Evidence: tests/numerics/inputs/test_fed_states.py. Five of 12 recurrent networks whose states drift
in float16 passed, since no word told of a state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.consumers import Consumers, Passes, moves
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

_STATES = frozenset(
    {
        *("past", "present", "prev", "previous", "next", "state", "states", "cache", "memory"),
        *("mem", "carry", "h", "c", "hn", "cn", "h0", "c0", "hidden", "cell"),
    }
)
_OF_LAYERS = frozenset({"hidden", "states"})
"""The words that one layer of a network has for what it reads and makes, too."""

_BEFORE = frozenset({"in", "input", "past", "prev", "previous", "old", "init", "initial"})
_AFTER = frozenset({"out", "output", "present", "next", "new", "updated", "n", "final"})
_FIRST, _LAST = frozenset({"0"}), frozenset({"1"})
_SHORT = {"hn": "h", "cn": "c", "h0": "h", "c0": "c"}

# operators: arithmetic by which a state becomes the next one
_ARITHMETIC = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Max", "Min", "Clip", "Mod", "Where", "Sum", "Mean"),
        *("Round", "Floor", "Abs"),
    }
)
# operators: products, which a state passes where the other factor is a constant
_PRODUCTS = frozenset({"MatMul", "Gemm"})
# operators: recurrent layers
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_INITIAL = (5, 6)
"""The inputs of a recurrent layer that are its first states."""


def states_of(model: ir.Model, plausible: PlausibleInputs) -> dict[str, str]:
    """Return input -> the output that it is one call later; shapes are compared when they run.

    There has to be an input besides that is none, and an output unless a word or a layer tells.
    """
    inputs = {v.name or "": v for v in model.graph.inputs if v.name in plausible.specs}
    after = {base: v for v in model.graph.outputs for base in _bases(v.name or "", _AFTER, _LAST)}
    consumers, pairs, told = Consumers(model), dict[str, str](), False
    for name, value in inputs.items():
        found = (after[b] for b in _bases(name, _BEFORE, _FIRST) if b in after)
        output = next((v for v in found if v is not value), None)
        if output is None:
            continue
        made = output.name or ""
        words = _STATES & {*_words(name), *_words(made)}
        begins = _leads(consumers, value, output, _begins)
        if words or begins or _leads(consumers, value, output, _computes):
            pairs[name] = made
        told = told or begins or bool(words - _OF_LAYERS)
    has_others = told or len(set(pairs.values())) < len(model.graph.outputs)
    return pairs if len(pairs) < len(inputs) and has_others else {}


def _bases(
    name: str, time_words: frozenset[str], number: frozenset[str]
) -> Iterator[tuple[str, ...]]:
    """Yield what a name is without words of time, and without a number that may be one."""
    words = [_SHORT.get(word, word) for word in _words(name) if word not in time_words]
    yield tuple(words)
    yield tuple(word for word in words if word not in number)


def _words(name: str) -> list[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).split()


def _leads(consumers: Consumers, value: ir.Value, output: ir.Value, by: Passes) -> bool:
    """Tell whether an output is made of an input by moves and by the nodes that `by` passes."""

    def passes(node: ir.Node, index: int) -> bool:
        return moves(node, index) or by(node, index)

    uses = consumers.uses(value, passes)
    return any(passes(node, index) and output in node.outputs for node, index in uses)


def _begins(node: ir.Node, index: int) -> bool:
    """Tell whether a recurrent layer begins with an input."""
    return operator(node) in _RECURRENT and index in _INITIAL


def _computes(node: ir.Node, index: int) -> bool:
    """Tell whether a node is arithmetic, or a product of an input and a constant."""
    if operator(node) not in _PRODUCTS:
        return operator(node) in _ARITHMETIC
    return index < 2 and _is_constant(node.inputs[1 - index])


def _is_constant(value: ir.Value | None) -> bool:
    """Tell whether a value is a constant, or one that was moved."""
    while value is not None and value.const_value is None:
        node = value.producer()
        if node is None or not moves(node, 0):
            return node is not None and operator(node) == "Constant"
        value = node.inputs[0]
    return value is not None
