"""Small models with one known fault each: a value that does not fit float16."""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Fault:
    """A model and where it goes wrong in float16.

    Attributes:
        name: The fault.
        model: The float32 model.
        data: Its batches.
        culprits: The nodes that can be named first: the ones that make the value.
    """

    name: str
    model: onnx.ModelProto
    data: tuple[Feeds, ...]
    culprits: tuple[str, ...]


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')


def _x(
    scale: float = 1.0, shape: tuple[int, ...] = (4, 8), seed: int = 0, spread: float = 0.5
) -> Feeds:
    rng = np.random.default_rng(seed)
    return {"x": (scale * rng.uniform(1 - spread, 1 + spread, shape)).astype(np.float32)}


def _weight(name: str, value: float, shape: tuple[int, ...] = (8, 8)) -> str:
    dims = ",".join(map(str, shape))
    numbers = ",".join([f"{value:g}"] * int(np.prod(shape)))
    return f"float[{dims}] {name} = {{{numbers}}}"


def _chain(weights: str, body: str, shape: str = "4,8", result: str = "4,8") -> onnx.ModelProto:
    return _model(f"chain (float[{shape}] x) => (float[{result}] y) <{weights}> {{{body}}}")


HALF, MANY, FEW = _weight("half", 0.1), _weight("many", 2000.0), _weight("few", 1e-4)

FAULTS = (
    Fault(
        "a matrix product overflows",
        _chain(
            f"{HALF}, {MANY}, {FEW}",
            "[a] h = MatMul(x, half) [hot] i = MatMul(h, many) [c] y = MatMul(i, few)",
        ),
        (_x(10.0),),
        ("hot",),
    ),
    Fault(
        "an infinity is absorbed by Clip",
        _chain(
            f"{HALF}, {MANY}, float low = {{0}}, float high = {{5}}",
            "[a] h = MatMul(x, half) [hot] i = MatMul(h, many) [c] j = Clip(i, low, high)"
            "[d] y = MatMul(j, half)",
        ),
        (_x(10.0),),
        ("hot",),
    ),
    Fault(
        "a matrix product underflows",
        _chain(
            f"{HALF}, {_weight('tiny', 1e-5)}, {_weight('big', 100.0)}",
            "[a] h = MatMul(x, half) [faint] i = MatMul(h, tiny) [c] y = MatMul(i, big)",
        ),
        (_x(1e-4),),
        ("faint",),
    ),
    Fault(
        "a sum overflows",
        _chain(
            f"{_weight('w', 1.0)}, {FEW}",
            "[a] h = MatMul(x, w) [sum] i = Sum(h, h, h) [c] y = MatMul(i, few)",
        ),
        (_x(3500.0, spread=0.1),),
        ("sum",),
    ),
    Fault(
        "a square overflows",
        _chain(
            f"{_weight('w', 1.0)}, {FEW}",
            "[a] h = MatMul(x, w) [square] i = Mul(h, h) [c] y = MatMul(i, few)",
        ),
        (_x(50.0),),
        ("square",),
    ),
    Fault(
        "a divisor underflows",
        _chain(
            f"{HALF}, {_weight('tiny', 1e-5)}",
            "[a] h = MatMul(x, half) [faint] i = MatMul(h, tiny) [b] j = MatMul(x, tiny)"
            "[ratio] k = Div(j, i) [c] y = MatMul(k, half)",
        ),
        (_x(1e-4),),
        ("faint", "b"),
    ),
    Fault(
        "a logarithm of a small number",
        _chain(
            f"{HALF}, {_weight('tiny', 1e-5)}",
            "[a] h = MatMul(x, half) [faint] i = MatMul(h, tiny) [log] j = Log(i)"
            "[c] y = MatMul(j, half)",
        ),
        (_x(1e-4),),
        ("faint",),
    ),
    Fault(
        "a reciprocal overflows",
        _chain(
            f"{_weight('w', 1e-2)}, {FEW}",
            "[a] h = MatMul(x, w) [inverse] i = Reciprocal(h) [c] y = MatMul(i, few)",
        ),
        (_x(1e-4),),
        ("inverse", "a"),
    ),
    Fault(
        "two products overflow on two paths",
        _chain(
            f"{HALF}, {MANY}, {FEW}",
            "[a] h = MatMul(x, half) [hot] i = MatMul(h, many) [c] j = MatMul(i, few)"
            "[hotter] k = MatMul(h, many) [e] l = MatMul(k, few) [f] y = Add(j, l)",
        ),
        (_x(10.0),),
        ("hot",),
    ),
    Fault(
        "a convolution overflows",
        _chain(
            f"{_weight('w', 3.0, (2, 2, 3, 3))}, {_weight('v', 1e-4, (2, 2, 3, 3))}",
            "[a] h = Conv(x, w) [hot] i = Conv(h, w) [relu] j = Relu(i) [c] y = Conv(j, v)",
            "1,2,9,9",
            "1,2,3,3",
        ),
        (_x(100.0, (1, 2, 9, 9)),),
        ("hot",),
    ),
    Fault(
        "a branch overflows",
        _model(
            f"branch (float[4,8] x, bool c) => (float[4,8] y) <{HALF}, {MANY}, {FEW}> {{"
            "[a] h = MatMul(x, half)"
            "[if] k = If(c) <"
            "then_branch = then () => (float[4,8] t) {[hot] i = MatMul(h, many)"
            " [cool] t = MatMul(i, few)},"
            "else_branch = else () => (float[4,8] e) {[other] e = MatMul(h, half)}>"
            "[z] y = MatMul(k, half)}"
        ),
        ({**_x(10.0), "c": np.array(False)}, {**_x(10.0), "c": np.array(True)}),
        ("hot",),
    ),
    Fault(
        "a loop grows out of range",
        _model(
            f"grow (float[4,8] x) => (float[4,8] y) <{HALF}, {_weight('w', 1.25)}, {FEW},"
            " int64 n = {6}, bool on = {1}> {"
            "[a] h = MatMul(x, half)"
            "[loop] k = Loop(n, on, h) <body = body (int64 i, bool c, float[4,8] s)"
            " => (bool d, float[4,8] t) {[same] d = Identity(c) [hot] t = MatMul(s, w)}>"
            "[z] y = MatMul(k, few)}"
        ),
        (_x(0.1), _x(1.0)),
        ("loop", "hot"),
    ),
    Fault(
        "only the last batch overflows",
        _chain(
            f"{HALF}, {MANY}, {FEW}",
            "[a] h = MatMul(x, half) [hot] i = MatMul(h, many) [c] y = MatMul(i, few)",
        ),
        (_x(0.1), _x(0.2, seed=1), _x(10.0, seed=2)),
        ("hot",),
    ),
)
