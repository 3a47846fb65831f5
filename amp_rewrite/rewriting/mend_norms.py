"""A file in 16 bits in which ONNX Runtime would fuse a BatchNormalization into a MatMul.

The pass `keep-batch-norms` keeps such nodes float32 in a model that is made low, and raises them in
one that is repaired. A rewrite leaves what is low already, but for these: no ONNX Runtime loads the
file as it came.
"""

from __future__ import annotations

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import FlatTypes, infer
from amp_rewrite.graph.ports import ports_of
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.clashes import WIDE, Clash
from amp_rewrite.rewriting.mend import casts_around
from amp_rewrite.rewriting.mend_inputs import with_casts
from amp_rewrite.rewriting.paint.batch_norms import product_before


def with_wide_norms(flat: FlatProto, low: DType) -> tuple[FlatProto, int]:
    """Return a model in which such nodes compute in float32, and how many Casts that took.

    What they give has the type that it had.
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


def _mixed(flat: FlatProto, types: FlatTypes, node: int, low: DType) -> Clash | None:
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
