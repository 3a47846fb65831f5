"""Files whose types are at odds, as converters to float16 write them, mended where that is sure.

ONNX Runtime refuses a file in which value_info says another type of a value than its operator
gives, or an input another one than the initializer behind it has. What operators and initializers
say is right: nothing else reads value_info. Where operators contradict each other there is nothing
to go by, and the file is refused here, with the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import ValueInfoProto

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.elements import element, tensor
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.infer import FlatTypes, infer
from amp_rewrite.graph.ports import ports_of
from amp_rewrite.graph.proto.flat_proto import FlatProto

_DENSE = "tensor("


def mend_types(flat: FlatProto) -> tuple[int, ...]:
    """Let values inside a model be declared as what they are; return those that were not.

    Args:
        flat: A model, without functions; it is what the file says, mended, afterwards. Messages
            that were given are not touched.

    Raises:
        GraphError: An operator reads two types where it takes one, or an output of the model is
            declared as another type than it has.
    """
    mended = list(_initializers(flat))
    types = infer(flat)
    check_bindings(flat, types)
    for value, (found, recorded) in enumerate(zip(types, flat.recorded, strict=True)):
        if found is None or recorded is None or found == recorded:
            continue
        if not (found.startswith(_DENSE) and recorded.startswith(_DENSE)):
            continue
        if flat.home[value] == MAIN and value in flat.main.outputs:
            raise GraphError(
                "an output of the model has another type than the file declares",
                where=f"output {flat.value_names[value]!r}",
                found=f"{recorded} declared, {found} computed",
                remedy="export the model again, or declare the type that it has",
            )
        if flat.producer[value] != ABSENT:
            _declare(flat, value, found)
            mended.append(value)
    return tuple(mended)


def _initializers(flat: FlatProto) -> Iterator[int]:
    """Declare graph inputs that have a default as what that is; yield those that were not."""
    for body in flat.bodies:
        for value in body.initializers:
            held = flat.initializer(value)
            type_ = None if held is None else tensor(held.dtype)
            if type_ is not None and flat.recorded[value] != type_ and value in flat.declared:
                _declare(flat, value, type_)
                yield value


def _declare(flat: FlatProto, value: int, type_: str) -> None:
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


def check_bindings(flat: FlatProto, types: FlatTypes) -> None:
    """Refuse a node that reads two types where its operator takes one.

    Raises:
        GraphError: There is one.
    """
    for node in range(flat.n_nodes):
        called, inputs, opset = flat.called(node), flat.inputs_of(node), flat.opset_of(node)
        count = len(flat.outputs_of(node))
        ports = ports_of(called.domain, called.op_type, opset, len(inputs), count)
        if ports.schema is None:
            continue
        bound: dict[str, str] = {}
        for name, value in zip(ports.inputs, inputs, strict=True):
            found = None if value == ABSENT else types[value]
            if found is None or not found.startswith(_DENSE):
                continue
            if bound.setdefault(name, found) != found:
                raise GraphError(
                    "a node reads two types where its operator takes one",
                    where=f"node {flat.node_names[node]!r} ({called.op_type})",
                    found=f"{bound[name]} and {found}",
                    remedy="insert a Cast, or export the model again",
                )
