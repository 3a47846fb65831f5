"""The CI check: the built-in lists hold, and everything it promises to find is found."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml

from amp_rewrite.graph.schemas import CONTRIB_DOMAIN, names
from amp_rewrite.oplists.list_check.check import (
    CheckReport,
    Finding,
    Severity,
    check_lists,
)
from amp_rewrite.targets import DATA

ROOT = Path(__file__).parents[3]
BASE = "version: 1\nprecision: float16\ntarget: cuda\nextend: float16_cuda\n"


def check(folder: Path, text: str) -> CheckReport:
    path = folder / "mine.yaml"
    path.write_text(text, "utf-8")
    return check_lists(path)


def save_model(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def messages(report: CheckReport) -> list[str]:
    return [f.message for f in report.findings]


def test_the_built_in_lists_hold() -> None:
    report = check_lists()
    assert report.findings == ()
    assert report.lists == (
        "lists/bfloat16_cpu.yaml",
        "lists/bfloat16_cuda.yaml",
        "lists/bfloat16_openvino.yaml",
        "lists/bfloat16_tensorrt.yaml",
        "lists/float16_cpu.yaml",
        "lists/float16_cpu-arm64.yaml",
        "lists/float16_cuda.yaml",
        "lists/float16_directml.yaml",
        "lists/float16_tensorrt.yaml",
        "lists/float16_webgpu.yaml",
    )
    assert report.exit_status == 0
    assert report.to_text() == "10 lists and no models checked: no errors, no warnings"
    assert report.to_github() == ""


def test_an_operator_that_was_left_out_is_named(tmp_path: Path) -> None:
    text = (ROOT / "lists" / "float16_cuda.yaml").read_text("utf-8")
    report = check(tmp_path, text.replace("ops: [Softmax, LogSoftmax]", "ops: [Softmax]"))
    assert not report.ok
    assert messages(report)[0].startswith("1 operators with floats are on no list: LogSoftmax;")
    assert report.findings[0].where == f"{tmp_path / 'mine.yaml'}:1"


def test_an_operator_on_two_lists_is_found_with_its_line(tmp_path: Path) -> None:
    report = check(tmp_path, BASE + "deny:\n  - {op: MatMul, why: w}\n")
    assert [f.line for f in report.findings] == [6]
    assert messages(report)[0].startswith(
        "conflicting entries: MatMul is on the allow list (lists/"
    )


def test_every_mistake_of_a_file_is_reported_not_only_the_first(tmp_path: Path) -> None:
    text = BASE + "allow:\n  - {op: Matmul, why: w}\n  - {op: Sin, since: 99, why: w}\nx: 1\n"
    report = check(tmp_path, text)
    assert sorted(f.line or 0 for f in report.findings) == [6, 7, 8]
    assert report.exit_status == 1


def test_an_entry_without_a_kernel_must_say_why(tmp_path: Path) -> None:
    text = BASE + "clear:\n  - {op: Hardmax, why: w}\n"
    report = check(tmp_path, text)
    expected = (
        "Hardmax is on the clear list, but CUDAExecutionProvider 1.31.1 has no float16 kernel"
    )
    assert len(report.findings) == 1
    assert expected in messages(report)[0]
    assert check(tmp_path, text.replace("why: w", "why: w, no_kernel: cpu only")).ok


def test_a_list_that_extends_one_of_another_precision_is_what_errors_are_about(
    tmp_path: Path,
) -> None:
    report = check(tmp_path, BASE.replace("extend: float16", "extend: bfloat16"))
    assert {finding.file for finding in report.findings} == {str(tmp_path / "mine.yaml")}
    assert re.search(r"the allow list \(lists/float16_cuda.yaml:\d+\), but", messages(report)[0])


def test_a_rule_about_a_node_that_the_model_does_not_have_is_a_warning(tmp_path: Path) -> None:
    body = "g (float[2] x) => (float[2] y) { [first] h = Relu(x) [last] y = Relu(h) }"
    model = save_model(tmp_path, f'<ir_version: 10, opset_import: ["": 18]> {body}')
    rules = "nodes:\n  - {node: last, list: deny, why: w}\n  - {node: lst, list: deny, why: w}\n"
    (tmp_path / "mine.yaml").write_text(BASE + rules)
    [finding] = check_lists(tmp_path / "mine.yaml", models=[model]).findings
    assert (finding.severity, finding.line) == (Severity.WARNING, 7)
    assert "has no node or module 'lst'; expected 'last'" in finding.message


def test_the_installed_runtime_has_no_operator_that_the_lists_miss() -> None:
    state: Any = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = [s for s in state.get_all_operator_schema() if s.domain == CONTRIB_DOMAIN]
    made_from = json.loads((DATA / "schemas" / f"{CONTRIB_DOMAIN}.json").read_text("utf-8"))
    if made_from["runtime"] != f"onnxruntime {version('onnxruntime')}":
        pytest.skip("a runtime that is newer than the table of schemas")
    assert {s.name for s in schemas} == names(CONTRIB_DOMAIN)


def test_a_model_of_known_operators_passes(tmp_path: Path) -> None:
    model = save_model(
        tmp_path,
        '<ir_version: 10, opset_import: ["": 18]> g (float[2, 2] x, bool[2, 2] c)'
        " => (float[2, 2] y) { a = MatMul(x, x) n = Not(c) y = Where(n, a, x) }",
    )
    report = check_lists("float16_cuda", models=[model])
    assert report.ok
    assert report.models == (str(model),)
    assert "1 list and 1 model checked" in report.to_text()


def test_a_custom_operator_fails_until_a_list_says_to_leave_it_alone(tmp_path: Path) -> None:
    model = save_model(
        tmp_path,
        '<ir_version: 10, opset_import: ["": 18, "my": 1]> g (float[2] x) => (float[2] y)'
        " { y = my.Foo(x) }",
    )
    report = check_lists(models=[model])
    assert (
        "operator my::Foo (opset 1, 1 times, first in node 'Foo_0'): no list knows it"
        in messages(report)[0]
    )
    assert report.findings[0].file == str(model)
    known = tmp_path / "mine.yaml"
    known.write_text(BASE + "unlisted:\n  - {op: Foo, domain: my, why: ours}\n")
    assert check_lists(known, models=[model]).ok


def test_subgraphs_and_functions_are_searched_but_their_calls_are_not_unknown(
    tmp_path: Path,
) -> None:
    model = save_model(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 18, "f": 1, "my": 1]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <then_branch = t () => (float[2] u) { u = my.Deep(x) },
                      else_branch = e () => (float[2] v) { v = f.Call(x) }>
        }
        <domain: "f", opset_import: ["": 18, "my": 1]>
        Call (a) => (b) { b = my.Inner(a) }""",
    )
    report = check_lists("float16_cuda", models=[model])
    assert sorted(m.split()[1] for m in messages(report)) == ["my::Deep", "my::Inner"]


def test_an_opset_or_attribute_that_no_entry_covers_is_found(tmp_path: Path) -> None:
    lists = tmp_path / "mine.yaml"
    lists.write_text(
        BASE + "remove:\n  - {op: Resize}\nclear:\n  - {op: Resize, when: {mode: linear}, why: w}\n"
    )
    text = (
        '<ir_version: 8, opset_import: ["": 18]> g (float[1, 1, 2, 2] x, float[4] s)'
        ' => (float[1, 1, 4, 4] y) {{ y = Resize <mode = "{}"> (x, , s) }}'
    )
    assert check_lists(lists, models=[save_model(tmp_path, text.format("linear"))]).ok
    report = check_lists(lists, models=[save_model(tmp_path, text.format("cubic"))])
    assert "operator Resize (opset 18, 1 times" in messages(report)[0]


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"hello", None])
def test_an_unreadable_model_is_a_finding(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    report = check_lists("float16_cuda", models=[path])
    assert len(report.findings) == 1
    assert messages(report)[0].startswith("the model cannot be read: ")


def test_json_and_github_carry_the_same_findings() -> None:
    finding = Finding.at("a,b/l.yaml:3", "50% wrong\nhere")
    model = Finding(Severity.WARNING, "m.onnx", None, "odd")
    report = CheckReport(("l",), ("m.onnx",), (finding, model))
    assert json.loads(report.to_json()) == {
        "version": 1,
        "ok": False,
        "lists": ["l"],
        "models": ["m.onnx"],
        "findings": [
            {"severity": "error", "file": "a,b/l.yaml", "line": 3, "message": "50% wrong\nhere"},
            {"severity": "warning", "file": "m.onnx", "line": None, "message": "odd"},
        ],
    }
    assert report.to_github().splitlines() == [
        "::error file=a%2Cb/l.yaml,line=3,title=amp-rewrite check-lists::50%25 wrong%0Ahere",
        "::warning file=m.onnx,title=amp-rewrite check-lists::odd",
    ]


def test_the_pre_commit_hooks_and_the_action_call_the_command() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert {h["id"]: h["entry"] for h in hooks} == {
        "amp-rewrite-check-lists": "amp-rewrite check-lists",
        "amp-rewrite-check-models": "amp-rewrite check-lists",
        "amp-rewrite-verify-models": "amp-rewrite check --format text",
    }
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    lists, models = (step["run"] for step in action["runs"]["steps"][-2:])
    assert "amp-rewrite check-lists --format github" in lists
    assert "amp-rewrite check " in models
    script = lists + models
    assert "${{" not in script  # inputs reach the shell as variables only


@pytest.mark.parametrize(
    ("base", "checked"),
    [
        ("HEAD~1", ["new.onnx"]),
        ("", ["new.onnx", "old.onnx"]),
        ("0" * 40, ["new.onnx", "old.onnx"]),
    ],
)
def test_the_action_checks_changed_models_or_all_where_nothing_can_be_compared(
    base: str, checked: list[str], tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    for name in ("old.onnx", "new.onnx"):
        (tmp_path / name).write_text(name, "utf-8")
        git("add", name)
        git("commit", "-qm", name)
    program = tmp_path / "bin" / "amp-rewrite"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > called\n', "utf-8")
    program.chmod(0o755)
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", action["runs"]["steps"][-1]["run"]],
        cwd=tmp_path,
        env={
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "CHECKED": "changed",
            "TARGET": "",
            "BASE": git("rev-parse", base) if base == "HEAD~1" else base,
            "GITHUB_STEP_SUMMARY": "summary.txt",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    called = (tmp_path / "called").read_text("utf-8").splitlines()
    assert called[called.index("--") + 1 :] == checked
    assert ("every model" in done.stdout) == (len(checked) == 2)
