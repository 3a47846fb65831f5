"""What a runtime takes, by probing: models of one node in every combination of types.

Each node case of ONNX's backend tests is a model of one node with float32 inputs. Every float32
type variable of the node, alone and together with others, is made low, and the runtime is asked
whether it takes the model. A combination of types is in the table if each case that it takes in
float32 is taken with it. Runtimes that are probed ask for an operator, not for its version, so
that a row serves all versions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
from kernel_rows import table_for, to_text
from onnx.backend.test.case.node import collect_testcases

from amp_rewrite.dtypes import FLOAT16, FLOAT32, LOW, DType
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.ports import ports_of, schema_variable

DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "lists" / "kernels"

Builds = Callable[[onnx.ModelProto], bool]
"""Whether a runtime takes a model."""

Types = tuple[tuple[str, str], ...]
"""The type of each type variable of a node."""

CALLS = {
    "Compress": "g (float[2,3] x, bool[2] c) => (float[1,3] y) { y = Compress<axis = 0>(x, c) }",
    "Einsum": "g (float[2,3] x, float[3,4] z) => (float[2,4] y) "
    '{ y = Einsum<equation = "ij,jk->ik">(x, z) }',
    "Equal": "g (float[2,3] x, float[2,3] z) => (bool[2,3] y) { y = Equal(x, z) }",
    "GlobalLpPool": "g (float[1,2,3,3] x) => (float[1,2,1,1] y) { y = GlobalLpPool(x) }",
    "LayerNormalization": "g (float[2,3] x, float[3] s, float[3] b) => (float[2,3] y) "
    "{ y = LayerNormalization(x, s, b) }",
    "OneHot": "g (int64[2] x, float[2] v) => (float[2,3] y) <int64 d = {3}> "
    "{ y = OneHot(x, d, v) }",
    "Trilu": "g (float[2,3] x) => (float[2,3] y) { y = Trilu(x) }",
}
"""Models of operators whose backend cases are in other types, or ask for too much at once."""

RECURRENT = {
    f"{op}{lengths and ' with lengths'}": f"g (float[4,2,3] x, float[1,{gates},3] w, "
    f"float[1,{gates},3] r, float[1,{2 * gates}] b{lengths and ', int32[2] n'}) "
    f"=> (float[4,1,2,3] y) {{ y = {op}<hidden_size = 3>(x, w, r, b{lengths}) }}"
    for op, gates in (("GRU", 9), ("LSTM", 12), ("RNN", 3))
    for lengths in ("", ", n")
}
"""Models of operators that take several steps, where those of backend cases take one or two."""

RECURRENT_OPSET = 22
"""The opset from which on bfloat16 is in their schemas."""

CASTABLE = ("bool", "int32", "int64", "float", "float16", "bfloat16")
"""The types between which a Cast is tried."""

BODIES = {
    "If": "g (bool[1] c, float[2,3] x) => (float[2,3] y) <bool s> { s = Squeeze(c) "
    "y = If(s) <then_branch = t () => (float[2,3] a) { a = Neg(x) }, "
    "else_branch = e () => (float[2,3] b) { b = Abs(x) }> }",
    "Loop": "g (float[2,3] x) => (float[2,3] y) "
    "<int64 n = {3}, bool c = {1}> "
    "{ y = Loop(n, c, x) <body = b (int64 i, bool a, float[2,3] v) => (bool d, float[2,3] w) "
    "{ d = Identity(a) w = Neg(v) }> }",
    "Scan": "g (float[3] s, float[4,3] x) => (float[3] t, float[4,3] y) "
    "{ t, y = Scan(s, x) <num_scan_inputs = 1, body = b (float[3] v, float[3] e) => "
    "(float[3] w, float[3] f) { w = Add(v, e) f = Neg(w) }> }",
}
"""Models of nodes with bodies, whose values have one type."""

APART = {"Cast", *BODIES}
"""Operators that are not tried with their backend cases."""


def calls() -> Iterator[onnx.ModelProto]:
    """Yield models of one node, whose integers are constants, as in most models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators of the cases overflow on purpose
        cases = collect_testcases(None)
    for case in cases:
        model = case.model
        if model is None or len(model.graph.node) != 1 or model.graph.node[0].op_type in APART:
            continue
        values = case.data_sets[0][0] if case.data_sets else []
        yield with_constants(model, values)
    yield from (of_text(text, RECURRENT_OPSET) for text in RECURRENT.values())
    yield from map(of_text, CALLS.values())


def of_text(text: str, opset: int = 18) -> onnx.ModelProto:
    """Return the model of a graph in ONNX text."""
    opsets = f'["" : {opset}, "com.microsoft" : 1]'
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: {opsets}> {text}")


def with_constants(model: onnx.ModelProto, values: Any) -> onnx.ModelProto:
    """Return a model whose integers are initializers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.input[:]
    for given, value in zip(model.graph.input, values, strict=False):
        type_ = given.type.tensor_type.elem_type
        if type_ in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            result.graph.initializer.append(onnx.numpy_helper.from_array(value, given.name))
        else:
            result.graph.input.append(given)
    return result


def variables_of(model: onnx.ModelProto) -> dict[str, str]:
    """Return value -> type variable, of a model of one node."""
    (node,) = model.graph.node
    opset = next(i.version for i in model.opset_import if i.domain == node.domain)
    ports = ports_of(node.domain, node.op_type, opset, len(node.input), len(node.output))
    named = zip((*node.input, *node.output), (*ports.inputs, *ports.outputs), strict=True)
    return {value: schema_variable(variable) for value, variable in named if value}


def absent_variables(model: onnx.ModelProto, variables: dict[str, str]) -> frozenset[str]:
    """Return the type variables of an operator that a call leaves away."""
    (node,) = model.graph.node
    opset = next(i.version for i in model.opset_import if i.domain == node.domain)
    schema = schemas.find(node.domain, node.op_type, opset)
    return frozenset() if schema is None else frozenset(schema.variables) - {*variables.values()}


def types_of(model: onnx.ModelProto, variables: dict[str, str]) -> dict[str, int]:
    """Return type variable -> element type of what is fed and returned."""
    values = (*model.graph.input, *model.graph.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    return {variables[name]: type_ for name, type_ in types.items() if name in variables}


def retyped(
    model: onnx.ModelProto, variables: dict[str, str], chosen: frozenset[str], low: DType
) -> onnx.ModelProto:
    """Return the model with the float32 values of some variables in a low type."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in (*result.graph.input, *result.graph.output):
        if variables.get(value.name) in chosen:
            value.type.tensor_type.elem_type = low.number
    return result


def choices(
    model: onnx.ModelProto, variables: dict[str, str], lows: Sequence[DType] = (*LOW.values(),)
) -> Iterator[tuple[Types, onnx.ModelProto]]:
    """Yield a model in all combinations of types that its schema admits, the float32 one first.

    A model in which a variable that may be float32 is something else tells nothing of float32.
    """
    (node,) = model.graph.node
    opset = next(i.version for i in model.opset_import if i.domain == node.domain)
    schema = schemas.find(node.domain, node.op_type, opset)
    known = types_of(model, variables)
    if schema is None:
        return
    floats = sorted(n for n in known if tensor(FLOAT32.number) in schema.variables.get(n, ()))
    if not floats or any(known[name] != FLOAT32.number for name in floats):
        return
    yield tuple((name, tensor(FLOAT32.number)) for name in floats), model
    for low in lows:
        for count in range(1, len(floats) + 1):
            for chosen in combinations(floats, count):
                if all(tensor(low.number) in schema.variables[name] for name in chosen):
                    types = known | dict.fromkeys(chosen, low.number)
                    changed = retyped(model, variables, frozenset(chosen), low)
                    yield tuple((name, tensor(types[name])) for name in floats), changed


def behind_casts(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.ModelProto]]:
    """Yield a model of one node with a Cast in front of each of its float32 inputs."""
    for given in model.graph.input:
        if given.type.tensor_type.elem_type != FLOAT32.number:
            continue
        result = onnx.ModelProto()
        result.CopyFrom(model)
        (node,) = result.graph.node
        index = list(node.input).index(given.name)
        low = next(value for value in result.graph.input if value.name == given.name)
        low.name, low.type.tensor_type.elem_type = f"{given.name}_low", FLOAT16.number
        cast = onnx.helper.make_node("Cast", [low.name], [given.name], to=FLOAT32.number)
        result.graph.node.insert(0, cast)
        yield index, result


class Probe:
    """What a runtime takes, by operator and combination of types."""

    def __init__(
        self, provider: str, builds: Builds, lows: Sequence[DType] = (*LOW.values(),)
    ) -> None:
        """Begin with nothing tried.

        Args:
            provider: What the kernel table calls the runtime.
            builds: Asks it.
            lows: The low types to try.
        """
        self.provider, self.builds, self.lows = provider, builds, lows
        self.taken: dict[tuple[str, str, Types, frozenset[str]], bool] = {}
        """(domain, operator, types, variables left out) -> whether all such calls were taken."""
        self.uncast: dict[str, set[int]] = {}
        """Operator -> the inputs at which a float32 call behind a Cast was refused."""

    def all(self) -> Probe:
        """Try all that there is; return the probe."""
        for model in calls():
            self.call(model)
        for op, text in BODIES.items():
            self.body(op, text)
        self.casts()
        return self

    def call(self, model: onnx.ModelProto) -> None:
        """Try a model of one node in all types."""
        variables = variables_of(model)
        tried = list(choices(model, variables, self.lows))
        if not tried or not self.builds(tried[0][1]):
            return
        (node,), absent = model.graph.node, absent_variables(model, variables)
        domain, op = node.domain, node.op_type
        for index, behind in behind_casts(model):
            if index not in self.uncast.get(op, ()) and not self.builds(behind):
                self.uncast.setdefault(op, set()).add(index)
        self.taken.setdefault((domain, op, tried[0][0], absent), True)
        for types, changed in tried[1:]:
            if self.taken.get((domain, op, types, absent), True):
                self.taken[domain, op, types, absent] = self.builds(changed)

    def body(self, op: str, text: str) -> None:
        """Try a model of a node with a body in all types."""
        for dtype in (FLOAT32, *self.lows):
            model = of_text(text.replace("float[", f"{dtype.onnx}["))
            self.taken["", op, (("V", tensor(dtype.number)),), frozenset()] = self.builds(model)

    def casts(self) -> None:
        """Try a Cast between all types of models."""
        for given, made in product(CASTABLE, CASTABLE):
            number = onnx.TensorProto.DataType.Value(made.upper())
            text = f"g ({given}[2] x) => ({made}[2] y) {{ y = Cast<to = {number}>(x) }}"
            types = (("T1", f"tensor({given})"), ("T2", f"tensor({made})"))
            self.taken["", "Cast", types, frozenset()] = self.builds(of_text(text))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the kernels that were found."""
        refused = {key[:-1] for key, taken in self.taken.items() if not taken}
        for (domain, op, types, absent), taken in self.taken.items():
            if taken:
                left_away = absent if (domain, op, types) in refused else ()
                yield {
                    "provider": self.provider,
                    "domain": domain,
                    "op": op,
                    "since": 1,
                    "until": schemas.newest_opset(domain),
                    "types": {name: [type_] for name, type_ in types} | {n: [] for n in left_away},
                }

    def write(self, folder: Path, runtime: str, version: str, source: str) -> None:
        """Write what was found as a kernel table.

        Args:
            folder: Where it goes, as <provider>_<version>.json.
            runtime: The runtime in words, its version last.
            version: The version.
            source: The tool that asked.
        """
        answer = {"runtime": runtime, "source": source, "kernels": list(self.rows())}
        table = table_for(answer, self.provider)
        if self.uncast:
            uncast = {op: sorted(inputs) for op, inputs in sorted(self.uncast.items())}
            table |= {"uncast": {"": uncast}}
        path = folder / f"{self.provider}_{version}.json"
        path.write_text(to_text(table), "utf-8")
        print(f"{sum(map(len, table['kernels'].values()))} operators -> {path}")
