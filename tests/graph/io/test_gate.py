"""What does not keep to the schemas is refused where it enters; what does, passes."""

import json

import onnx
import onnx_ir as ir
import pytest
from onnx import AttributeProto, TensorProto, helper, parser

import amp_rewrite as amp
from amp_rewrite.errors import GraphError, StepError
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import load

HEAD = '<ir_version: 8, opset_import: ["": 17, "own": 1, "com.microsoft": 1]>'
LOOP = """last, all = Loop (n, c, x) <body = b (int64 i, bool k, float[4] v)
            => (bool k2, float[4] v2, float[4] o) {
                k2 = Identity (k)  v2 = Relu (v)  o = Exp (v2) }>"""
SCAN = """last, all = Scan <num_scan_inputs: int = %d, body = b (float[4] v, float[4] e)
            => (float[4] v2, float[4] o) { v2 = Add (v, e)  o = Exp (v2) }> (x, xs)"""


def model(nodes: str, functions: str = "") -> onnx.ModelProto:
    return parser.parse_model(f"""{HEAD}
        g (float[4] x, float[2, 4] xs, int64 n, bool c, float16[4] h) => (float[4] y)
        <float[4] w = {{1, 2, 3, 4}}, int64 one = {{1}}> {{ {nodes} }} {functions}""")


def refused(source: onnx.ModelProto | ir.Model) -> GraphError:
    with pytest.raises(GraphError) as caught:
        load(source)
    assert "\n" not in str(caught.value)
    return caught.value


REFUSED = {
    "unknown attribute": (
        "y = Relu <alpha: float = 1.0> (x)",
        "node 'Relu_0' (Relu): unknown attribute 'alpha'; expected none; export",
    ),
    "attribute of another type": (
        "y = Softmax <axis: float = 1.0> (x)",
        "attribute 'axis' has the wrong type; found FLOAT; expected INT",
    ),
    "missing attribute": ("y = Cast (x)", "attribute 'to' is missing; expected INT"),
    "missing subgraph": (
        "y = If (c) <then_branch = t () => (float[4] a) { a = Relu (x) }>",
        "attribute 'else_branch' is missing; expected GRAPH",
    ),
    "constant without a value": (
        "y = Constant ()",
        "a Constant needs exactly one value; found none",
    ),
    "constant of two values": (
        "y = Constant <value_int: int = 1, value_float: float = 1.0> ()",
        "a Constant needs exactly one value; found value_int and value_float",
    ),
    "too few inputs": ("y = Add (x)", "wrong number of inputs; found 1; expected 2"),
    "too many inputs": (
        "y = Clip (x, w, w, w)",
        "wrong number of inputs; found 4; expected 1 to 3",
    ),
    "no inputs": ("y = Concat <axis: int = 0> ()", "inputs; found 0; expected at least 1"),
    "too many outputs": ("y, z = Relu (x)", "wrong number of outputs; found 2; expected 1"),
    "absent input": ("y = MatMul ( , x)", "node 'MatMul_0' (MatMul): input 'A' is missing"),
    "impossible type": (
        "y = Reshape (x, w)",
        "input 'shape' has an impossible type; found tensor(float); expected tensor(int64)",
    ),
    "two types": (
        "y = Add (x, one)",
        "input 'B' has another type than what enters beside it; "
        "found tensor(int64) and tensor(float); expected one type; cast one of them",
    ),
    "subgraph of a wrong node": (
        "y = Relu <body = b () => (float[4] a) { a = Exp (x) }> (x)",
        "unknown attribute 'body'",
    ),
    "branch with inputs": (
        """y = If (c) <then_branch = t (float[4] i) => (float[4] a) { a = Relu (i) },
                       else_branch = e () => (float[4] a) { a = Exp (x) }>""",
        "attribute 'then_branch': the subgraph does not fit its node; "
        "found 1 inputs and 1 outputs; expected 0 inputs and at least 1 outputs",
    ),
    "branch with too few outputs": (
        """y, z = If (c) <then_branch = t () => (float[4] a) { a = Relu (x) },
                          else_branch = e () => (float[4] a, float[4] a) { a = Exp (x) }>""",
        "expected 0 inputs and at least 2 outputs",
    ),
    "loop that carries too much": (
        LOOP.replace("(n, c, x)", "(n, c, x, x)") + " y = Relu (last)",
        "found 3 inputs and 3 outputs; expected 4 inputs and at least 3 outputs",
    ),
    "scan along nothing": (
        SCAN % 0 + " y = Relu (last)",
        "num_scan_inputs is out of range; found 0; expected 1 to 2",
    ),
    "scan along too much": (SCAN % 3 + " y = Relu (last)", "found 3; expected 1 to 2"),
    "node inside a subgraph": (
        """y = If (c) <then_branch = t () => (float[4] a) { a = Relu <k: int = 1> (x) },
                       else_branch = e () => (float[4] a) { a = Exp (x) }>""",
        "main graph, node 'If_0' (If), attribute 'then_branch', node 'Relu_0' (Relu): unknown",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_that_does_not_keep_to_its_schema_is_refused(name):
    nodes, expected = REFUSED[name]
    assert expected in str(refused(model(nodes)))


ACCEPTED = {
    "unknown operator": "y = NoSuchOperator <a: int = 1> (x)",
    "unknown domain": "y = own.Thing <a: int = 1> ( , x, x)",
    "contrib operator": "y = com.microsoft.BiasGelu <new: int = 1> (x, w, w)",
    "internal attribute": "y = Relu <__hint: int = 1> (x)",
    "absent optional input": "y = Clip (x, , w)",
    "low precision beyond the schema": "y = Round (h)",
    "output left out": LOOP.replace("last, all", "y"),
    "more outputs of branches": """
        y = If (c) <then_branch = t () => (float[4] a, float[4] b) { a = Relu (x)  b = Exp (x) },
                    else_branch = e () => (float[4] a, float[4] b) { a = Exp (x)  b = Exp (x) }>""",
    "scan": SCAN % 1 + " y = Relu (last)",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_a_schema_leaves_open_passes(name):
    proto = model(ACCEPTED[name])
    assert len(load(proto).graph) == len(proto.graph.node)
    assert load(load(proto))


@pytest.mark.parametrize("kind", [AttributeProto.UNDEFINED, AttributeProto.STRING])
def test_an_attribute_of_no_type_is_refused(kind):
    proto = model("y = Softmax <axis: int = 0> (x)")
    proto.graph.node[0].attribute[0].type = kind
    assert "attribute 'axis' has the wrong type; found" in str(refused(proto))


def test_a_type_that_the_file_records_of_a_computed_value_may_be_wrong():
    proto = model("i = Shape (x)  y = Reshape (x, i)")
    proto.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.FLOAT, [1]))
    assert load(proto)


@pytest.mark.parametrize("in_function", [False, True])
def test_an_operator_of_a_domain_that_nothing_imports_is_refused(in_function):
    function = '<domain: "own", opset_import: ["own": 1]> f (a) => (b) { b = Relu (a) }'
    proto = model("y = own.f (x)", function) if in_function else model("y = Relu (x)")
    if not in_function:
        del proto.opset_import[0]
    error = str(refused(proto))
    assert "nothing imports an opset of ai.onnx" in error
    assert ("function own::f" in error) == in_function


FUNCTION = """<domain: "own", opset_import: ["": 17]>
    f <k> (a, b) => (c, d) {
        m = Constant <value_float: float = @k> ()  c = Mul (a, m)  d = Identity (a) }"""
CALLS = {
    "y = own.f <k: float = 1.0> (x, x, x)": "a call has more inputs than the function; found 3",
    "y, z, u = own.f <k: float = 1.0> (x)": "a call has more outputs than the function; found 3",
    "y = own.f <k: int = 1> (x)": "attribute 'k' has the wrong type; found INT; expected FLOAT",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_does_not_fit_its_function_is_refused(call):
    assert CALLS[call] in str(refused(model(call, FUNCTION)))


def test_a_function_may_bear_the_name_of_an_operator_with_subgraphs():
    function = '<domain: "own", opset_import: ["": 17]> Scan (a) => (b) { b = Relu (a) }'
    proto = model("y = own.Scan (x)", function)
    assert not amp.rewrite(proto, target="schema").changed


def test_runtimes_run_the_operator_and_not_a_function_of_its_name():
    function = '<domain: "", opset_import: ["": 17]> Scan (a) => (b) { b = Relu (a) }'
    assert "attribute 'body' is missing" in str(refused(model("y = Scan (x)", function)))


def test_a_call_may_leave_outputs_out_and_is_inlined():
    loaded = load(model("y = own.f <k: float = 2.0> (x)", FUNCTION))
    inline(loaded)
    assert [node.op_type for node in loaded.graph] == ["Constant", "Mul", "Identity"]
    assert loaded.graph.outputs[0].name == "y"


def test_a_call_with_more_outputs_than_the_body_is_refused_when_it_is_inlined():
    loaded = load(model("y = own.f <k: float = 2.0> (x)", FUNCTION))
    call = loaded.graph[0]
    call.resize_outputs(3)
    call.outputs[2].name = "more"
    reader = ir.node("Identity", [call.outputs[2]])
    loaded.graph.append(reader)
    with pytest.raises(GraphError, match="fewer outputs than a call of it; found 2; expected 3"):
        inline(loaded)


@pytest.mark.parametrize(
    ("call", "opset", "expected"),
    [
        ("y = own.f (x)", 17, "a Constant needs exactly one value; found none"),
        ("y = own.f <k: float = 2.0> (x)", 16, "cannot be inlined; found Opset mismatch"),
    ],
)
def test_a_body_that_cannot_stand_in_the_model_is_refused_when_it_is_inlined(call, opset, expected):
    proto = model(call, FUNCTION.replace("17", str(opset)))
    assert load(proto)
    with pytest.raises(GraphError, match=expected):
        amp.rewrite(proto, target="schema", inline_functions=True)


def test_a_subgraph_cannot_come_from_the_caller_of_a_function():
    function = """<domain: "own", opset_import: ["": 17]> f <b> (c) => (d) {
        d = If (c) <then_branch = t () => (float[4] a) { a = Constant <value_float = 1.0> () },
                    else_branch = e () => (float[4] a) { a = Constant <value_float = 1.0> () }> }"""
    proto = model("y = own.f (c)", function)
    attribute = proto.functions[0].node[0].attribute[0]
    attribute.ClearField("g")
    attribute.ref_attr_name = "b"
    assert "expected such references in functions only, and not for graphs" in str(refused(proto))


def test_an_attribute_that_is_a_list_of_graphs_is_refused():
    proto = model("y = own.f <k: float = 1.0> (x)", FUNCTION)
    node = helper.make_node("f", ["a"], ["again"], domain="own")
    body = helper.make_graph([node], "body", [], [onnx.ValueInfoProto(name="again")])
    holder = proto.functions[0].node.add(op_type="Holder", domain="own", output=["h"])
    holder.attribute.append(helper.make_attribute("graphs", [body]))
    assert "the attribute is of a type that no operator has" in str(refused(proto))


def test_a_node_with_metadata_that_the_package_never_writes_is_refused():
    proto = model("y = Relu (x)")
    proto.graph.node[0].metadata_props.add(key="amp_rewrite.part", value="optimiser")
    expected = "name an unknown part; found 'optimiser'; expected loss or"
    error = str(refused(proto))
    assert f"node 'Relu_0' (Relu): the metadata 'amp_rewrite.part' {expected}" in error


STATE = {"name": "x", "output": "y", "role": "variable", "dtype": "float", "shape": [4]}
STEP = {"version": 1, "states": [STATE], "inputs": [], "fetches": {"loss": "y"}}
DESCRIPTIONS = {
    "no JSON": "{",
    "no object": "[]",
    "states": json.dumps(STEP | {"states": 3}),
    "a state": json.dumps(STEP | {"states": [STATE | {"name": 3}]}),
    "a shape": json.dumps(STEP | {"states": [STATE | {"shape": [-1]}]}),
    "inputs": json.dumps(STEP | {"inputs": [1]}),
    "fetches": json.dumps(STEP | {"fetches": ["y"]}),
    "gradients": json.dumps(STEP | {"gradients": {"x": 1}}),
    "loss scale": json.dumps(STEP | {"loss_scale": 1}),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_step_that_describes_itself_in_another_way_is_refused(name):
    proto = model("y = Relu (x)")
    proto.metadata_props.add(key="amp_rewrite.step", value=DESCRIPTIONS[name])
    with pytest.raises(
        StepError, match=r"'amp_rewrite\.step' of the model cannot be read"
    ) as caught:
        load(proto)
    assert "build the step again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_description_of_this_or_of_a_later_version_passes():
    proto = model("y = Relu (x)")
    entry = proto.metadata_props.add(key="amp_rewrite.step", value=json.dumps(STEP))
    assert load(proto)
    entry.value = json.dumps({"version": 2, "states": "elsewhere"})
    assert load(proto)


def test_a_tensor_of_more_dimensions_than_numpy_has_is_refused():
    proto = model("y = Relu (x)")
    proto.graph.initializer.add(name="deep", data_type=1, dims=[0] * 65)
    assert "the tensor has too many dimensions; found 65; expected at most 64" in str(
        refused(proto)
    )


def test_data_in_a_field_of_another_type_are_refused():
    proto = model("y = Relu (x)")
    proto.graph.initializer[0].uint64_data.append(1)
    assert "the data of a tensor are of another type; found entries of uint64_data" in str(
        refused(proto)
    )


def test_an_operator_with_a_subgraph_is_refused_before_the_opset_that_brings_it():
    proto = model(SCAN % 1 + " y = Identity (last)")
    proto.opset_import[0].version = 7
    assert "Scan is not an operator of opset 7; expected a newer opset_import" in str(
        refused(proto)
    )


def test_an_opset_that_onnx_has_no_number_for_is_refused():
    proto = model("y = own.Thing (x)")
    proto.opset_import[1].version = 2**40
    assert "unknown opset of own; found 1099511627776" in str(refused(proto))
