"""Gradients behind a guard that is small stay float32, with the products that read them.

x / max(|x|, 1e-12) of a row of zeros has the gradient g / 1e-12: finite in float32, infinite in
float16, and NaN once it is multiplied by zero, at any loss scale. So has a reciprocal, a logarithm,
a root or a power below 1. The backward pass is float32 from there to where an activation masks the
gradient, and to a layer with a bias, whose result is not zero for a row of zeros. x - mean(x) is
left alone: a bias in front of a normalization over features is cancelled by no padding.

Evidence: a row of zeros that is normalized: 0 of 30 steps are applied in float16 without the pass,
30 with it (tests/training/test_steep_gradients.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.step_part import Part, part_in, source_in
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import MOVED, PRODUCTS, SIGNED, Worklist

# operators: activations whose gradient is zero where their result is, and what gives no zeros.
_MASKING = having(Trait.ORDERS) | {
    *("BatchNormalization", "Clip", "Dropout", "Elu", "Exp", "GroupNormalization", "HardSigmoid"),
    *("InstanceNormalization", "LayerNormalization", "Relu", "Sigmoid", "Softmax", "Softplus"),
    *("ThresholdedRelu", "Where"),
}
# operators: those that a zero, or nearly zero, operand makes steep.
_STEEP = ("Div", "Reciprocal", "Log", "Sqrt", "Pow")
_ONE = np.ones(1)


@keep(
    "keep-steep-gradients",
    Reason.LIKELY_OVERFLOW,
    Stage.GIVEN,
    55,
    needs=Need.SAFETY | Need.RANGE,
    danger=False,
)
def keep_steep_gradients(m: Match, _: Ask) -> Kept:
    """Unpaint gradients that leave the range of the low type though the forward pass does not."""
    backward = {n: source for n, data in m.flat.metadata.items() if (source := source_in(data))}
    if not backward:
        return
    forward = {m.flat.source_key(n): n for n in range(len(m.flat.operator)) if n not in backward}
    nodes_of: dict[int, list[int]] = {}
    for node, source in backward.items():
        nodes_of.setdefault(forward.get(source, ABSENT), []).append(node)
    source_of = {n: source for source, nodes in nodes_of.items() for n in nodes}
    for source in sorted(nodes_of):
        slope = max(_slopes(m, source), default=0.0)
        if slope < m.low.overflow:
            continue
        kept = _reached(m, nodes_of[source], source_of)
        yield Keep(
            f"the gradient of {m.name(source)} is up to {slope:.3g} times what it receives, "
            f"{m.low.name} ends at {m.low.max:.6g}",
            (),
            kept,
            kept[0] if kept else None,
        )


def _slopes(m: Match, node: int) -> Iterator[float]:
    """Yield how steep a node is where a guard alone keeps its operand away from zero."""
    if m.is_a(node, "Mul"):  # by the reciprocal of what is guarded
        for other, value in (m.read(node), m.read(node)[::-1]):
            if not _is_centred(m, other):
                yield _reciprocal(m, m.source(value, MOVED))
    if not m.is_a(node, *_STEEP):
        return
    read = m.read(node)
    value = read[-1] if m.is_a(node, "Div") else read[0]
    guard = 0.0 if m.is_constant(value) else m.facts.guards.of(value)
    if not guard or _divides_centred(m, node):
        return
    if m.is_a(node, "Div"):
        yield 0.0 if _is_centred(m, read[0]) else 1 / guard
    elif m.is_a(node, "Log"):
        yield 1 / guard
    elif m.is_a(node, "Reciprocal") and not m.is_a(m.maker(m.source(value, MOVED)), "Sqrt"):
        yield guard**-2
    else:
        power = m.exponent(node)
        yield abs(power) * guard ** (power - 1) if 0 < power < 1 else 0.0


def _reciprocal(m: Match, value: int) -> float:
    """Return how large the reciprocal of a guarded value, or of its root, may be; 0 for others."""
    node = m.maker(value)
    base, power = m.power(node)[0], m.exponent(node)
    guard = m.facts.guards.of(base) if power < 0 else 0.0
    above = m.numbers(m.read(node)[0]) if m.is_a(node, "Div") else _ONE
    return abs(float(above.flat[0])) * guard**power if guard and above is not None else 0.0


def _is_centred(m: Match, value: int) -> bool:
    """Tell whether a value is a difference from a mean."""
    node = m.maker(m.source(value, SIGNED))
    read = m.read(node) if m.is_a(node, "Sub") else []
    return any(m.is_a(m.maker(m.source(v, SIGNED)), "ReduceMean") for v in read)


def _divides_centred(m: Match, node: int) -> bool:
    """Tell whether a node makes nothing but a divisor of differences from a mean, or its factor."""
    made = m.made(node)
    readers = m.readers(made)
    return bool(readers) and all(
        _divides_centred(m, n)
        if m.is_a(n, "Reciprocal") or m.op(n) in MOVED
        else m.is_a(n, "Div", "Mul") and any(_is_centred(m, v) for v in m.read(n) if v != made)
        for n in readers
        if not _is_gradient(m, n)
    )


def _reached(m: Match, begin: list[int], source_of: Mapping[int, int]) -> list[int]:
    """Return the vertices of the backward pass that gradients reach, the nearest ones first."""
    kept = [v for node in begin for v in m.graph.vertices_of(node)]
    todo = Worklist(*kept)
    for vertex in todo:
        node = m.graph.nodes[vertex]
        source = source_of.get(node, ABSENT)
        masked = m.op(source) in _MASKING or _is_biased(m, source)
        # What adds gradients up stands in front of the source's own.
        if node in begin or not masked or m.is_a(node, "Add", "Sum"):
            following = m.graph.successors(vertex)
            kept += todo.add(v for v in following if _is_gradient(m, m.graph.nodes[v]))
    return kept


def _is_gradient(m: Match, node: int) -> bool:
    return part_in(m.flat.metadata_of(node)) is Part.GRADIENT


def _is_biased(m: Match, layer: int) -> bool:
    """Tell whether a product of matrices or a convolution has a bias, its own or added to it."""
    if m.op(layer) not in PRODUCTS:
        return False
    if len([v for v in m.read(layer) if v != ABSENT]) > 2:
        return True
    readers = m.readers(m.made(layer))
    return any(m.is_a(n, "Add") and _adds_vector(m, n, m.made(layer)) for n in readers)


def _adds_vector(m: Match, node: int, value: int) -> bool:
    """Tell whether a node adds to a value what nothing computes."""
    others = [v for v in m.read(node) if v != value]
    return len(others) == 1 and m.maker(m.source(others[0], MOVED)) == ABSENT
