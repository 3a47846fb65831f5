"""The page's tables of nodes say what the report says."""

from __future__ import annotations

import pytest
from page_models import BRANCHES, result_of

from amp_rewrite.page.node_table import (
    KEPT,
    LOW,
    MIXED,
    NONE,
    OTHER,
    Strings,
    precision_of,
    tabulate_nodes,
)
from amp_rewrite.rewriting.report.records import NodeRecord, VariableRecord


def node(*types: str) -> NodeRecord:
    variables = {
        f"T{i}": VariableRecord(dtype, "allow-list", None, None) for i, dtype in enumerate(types)
    }
    return NodeRecord("n", "Relu", "", "", "clear", variables)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), OTHER),
        (("float16",), LOW),
        (("float32",), KEPT),
        (("float16", "float32"), MIXED),
        (("bfloat16", "bfloat16"), LOW),
    ],
)
def test_the_precision_of_a_node_is_that_of_its_variables(
    types: tuple[str, ...], expected: int
) -> None:
    assert precision_of(node(*types)) == expected


def test_every_variable_of_the_report_has_a_row_and_leads_to_its_origin() -> None:
    report, strings = result_of(BRANCHES).report, Strings()
    table = tabulate_nodes(report, strings)
    rows, start = table.variables, table.nodes["start"]
    named: list[str] = []
    for number, record in enumerate(report.nodes):
        assert strings.texts[table.nodes["name"][number]] == record.name
        span = range(start[number], start[number + 1])
        assert [strings.texts[rows["name"][r]] for r in span] == list(record.variables)
        named += [f"{record.name}/{name}" for name in record.variables]
    because = [v.because for n in report.nodes for v in n.variables.values()]
    found = [None if row == NONE else named[row] for row in rows["because"]]
    assert found == because
    assert any(because)
