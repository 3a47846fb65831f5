"""The known traits of every operator: one table, which every other question is a query of.

In the manner of xDSL's traits: a row says what holds for an operator at every opset and in every
mode; what depends on an attribute is left to whoever asks. An operator without a row promises
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir


class Trait(Flag):
    """A promise of an operator."""

    # How it is built.
    SUBGRAPHS = auto()
    """It has graphs among its attributes, and returns what they compute."""
    LOOPS = auto()
    """It runs its graph once for each of a number of elements or iterations."""
    SEQUENCE = auto()
    """It handles a sequence; the schema's T, the element, and S, the sequence, are one variable."""
    WRITES_SEQUENCE = auto()
    """It puts tensors into a sequence."""
    READS_SEQUENCE = auto()
    """It takes tensors out of a sequence."""
    PASSES_SEQUENCE = auto()
    """It may pass a sequence on unchanged."""
    OPAQUE = auto()
    """It takes or gives what cannot be followed, hence retyped: optionals, bare bits."""
    RANDOM = auto()
    """It draws other numbers at every run."""
    HOLDS = auto()
    """Its result is, or repeats, a tensor among its attributes."""
    CASTS = auto()
    """It rounds its first input to another element type."""
    LOSS = auto()
    """It is a loss of scores, its first input, and class indices, its second."""

    # What becomes of the elements.
    MOVES = auto()
    """Every element of the result is one of its data, or zero."""
    HANDS_ON = auto()
    """Some elements of the result may be elements of its data, the others are computed of them."""
    REARRANGES = auto()
    """It moves, and every element of its first input is in the result, once."""
    CHANGES_SIGN = auto()
    """The magnitudes of the result's elements are those of its input's."""
    EXACT = auto()
    """Its results are represented exactly in any floating-point type of its inputs."""
    JUMPS = auto()
    """A small change of a floating-point input may change the result by much."""
    ORDERS = auto()
    """A value far below all others counts for as much as minus infinity."""
    STEEP_AT_ZERO = auto()
    """Zero gives zero, but a small first input may give a result that is not."""
    SHOWS_NONFINITE = auto()
    """The result is not finite where an operand is not: 0 x inf is NaN."""

    # Arithmetic.
    ADDS = auto()
    """It is the sum of its inputs, broadcast."""
    SUMS_UP = auto()
    """It adds up elements, or a power or the magnitudes of them, along axes."""
    AVERAGES = auto()
    """It is the mean of the elements of windows."""
    MULTIPLIES = auto()
    """It is a product: linear in each of its factors."""
    CONTRACTS = auto()
    """It adds up products of elements of its first two inputs."""
    ACCUMULATES = auto()
    """It adds up elements without dividing: of ones it gives their number."""
    QUANTIZED = auto()
    """Its result is quantised data: integers that stand for other numbers."""
    ENUMERATES = auto()
    """Its result counts, whatever type it has."""
    PERIODIC = auto()
    """Its input is an angle: an absolute error of it counts, however large the angle is."""
    COMPARES = auto()
    """It tells which of its inputs is the larger, element by element."""
    HOMOGENEOUS = auto()
    """Its data times s > 0, all of it, give the result times s."""
    SCALE_INVARIANT = auto()
    """Its inputs times s > 0 give the same result."""

    # Gradients.
    NO_GRADIENT = auto()
    """No output depends smoothly on an input: steps, comparisons, integers, random numbers."""
    NOT_BROADCAST = auto()
    """Its first input is not broadcast: a gradient rule gives a gradient of that very shape."""


_NONE = Trait(0)


@dataclass(frozen=True, slots=True)
class Row:
    """The known facts of an operator.

    Attributes:
        data: The inputs that hold data; others are shapes, indices, conditions. None is all.
        settings: Floating-point inputs that set up the operator and are not trained.
        pole: The input at which zero gives an infinity.
        coordinates: The inputs that hold places in its data.
        scales: The inputs that hold factors of blocks of stored weights.
        masks: The inputs that it adds to scores, in front of a Softmax of its own.
    """

    traits: Trait = _NONE
    data: tuple[int, ...] | None = None
    settings: tuple[int, ...] = ()
    pole: int | None = None
    coordinates: tuple[int, ...] = ()
    scales: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()

    def data_of(self, node: ir.Node) -> list[ir.Value | None]:
        """Return the inputs of a node that hold data."""
        if self.data is None:
            return list(node.inputs)
        return [node.inputs[i] for i in self.data if i < len(node.inputs)]


Family = tuple[str, Row]

_UNKNOWN = Row()
_T = Trait
_FIRST = (0,)
_MOVE = _T.MOVES | _T.HOMOGENEOUS
_STEP = _T.JUMPS | _T.NO_GRADIENT
_SCALES = _T.HOMOGENEOUS | _T.NOT_BROADCAST

_STRUCTURE: tuple[Family, ...] = (
    ("If", Row(_T.SUBGRAPHS | _T.PASSES_SEQUENCE)),
    ("Loop", Row(_T.SUBGRAPHS | _T.LOOPS | _T.PASSES_SEQUENCE)),
    ("Scan", Row(_T.SUBGRAPHS | _T.LOOPS)),
    ("SequenceMap", Row(_T.SUBGRAPHS | _T.LOOPS | _T.OPAQUE)),
    ("SequenceConstruct", Row(_T.SEQUENCE | _T.WRITES_SEQUENCE | _MOVE | _T.NOT_BROADCAST)),
    ("SequenceInsert", Row(_T.SEQUENCE | _T.WRITES_SEQUENCE | _MOVE | _T.NOT_BROADCAST, (0, 1))),
    ("SplitToSequence", Row(_T.SEQUENCE | _T.WRITES_SEQUENCE | _MOVE | _T.NOT_BROADCAST, _FIRST)),
    (
        "ConcatFromSequence SequenceAt",
        Row(_T.SEQUENCE | _T.READS_SEQUENCE | _MOVE | _T.NOT_BROADCAST, _FIRST),
    ),
    ("SequenceEmpty SequenceErase", Row(_T.SEQUENCE | _MOVE, _FIRST)),
    ("SequenceLength", Row(_T.SEQUENCE | _T.SCALE_INVARIANT)),
    ("Optional OptionalGetElement", Row(_T.OPAQUE | _MOVE)),
    ("OptionalHasElement", Row(_T.OPAQUE | _T.SCALE_INVARIANT)),
    ("BitCast", Row(_T.OPAQUE)),
    ("Cast CastLike", Row(_T.CASTS | _SCALES | _T.SHOWS_NONFINITE, _FIRST)),
    ("Constant", Row(_T.HOLDS | _T.NO_GRADIENT)),
    ("ConstantOfShape", Row(_T.HOLDS | _T.SCALE_INVARIANT | _T.NO_GRADIENT)),
    ("EyeLike", Row(_T.EXACT | _T.SCALE_INVARIANT | _T.NO_GRADIENT)),
    ("Bernoulli", Row(_T.RANDOM | _T.NO_GRADIENT)),
    ("Multinomial RandomNormal RandomUniform", Row(_T.RANDOM | _T.NO_GRADIENT)),
    (
        "RandomNormalLike RandomUniformLike",
        Row(_T.RANDOM | _T.SCALE_INVARIANT | _T.NO_GRADIENT),
    ),
    ("Range", Row(_T.NO_GRADIENT | _T.ENUMERATES, settings=(0, 1, 2))),
    ("BlackmanWindow HammingWindow HannWindow MelWeightMatrix", Row(_T.NO_GRADIENT)),
    ("Shape Size", Row(_T.SCALE_INVARIANT | _T.NO_GRADIENT)),
)

_ELEMENTS: tuple[Family, ...] = (
    ("Identity", Row(_T.REARRANGES | _MOVE | _T.NOT_BROADCAST | _T.PASSES_SEQUENCE, _FIRST)),
    (
        "DepthToSpace Flatten Reshape ReverseSequence SpaceToDepth Squeeze Transpose Unsqueeze",
        Row(_T.REARRANGES | _MOVE | _T.NOT_BROADCAST, _FIRST),
    ),
    (
        "CenterCropPad Compress Gather GatherElements GatherND MaxUnpool Slice Split Tile Trilu",
        Row(_MOVE | _T.NOT_BROADCAST, _FIRST),
    ),
    ("Concat", Row(_MOVE | _T.NOT_BROADCAST)),
    ("Pad", Row(_MOVE | _T.NOT_BROADCAST, (0, 2), settings=(2,))),
    ("Scatter", Row(_MOVE | _T.NOT_BROADCAST, (0, 2))),
    ("TensorScatter", Row(_MOVE | _T.NOT_BROADCAST, (0, 1))),
    ("Unique", Row(_MOVE | _T.NOT_BROADCAST | _T.JUMPS, _FIRST)),
    ("Expand", Row(_MOVE, _FIRST)),
    ("Where", Row(_MOVE, (1, 2))),
    ("OneHot", Row(_MOVE | _STEP, (2,), settings=(2,))),
    ("ScatterElements ScatterND", Row(_T.HANDS_ON | _T.NOT_BROADCAST, (0, 2))),
    ("Dropout", Row(_T.HANDS_ON | _SCALES, _FIRST, settings=(1,))),
    ("Resize", Row(_T.HANDS_ON | _T.NOT_BROADCAST, _FIRST, settings=(1, 2))),
    ("Upsample", Row(_T.HANDS_ON | _SCALES, _FIRST, settings=(1,))),
    ("Col2Im", Row(_T.HANDS_ON | _SCALES, _FIRST)),
    ("DFT", Row(_SCALES, _FIRST)),
    ("GridSample MaxRoiPool RoiAlign", Row(_T.HANDS_ON | _SCALES, _FIRST, coordinates=(1,))),
    ("AffineGrid", Row(_T.HANDS_ON, _FIRST, coordinates=(0,))),
    ("Max", Row(_T.EXACT | _T.HOMOGENEOUS | _T.ORDERS)),
    ("Min", Row(_T.EXACT | _T.HOMOGENEOUS)),
    ("GlobalMaxPool MaxPool ReduceMax", Row(_T.EXACT | _SCALES | _T.ORDERS, _FIRST)),
    ("ReduceMin Relu", Row(_T.EXACT | _SCALES, _FIRST)),
    ("TopK", Row(_T.EXACT | _SCALES | _T.ORDERS | _T.JUMPS, _FIRST)),
    ("Abs Neg", Row(_T.EXACT | _SCALES | _T.CHANGES_SIGN | _T.SHOWS_NONFINITE)),
    ("Ceil Floor Round", Row(_T.EXACT | _STEP)),
    ("Sign", Row(_T.EXACT | _STEP | _T.SCALE_INVARIANT)),
    ("ArgMax", Row(_STEP | _T.ORDERS | _T.SCALE_INVARIANT)),
    ("ArgMin NonZero", Row(_STEP | _T.SCALE_INVARIANT)),
    ("Hardmax", Row(_STEP | _T.ORDERS)),
    ("IsInf IsNaN NonMaxSuppression", Row(_STEP)),
    ("Equal Greater GreaterOrEqual Less LessOrEqual", Row(_STEP | _T.COMPARES)),
    ("Clip", Row(settings=(1, 2))),
    ("Shrink ThresholdedRelu", Row(_T.HANDS_ON | _T.JUMPS | _T.NOT_BROADCAST)),
)

_ARITHMETIC: tuple[Family, ...] = (
    ("Add Sum", Row(_T.ADDS | _T.HOMOGENEOUS | _T.SHOWS_NONFINITE)),
    ("Mean Sub", Row(_T.HOMOGENEOUS | _T.SHOWS_NONFINITE)),
    ("Mul", Row(_T.MULTIPLIES | _T.SHOWS_NONFINITE)),
    ("PRelu RotaryEmbedding", Row(_T.HANDS_ON | _T.MULTIPLIES)),
    ("STFT", Row(_T.MULTIPLIES)),
    ("Gemm MatMul", Row(_T.MULTIPLIES | _T.CONTRACTS | _T.SHOWS_NONFINITE)),
    ("Conv ConvTranspose", Row(_T.MULTIPLIES | _T.CONTRACTS | _T.NOT_BROADCAST)),
    ("Einsum", Row(_T.MULTIPLIES | _T.CONTRACTS)),
    ("CumSum ReduceL1 ReduceSum", Row(_T.SUMS_UP | _T.ACCUMULATES | _SCALES, _FIRST)),
    ("ReduceL2 ReduceMean", Row(_T.SUMS_UP | _SCALES, _FIRST)),
    ("ReduceSumSquare", Row(_T.SUMS_UP | _T.ACCUMULATES | _T.NOT_BROADCAST)),
    ("ReduceLogSum", Row(_T.SUMS_UP | _T.NOT_BROADCAST)),
    ("AveragePool GlobalAveragePool", Row(_T.AVERAGES | _SCALES)),
    ("GlobalLpPool LeakyRelu LpPool", Row(_T.HANDS_ON | _SCALES)),
    ("Div", Row(pole=1)),
    ("Log Reciprocal", Row(_T.NOT_BROADCAST, pole=0)),
    ("Sqrt", Row(_T.STEEP_AT_ZERO | _T.NOT_BROADCAST)),
    ("Pow", Row(_T.STEEP_AT_ZERO)),
    ("Mod", Row(_T.JUMPS)),
    ("Cos Sin Tan", Row(_T.PERIODIC | _T.NOT_BROADCAST)),
    ("LogSoftmax ReduceLogSumExp Softmax", Row(_T.ORDERS | _T.NOT_BROADCAST)),
    ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", Row(_T.LOSS | _T.NOT_BROADCAST)),
    ("BatchNormalization", Row(_T.NOT_BROADCAST, settings=(3, 4))),
    (
        "Acos Acosh Asin Asinh Atan Atanh Cosh Erf Exp Gelu HardSigmoid Mish Sigmoid Sinh Softplus"
        " Softsign Swish Tanh",
        Row(_T.NOT_BROADCAST),
    ),
    ("Celu Elu HardSwish ReduceProd Selu", Row(_T.HANDS_ON | _T.NOT_BROADCAST)),
    ("Attention", Row(_T.HANDS_ON, masks=(3,))),
    ("CausalConvWithState CumProd LinearAttention", Row(_T.HANDS_ON)),
    (
        "GRU InstanceNormalization LRN LSTM LayerNormalization LpNormalization"
        " MeanVarianceNormalization RMSNormalization RNN",
        Row(_T.NOT_BROADCAST),
    ),
    (
        "And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Not Or RegexFullMatch StringConcat"
        " StringNormalizer StringSplit TfIdfVectorizer Xor",
        Row(_T.NO_GRADIENT),
    ),
    (
        "ConvInteger DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear",
        Row(_T.NO_GRADIENT | _T.QUANTIZED),
    ),
)

_CONTRIBUTED: tuple[Family, ...] = (
    ("GatherBlockQuantized MatMulNBits", Row(scales=(2,))),
    ("QMoE", Row(scales=(3, 6, 9))),
    ("DecoderMaskedMultiHeadAttention", Row(masks=(4,))),
    ("Attention MultiHeadAttention PackedAttention", Row(masks=(5,))),
    ("PackedMultiHeadAttention", Row(masks=(6,))),
    ("GroupQueryAttention", Row(masks=(10,))),
)
"""Those of com.microsoft."""


def _key(domain: str, op_type: str) -> str:
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


def _table() -> Mapping[str, Row]:
    families = [*_STRUCTURE, *_ELEMENTS, *_ARITHMETIC]
    rows = [(name, row) for names, row in families for name in names.split()]
    rows += [(_key("com.microsoft", n), row) for names, row in _CONTRIBUTED for n in names.split()]
    table = dict(rows)
    if len(table) < len(rows):
        raise ValueError(f"two rows for one operator, among {sorted(name for name, _ in rows)}")
    return MappingProxyType(table)


TABLE: Mapping[str, Row] = _table()
"""Operator ("Add", or "domain::Op" outside ai.onnx) -> what is known of it."""


class Operator(NamedTuple):
    """The operator that a node calls: an operator of a domain, or a model-local function."""

    domain: str
    op_type: str
    overload: str = ""


Called: TypeAlias = "ir.Node | Operator"
"""An object that names its operator."""


def operator(node: Called) -> str:
    """Return the key of a node's operator in tables."""
    return _key(node.domain, node.op_type)


def row_of(node: Called) -> Row:
    """Return what is known of a node's operator; nothing if it is not in the table."""
    return TABLE.get(operator(node), _UNKNOWN)


def is_one(called: Called, *op_types: str) -> bool:
    """Tell whether an operator is one of some of ai.onnx."""
    return called.domain == "" and called.op_type in op_types


def has(node: Called, *traits: Trait) -> bool:
    """Tell whether a node's operator has at least one of some traits."""
    return operator(node) in having(*traits)


@cache
def having(*traits: Trait) -> frozenset[str]:
    """Return the operators that have at least one of some traits."""
    asked = reduce(or_, traits, Trait(0)).value
    return frozenset(name for name, bits in _bits() if bits & asked)


@cache
def _bits() -> tuple[tuple[str, int], ...]:
    """Return the operators, and their traits as numbers: a Flag takes ten times as long to ask."""
    return tuple((name, row.traits.value) for name, row in TABLE.items())
