"""How exponents follow each other through operators: one rule an operator, or its traits.

Of an operator that is homogeneous of degree 1 (a trait) all data and results have one exponent; one
that is invariant leaves its inputs free. What has neither trait nor rule does not scale.

Evidence: a Llama of 8 layers whose stream leaves float16: 31 nodes stay float32 without scaling,
none with it (docs/measured.md).
"""

from __future__ import annotations

from fractions import Fraction

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Called, Trait, operator, row_of
from amp_rewrite.values.scales.call import Call, Rule
from amp_rewrite.values.sum_lengths import PRODUCTS
from amp_rewrite.values.sweep import table_of

_EPSILON, _SKIP_EPSILON = 1e-5, 1e-12
_HIGHEST_POWER = 64
_RELU = ("", "Relu")


def homogeneous(call: Call) -> None:
    """Scale all data and results by one factor; settings and coordinates are not scaled."""
    data = row_of(call.system.flat.called(call.node)).data
    if data is None:
        call.same(*call.inputs, *call.outputs)
        return
    scaled = [call.input(index) for index in data]
    call.same(*scaled, *call.outputs)
    call.pin(*(element for element in call.inputs if element not in scaled))


def invariant(call: Call) -> None:
    """Leave what is read free; what is made has no scale."""
    call.pin(*call.outputs)


def nothing(call: Call) -> None:
    """Scale nothing."""
    call.pin_all()


def _fill(call: Call) -> None:
    """Leave a repeated number free: it is an attribute."""
    if call.output(0) != ABSENT:
        call.system.constants.add(call.output(0))
        call.scale_attribute("value", 0.0, call.output(0))


def _cast(call: Call) -> None:
    if ABSENT in (call.input(0), call.output(0)):
        call.pin(call.input(0), call.output(0))
    else:
        call.same(call.input(0), call.output(0))


def _product(powers: tuple[int, ...] = ()) -> Rule:
    return lambda call: call.product(call.output(0), call.input(0), call.input(1), powers=powers)


def _contract(call: Call) -> None:
    """Scale a result by both factors, and its bias with it; of activations behind it a Relu."""
    if call.attribute("activation", "") not in ("", *_RELU):
        call.pin_all()
        return
    call.product(call.output(0), call.input(0), call.input(1))
    call.same(call.output(0), *call.inputs[2:])


def _matmul_n_bits(call: Call) -> None:
    call.product(call.output(0), call.input(0), call.input(2))
    call.same(call.output(0), call.input(5))
    call.pin(call.input(3))


def _dequantized(scale: int) -> Rule:
    """Make the rule of what multiplies integers, which have no exponent, by a scale."""
    return lambda call: call.same(call.output(0), call.input(scale))


def _by_first(call: Call) -> None:
    """Scale the result with the first input; no other one is scaled."""
    call.same(call.input(0), call.output(0))
    call.pin(*call.inputs[1:], *call.outputs[1:])


def _scatter(call: Call) -> None:
    if call.attribute("reduction", "none") == "mul":
        call.pin_all()
    else:
        call.same(call.input(0), call.input(2), call.output(0))


def _resize(call: Call) -> None:
    mode = call.attribute("coordinate_transformation_mode", "")
    call.pin_all() if mode == "tf_crop_and_resize" else _by_first(call)


def _of_degree(degree: int | Fraction) -> Rule:
    def rule(call: Call) -> None:
        call.ratio(call.output(0), call.input(0), degree)
        call.pin(*call.inputs[1:])

    return rule


def _pow(call: Call) -> None:
    power = call.number(1)
    call.pin(call.input(1))
    if power is None or not 0 < abs(power) <= _HIGHEST_POWER or 2 * power != int(2 * power):
        call.pin_all()
    else:
        call.ratio(call.output(0), call.input(0), Fraction(int(2 * power), 2))


def _clip(call: Call) -> None:
    """Move the bounds with what they bound, as inputs or, up to opset 10, as attributes."""
    call.same(*call.inputs, *call.outputs)
    for name in ("min", "max"):
        if name in call.attributes:
            call.scale_attribute(name, 0.0, call.input(0))


def _pad(call: Call) -> None:
    """Move what is put around with what it surrounds: an input or, up to opset 10, an attribute."""
    homogeneous(call)
    if "value" in call.attributes:
        call.scale_attribute("value", 0.0, call.input(0))


def _threshold(*names: tuple[str, float]) -> Rule:
    def rule(call: Call) -> None:
        call.same(*call.inputs, *call.outputs)
        for name, default in names:
            call.scale_attribute(name, default, call.input(0))

    return rule


def _norm(*statistics: int) -> Rule:
    """Make the rule of a norm: what it reads is free, its result has the exponent of its scale."""

    def rule(call: Call) -> None:
        call.same(call.output(0), call.input(1), call.input(2))
        if call.input(1) == ABSENT:
            call.pin(call.output(0))
        call.scale_attribute("epsilon", _EPSILON, call.input(0), 2)
        _statistics(call, *statistics)

    return rule


def _statistics(call: Call, *indices: int) -> None:
    """Scale nothing where somebody reads the mean or the deviation that a norm gives."""
    flat = call.system.flat
    for output in map(call.output, indices):
        if output != ABSENT and (flat.uses(output) or flat.is_output(output)):
            call.pin(call.input(0), output)


def _skip_norm(gamma: int, beta: int | None, bias: int) -> Rule:
    """Make the rule of a norm of a sum, which is its fourth result."""

    def rule(call: Call) -> None:
        call.same(call.input(0), call.input(1), call.input(bias), call.output(3))
        call.same(call.output(0), call.input(gamma), *(() if beta is None else (call.input(beta),)))
        call.scale_attribute("epsilon", _SKIP_EPSILON, call.input(0), 2)
        _statistics(call, 1, 2)

    return rule


def _group_norm(call: Call) -> None:
    if call.attribute("activation", 0):
        call.pin_all()
    else:
        _norm(1)(call)


def _batch_norm(call: Call) -> None:
    """Scale the statistics with what is read: y = (x - mean) / sqrt(var + epsilon) s + b."""
    if len(call.outputs) > 1:
        call.pin_all()
        return
    call.same(call.input(0), call.input(3))
    call.ratio(call.input(4), call.input(0), 2)
    call.same(call.output(0), call.input(1), call.input(2))
    call.scale_attribute("epsilon", _EPSILON, call.input(0), 2)


# operators: those that neither are homogeneous of degree 1 nor scale nothing.
_RULES: tuple[tuple[str, Rule], ...] = (
    ("Constant", lambda call: None),  # free: each of its readers says what it needs
    ("ConstantOfShape", _fill),
    ("Cast CastLike", _cast),
    ("Equal Greater GreaterOrEqual Less LessOrEqual", lambda call: call.same(*call.inputs)),
    ("IsInf IsNaN", invariant),
    ("Mul", _product()),
    ("Div", _product(powers=(1, -1))),
    ("Einsum", lambda call: call.product(call.output(0), *call.inputs)),
    ("DequantizeLinear", _dequantized(1)),
    ("QuantizeLinear", lambda call: call.same(call.input(0), call.input(1))),
    ("DynamicQuantizeLinear", lambda call: call.same(call.input(0), call.output(1))),
    ("PRelu RotaryEmbedding", _by_first),
    ("ScatterElements ScatterND", _scatter),
    ("Resize", _resize),
    ("Reciprocal", _of_degree(-1)),
    ("Sqrt", _of_degree(Fraction(1, 2))),
    ("ReduceSumSquare", _of_degree(2)),
    ("Pow", _pow),
    ("Clip", _clip),
    ("Pad", _pad),
    ("ThresholdedRelu", _threshold(("alpha", 1.0))),
    ("Shrink", _threshold(("lambd", 0.5), ("bias", 0.0))),
    ("InstanceNormalization RMSNormalization SimplifiedLayerNormalization", _norm(1)),
    ("LayerNormalization", _norm(1, 2)),
    ("GroupNormalization", _norm(1)),
    ("BatchNormalization", _batch_norm),
    ("LpNormalization", invariant),
)

# operators: the same of com.microsoft.
_CONTRIBUTED: tuple[tuple[str, Rule], ...] = (
    ("MatMulNBits", _matmul_n_bits),
    ("GatherBlockQuantized", _dequantized(2)),
    ("DequantizeLinear", _dequantized(1)),
    ("QuantizeLinear", lambda call: call.same(call.input(0), call.input(1))),
    ("RotaryEmbedding", _by_first),
    ("BiasAdd", homogeneous),
    ("SkipLayerNormalization", _skip_norm(2, 3, 4)),
    ("SkipSimplifiedLayerNormalization", _skip_norm(2, None, 3)),
    ("GroupNorm", _group_norm),
)


RULES = table_of(
    (f"{domain}{name}", rule)
    for domain, rows in (
        ("", [(name, _contract) for name in PRODUCTS if name != "Einsum"]),
        ("", _RULES),
        ("com.microsoft::", _CONTRIBUTED),
    )
    for names, rule in rows
    for name in names.split()
)
"""Operator, as in traits.py -> its rule, where its traits do not say everything."""

_DOES_NOT_SCALE = Trait.OPAQUE | Trait.QUANTIZED | Trait.LOSS


def rule_of(called: Called) -> Rule:
    """Return the rule of an operator; one that nothing is known of scales nothing."""
    rule = RULES.get(operator(called))
    if rule is not None:
        return rule
    traits = row_of(called).traits
    if traits & _DOES_NOT_SCALE:
        return nothing
    if traits & Trait.HOMOGENEOUS:
        return homogeneous
    return invariant if traits & Trait.SCALE_INVARIANT else nothing
