"""The patterns: what exporters write where they, or the opset, have no operator for it."""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.values.patterns.find_groups import Number, Op, Pattern, Term, Value
from amp_rewrite.values.patterns.plain_view import PlainView

SQRT_2 = 1.4142135623730951
SQRT_2_OVER_PI = 0.7978845608028654
CUBIC = 0.044715
"""The coefficient of x^3 in the approximation of Gelu by Tanh (Hendrycks and Gimpel, 2016)."""


def over_last_axis(view: PlainView, node: int) -> bool:
    """Tell whether a reduction runs over the last axis, as far as is known."""
    axes = _axes(view, node)
    if axes is None or len(axes) != 1:
        return False
    flat = view.type_graph.flat
    shape = flat.shape(flat.inputs_of(node)[0])
    return axes[0] == -1 or (axes[0] > 0 and (shape is None or axes[0] == len(shape) - 1))


def is_vector(view: PlainView, value: int) -> bool:
    """Tell whether a value has one axis, as far as is known."""
    shape = view.type_graph.flat.shape(value)
    return shape is None or len(shape) == 1


def is_constant_vector(view: PlainView, value: int) -> bool:
    """Tell whether a value is a constant with one axis."""
    return view.constant(value) is not None and is_vector(view, value)


def stays_an_add(view: PlainView, node: int) -> bool:
    """Tell whether runtimes leave an Add alone: that behind a product of matrices is a Gemm's."""
    flat = view.type_graph.flat
    shape = flat.shape(flat.outputs_of(node)[0])
    makers = [view.maker(value) for value in flat.inputs_of(node)]
    behind_product = any(m != ABSENT and flat.called(m).op_type == "MatMul" for m in makers)
    is_matrix = shape is not None and (len(shape) == 2 or None not in shape)
    return not (behind_product and is_matrix)


def is_single(view: PlainView, value: int) -> bool:
    """Tell whether a value is a constant of one element."""
    tensor = view.constant(value)
    return tensor is not None and tensor.size == 1


def _axes(view: PlainView, node: int) -> Sequence[int] | None:
    """Return the axes of a reduction, an attribute or a constant; None if they are unknown."""
    flat = view.type_graph.flat
    attribute = flat.attributes(node).get("axes")
    if attribute is not None:
        return attribute.value
    inputs = flat.inputs_of(node)
    if len(inputs) < 2 or inputs[1] == ABSENT:
        return None
    stored = stored_tensor(flat, view.source(inputs[1]))
    return None if stored is None else stored.numpy().ravel().tolist()


_X = Value("x")
_EPSILON = Value("epsilon")
_SCALE = Value("scale", is_vector)
_BIAS = Value("bias", is_vector)


def _mean(term: Term) -> Op:
    return Op("ReduceMean", term, holds=over_last_axis)


def _power(term: Term) -> Op:
    return Op("Pow", term, Number(2))


def _deviation(square: Op) -> Op:
    return Op("Sqrt", Op("Add", _mean(square), _EPSILON))


def _divided(term: Term, square: Op) -> Op:
    """Return x / sqrt(mean(x^2) + epsilon)."""
    return Op("Div", term, _deviation(square))


def _scaled(term: Term) -> Op:
    return Op("Mul", term, _SCALE, is_tail=True)


_CENTRED = Op("Sub", _X, _mean(_X))


def _by_reciprocal(term: Term) -> Op:
    """Return x * (1 / sqrt(mean(x^2) + epsilon)), which ONNX Runtime makes a Div of."""
    return Op("Mul", term, Op("Div", Number(1), _deviation(_power(term))))


def _affine(normalized: Op) -> Pattern:
    root = Op("Add", _scaled(normalized), _BIAS, is_tail=True)
    return Pattern("LayerNormalization", root, anchor="Sqrt")


def _rms(normalized: Op) -> Pattern:
    return Pattern("RMSNormalization", _scaled(normalized), anchor="Sqrt")


LAYER_NORMALIZATION = (
    _affine(_divided(_CENTRED, _power(_CENTRED))),
    _affine(_by_reciprocal(_CENTRED)),
)
RMS_NORMALIZATION = (_rms(_divided(_X, _power(_X))), _rms(_by_reciprocal(_X)))

_BIASED = Op("Add", _X, Value("bias", is_constant_vector), holds=stays_an_add)
"""The output of a linear layer that its activation reads; runtimes fuse it with the activation."""


def _gelus(name: str, x: Term) -> tuple[Pattern, ...]:
    """Return the forms of x * (1 + erf(x / sqrt(2))) / 2."""
    behind = Op("Add", Op("Erf", Op("Div", x, Number(SQRT_2))), Number(1))
    return (
        Pattern(name, Op("Mul", Op("Mul", x, Number(0.5)), behind), anchor="Erf"),
        Pattern(name, Op("Mul", Op("Mul", x, behind), Number(0.5)), anchor="Erf"),
    )


def _tanh_gelu(name: str, x: Term, argument: Op) -> Pattern:
    behind = Op("Add", Op("Tanh", argument), Number(1))
    return Pattern(name, Op("Mul", Op("Mul", x, Number(0.5)), behind), anchor="Tanh")


def _by_product(name: str, x: Term) -> Pattern:
    """Return x * (1 + tanh(x * sqrt(2 / pi) * (1 + 0.044715 * x * x))) / 2."""
    cube = Op("Add", Op("Mul", Op("Mul", x, Number(CUBIC)), x), Number(1))
    return _tanh_gelu(name, x, Op("Mul", cube, Op("Mul", x, Number(SQRT_2_OVER_PI))))


def _by_power(name: str, x: Term) -> Pattern:
    """Return x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2."""
    cube = Op("Mul", Op("Pow", x, Number(3)), Number(CUBIC))
    return _tanh_gelu(name, x, Op("Mul", Op("Add", x, cube), Number(SQRT_2_OVER_PI)))


GELU = (*_gelus("BiasGelu", _BIASED), *_gelus("Gelu", _X))
FAST_GELU = (
    _by_product("BiasFastGelu", _BIASED),
    _by_product("FastGelu", _X),
    _by_power("BiasFastGelu by Pow", _BIASED),
    _by_power("FastGelu by Pow", _X),
)
SILU = Pattern("SiLU", Op("Mul", _X, Op("Sigmoid", _X)), anchor="Sigmoid")
QUICK_GELU = Pattern(
    "QuickGelu",
    Op("Mul", _X, Op("Sigmoid", Op("Mul", _X, Value("alpha", is_single)))),
    anchor="Sigmoid",
)


PATTERNS: tuple[Pattern, ...] = (
    *LAYER_NORMALIZATION,
    *RMS_NORMALIZATION,
    *GELU,
    *FAST_GELU,
    SILU,
    QUICK_GELU,
)
"""All patterns; one that contains another stands in front of it."""
