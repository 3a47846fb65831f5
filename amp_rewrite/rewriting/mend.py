"""Files whose types are at odds, as converters to float16 write them, mended where that is sure.

ONNX Runtime refuses them. What operators and initializers say is right: value_info, inputs with a
default and inputs of bodies are declared anew. A node that is given two types where it takes one,
or one that it does not take, computes in float32 and gives the type that the file records. Where
other types contradict each other the file is refused here, with the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onnx import ValueInfoProto

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.elements import element, tensor
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.infer import FlatTypes, infer
from amp_rewrite.graph.ports import ports_of
from amp_rewrite.rewriting.clashes import (
    DENSE,
    LOW_TYPES,
    WIDE,
    Clash,
    admitted_types,
    clashes_of,
    makes,
    reads,
)
from amp_rewrite.rewriting.mend_inputs import retyping_graph, with_casts, with_low_inputs
from amp_rewrite.rewriting.mend_scales import rounded_scales
from amp_rewrite.rewriting.paint.passes.keep_batch_norms import product_before
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedCast, Use


@dataclass(frozen=True, slots=True)
class Odd:
    """Something in a file whose types are at odds.

    Attributes:
        name: The node, or the input of the model.
        op: Its operator, or "input".
        value: The value whose declaration is wrong, or "" if the node reads two types.
        types: What it is declared as, or the types that the node reads; one that its operator does
            not take, or two of which it takes one. A node that stood in the file twice has none.
        scales: Of a Resize whose scales were rounded to float16, what they are and were.
    """

    name: str
    op: str
    value: str
    types: tuple[str, ...]
    scales: str = ""


@dataclass(frozen=True)
class Mended:
    """A model whose types agree, what was at odds before, and how many Casts were added."""

    flat: FlatGraph
    odd: tuple[Odd, ...] = ()
    casts: int = 0


def mend_types(flat: FlatGraph) -> Mended:
    """Let values inside a model be declared as what they are, and every operator read one type.

    Raises:
        GraphError: An operator reads types that float32 cannot stand for, or an output of the model
            is declared as another type than it has.
    """
    odd = [*_repeated(flat), *_initializers(flat)]
    if scales := rounded_scales(flat):
        odd += [Odd(*_named(flat, node), "", (), told) for node, _, told in scales]
        flat = with_casts(flat, CastPlan(FLOAT32, weights=tuple(weight for _, weight, _ in scales)))
    types = infer(flat)
    clashes = clashes_of(flat, types)
    casts = 0
    if clashes:
        odd += [Odd(*_named(flat, c.node), "", c.types) for c in clashes]
        flat, casts = with_low_inputs(flat, types, clashes)
        types = infer(flat)
        plan = casts_around(flat, types, clashes_of(flat, types))
        if plan.casts:
            casts, flat = casts + len(plan.casts), with_casts(flat, plan)
            types = infer(flat)
        for clash in clashes_of(flat, types):
            raise _refused(flat, clash)
    odd += _declarations(flat, types)
    return Mended(flat, tuple(odd), casts)


def _declarations(flat: FlatGraph, types: FlatTypes) -> Iterator[Odd]:
    """Declare values as what they are; yield those that were not."""
    ends = {*flat.main.outputs}
    for value, (computed, recorded) in enumerate(zip(types, flat.recorded, strict=True)):
        if computed is None or recorded is None or computed == recorded:
            continue
        if not (computed.startswith(DENSE) and recorded.startswith(DENSE)):
            continue
        if flat.home[value] == MAIN and value in ends:
            raise GraphError(
                "an output of the model has another type than the file declares",
                where=f"output {flat.value_names[value]!r}",
                found=f"{recorded} declared, {computed} computed",
                remedy="export the model again, or declare the type that it has",
            )
        body = flat.bodies[flat.home[value]]
        if body.owner != ABSENT and value in body.inputs:
            _declare(flat, value, computed)
            yield Odd(*_named(flat, body.owner), flat.value_names[value], (recorded,))
        elif flat.producer[value] != ABSENT:
            _declare(flat, value, computed)
            named = _named(flat, flat.producer[value])
            yield Odd(*named, flat.value_names[value], (recorded,))


def _repeated(flat: FlatGraph) -> Iterator[Odd]:
    """Yield the nodes that stood in the file twice; they were removed when it was read."""
    names = {*flat.mended.doubled}
    for value, name in enumerate(flat.value_names) if names else ():
        if name in names and flat.producer[value] != ABSENT:
            yield Odd(*_named(flat, flat.producer[value]), "", ())


def _initializers(flat: FlatGraph) -> Iterator[Odd]:
    """Declare initializers as what they are; yield those that were not."""
    for body in flat.bodies:
        for value in body.initializers:
            held, recorded = flat.tensors.get(value), flat.recorded[value]
            type_ = None if held is None else tensor(held.dtype)
            if type_ is None or value not in flat.declared:
                continue
            name, info = flat.value_names[value], flat.declared[value].info
            if recorded != type_:
                _declare(flat, value, type_)
                yield Odd(name, "input", name, () if recorded is None else (recorded,))
            elif info is not None and info.type.tensor_type.elem_type not in (0, element(type_)):
                told = tensor(info.type.tensor_type.elem_type)
                _declare(flat, value, type_)
                yield Odd(name, "initializer", name, (told,))


def _named(flat: FlatGraph, node: int) -> tuple[str, str]:
    return flat.node_names[node], flat.called(node).op_type


def _declare(flat: FlatGraph, value: int, type_: str) -> None:
    entry = flat.declared[value]
    roles = {
        role: _retyped(message, type_)
        for role in ("input", "output", "info", "latest")
        if (message := getattr(entry, role)) is not None
    }
    again = tuple(_retyped(message, type_) for message in entry.again)
    flat.declared[value] = replace(entry, **roles, again=again)
    flat.recorded[value] = type_


def _retyped(message: ValueInfoProto, type_: str) -> ValueInfoProto:
    """Return a declaration with another element type."""
    copied = ValueInfoProto()
    copied.CopyFrom(message)
    copied.type.tensor_type.elem_type = element(type_) or 0
    return copied


def _refused(flat: FlatGraph, clash: Clash) -> GraphError:
    name, op = _named(flat, clash.node)
    return GraphError(
        "a node reads two types where its operator takes one"
        if len(clash.types) > 1
        else "a node reads a type that its operator does not take",
        where=f"node {name!r} ({op})",
        found=" and ".join(clash.types),
        remedy="insert a Cast, or export the model again",
    )


def casts_around(flat: FlatGraph, types: FlatTypes, clashes: Sequence[Clash]) -> CastPlan:
    """Return the plan by which nodes compute in float32, and what they give stays what it was.

    Raises:
        GraphError: A node is given something else than float32 and 16-bit types, or its operator
            takes no float32.
    """
    wide: dict[int, list[Use]] = {}
    narrowed: dict[int, DType] = {}
    for clash in clashes:
        schema = clash.ports.schema
        admitted = () if schema is None else admitted_types(schema, clash.variable)
        if not {*clash.types} <= {WIDE, *LOW_TYPES} or WIDE not in admitted:
            raise _refused(flat, clash)
        for index, value in reads(flat, clash):
            if types[value] in LOW_TYPES:
                wide.setdefault(value, []).append(Use(clash.node, index))
        ends = makes(flat, clash)
        narrowed |= {v: LOW_TYPES[type_] for v in ends if (type_ := types[v] or "") in LOW_TYPES}
    rounding = [value for value in wide if _rounds(flat, types, value)]
    narrowed |= {value: LOW_TYPES[types[value] or ""] for value in rounding}
    names = AddedNames((*flat.value_names, *flat.node_names))
    casts = [
        PlannedCast(v, FLOAT32, tuple(uses), names.cast(flat.value_names[v], FLOAT32))
        for v, uses in wide.items()
        if v not in narrowed
    ]
    results = _results(flat) if narrowed else {}
    for value, dtype in narrowed.items():
        own = {(use.node, use.index) for use in wide.get(value, ())}  # they read float32 now
        read = (Use(flat.reader(slot), flat.index(slot)) for slot in flat.uses(value))
        uses = tuple(use for use in read if (use.node, use.index) not in own)
        uses += tuple(results.get(value, ()))
        if uses:
            name = names.cast(flat.value_names[value], dtype)
            casts.append(PlannedCast(value, dtype, uses, name))
    inner = {
        cast.value: names.inner(flat.value_names[cast.value], FLOAT32)
        for cast in casts
        if any(use.body == MAIN for use in cast.uses)
    }
    graph = retyping_graph(flat) if rounding else None
    made = [graph.source[value] for value in rounding] if graph is not None else []
    return CastPlan(FLOAT32, tuple(casts), (), tuple(made), retyped=tuple(narrowed), inner=inner)


def _rounds(flat: FlatGraph, types: FlatTypes, value: int) -> bool:
    """Tell whether a Cast of another type to 16 bits makes a value: 3,001 is 3,000 behind it."""
    node = flat.producer[value]
    is_cast = node != ABSENT and flat.called(node)[:2] == ("", "Cast")
    return is_cast and types[flat.inputs_of(node)[0]] not in LOW_TYPES


def _results(flat: FlatGraph) -> dict[int, list[Use]]:
    """Return, by value, the graphs whose outputs it is."""
    uses_of: dict[int, list[Use]] = {}
    for number, body in enumerate(flat.bodies):
        for index, value in enumerate(body.outputs):
            uses_of.setdefault(value, []).append(Use(ABSENT, index, number))
    return uses_of


def with_wide_norms(flat: FlatGraph, low: DType) -> tuple[FlatGraph, int]:
    """Return a model without low BatchNormalizations that ONNX Runtime would fuse into a MatMul.

    They compute in float32; the number is that of the Casts. No ONNX Runtime loads the file as it
    came, which is why a rewrite does not leave these as they are.
    """
    nodes = [*flat.nodes_of("BatchNormalization")]
    if not nodes:
        return flat, 0
    types = infer(flat)
    clashes = [clash for node in nodes if (clash := _mixed(flat, types, node, low)) is not None]
    if not clashes:
        return flat, 0
    plan = casts_around(flat, types, clashes)
    return with_casts(flat, plan), len(plan.casts)


def _mixed(flat: FlatGraph, types: FlatTypes, node: int, low: DType) -> Clash | None:
    """Return the type of a node's data, if it is low and that of its constants is float32."""
    inputs, called = flat.inputs_of(node), flat.called(node)
    own = tensor(low.number)
    if called.domain or ABSENT in inputs or types[inputs[0]] != own:
        return None
    if WIDE not in {types[value] for value in inputs[1:]}:
        return None
    product = product_before(flat, node)
    if product == ABSENT or types[flat.outputs_of(product)[0]] != own:
        return None
    count = len(flat.outputs_of(node))
    ports = ports_of(called.domain, called.op_type, flat.opset_of(node), len(inputs), count)
    return None if ports.schema is None else Clash(node, ports.inputs[0], ports, (own,))
