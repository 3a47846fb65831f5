"""The tables of results in Markdown, as benchmarks print them and docs/measured.md shows them."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import openvino_table
from markdown_table import markdown, ratios, spread
from results import Results, Row

PEER = "onnxruntime"
"""The tool whose time the others' are divided by."""
ORIGINAL = "original"
"""The tool that converts nothing."""

TOOLS = {
    ORIGINAL: "the float32 model",
    "amp_rewrite_webgpu": "amp_rewrite, target webgpu",
    "onnxruntime": "ONNX Runtime's float16 tool",
    "onnxruntime, repaired": "ONNX Runtime's float16 tool, repaired",
    "floor": "copying and numpy",
    "autocast": "AutoCast",
}
"""Tool -> what a table calls it; others by their name."""
MICRO = 1e6


def _of(rows: Sequence[Row], **facts: str) -> Row:
    """Return the row with these facts; one without figures if there is none."""
    found = [row for row in rows if all(row.get(key) == facts[key] for key in facts)]
    return found[0] if found else {"cpu": [], "wall": [], "peak": []}


def _figures(row: Row) -> Row:
    """Return a row of which a failure left nothing to show."""
    return {**row, "cpu": [], "wall": [], "peak": []} if row["error"] else row


def _said(row: Row, fact: str) -> str:
    """Return "yes", "no" for what a judge said instead, or "" if it was not asked."""
    verdict = row.get(fact, "not tried")
    return {"yes": "yes", "not tried": ""}.get(verdict, "no")


def rewrite(rows: Sequence[Row]) -> str:
    """Return the table of conversions, and how near to the floor they come."""
    lines: list[list[object]] = []
    previous = ""
    for row in map(_figures, rows):
        peer = _of(rows, model=row["model"], tool=PEER)
        first = row["model"] != previous
        lines.append(
            [
                f"{row['model']}, {row['nodes']:,} nodes" if first else "",
                TOOLS.get(row["tool"], row["tool"]),
                spread(row["cpu"]) or f"failed: {row['error'][:60]}",
                spread(ratios(row["cpu"], peer["cpu"])),
                spread(row["peak"], 0),
                f"{row.get('size', 0):.1f}",
                _said(row, "checker"),
                _said(row, "loads"),
            ]
        )
        previous = row["model"]
    head = "model | tool | CPU s | of ONNX Runtime's | peak MiB | output MiB | checker | loads"
    return "\n\n".join([markdown(head, lines), *_floors(rows)])


def _floors(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for every model with a floor: wall times divided by it."""
    found: list[str] = []
    for floor in (row for row in rows if row["tool"] == "floor"):
        others = [r for r in rows if r["model"] == floor["model"] and r["tool"] != "floor"]
        times = ", ".join(
            f"{TOOLS.get(row['tool'], row['tool'])} {spread(ratios(row['wall'], floor['wall']))}"
            for row in map(_figures, others)
        )
        found.append(f"Elapsed time of {floor['model']} by that of copying and numpy: {times}.")
    return found


def summary(rows: Sequence[Row]) -> str:
    """Return what the README shows of the conversions: medians, without ONNX Runtime's tool."""
    lines: list[list[object]] = []
    for model in ("big3g", "resnet50_rand", "silero_v6"):
        for tool in ("amp_rewrite", "onnxconverter-common"):
            row = _of(rows, model=model, tool=tool)
            name = {"big3g": "3 GiB of weights", "silero_v6": "silero_v6 (25 nested If)"}
            lines.append(
                [
                    name.get(model, model) if tool == "amp_rewrite" else "",
                    tool,
                    f"{median(row['cpu']):.2f}",
                    f"{median(row['peak']):.0f}",
                    f"{row['size']:.1f}",
                    _said(row, "checker"),
                ]
            )
    return markdown("model | tool | CPU s | peak MiB | output MiB | valid", lines)


def scaling(rows: Sequence[Row]) -> str:
    """Return the table of times by nodes."""
    lines: list[list[object]] = []
    for row in map(_figures, rows):
        chain = _of(rows, model="chain100k", tool=row["tool"])
        measured = row["model"] != "chain8"
        lines.append(
            [
                row["model"],
                f"{row['nodes']:,}",
                TOOLS.get(row["tool"], row["tool"]),
                spread(row["cpu"]) or f"failed: {row['error'][:60]}",
                spread(row["peak"], 0),
                spread(_by_nodes(row, rows), 0) if measured else "",
                spread(ratios(_by_nodes(row, rows), _by_nodes(chain, rows))) if measured else "",
            ]
        )
    head = "model | nodes | tool | CPU s | peak MiB | microseconds a node | of chain100k's"
    return markdown(head, lines)


def _by_nodes(row: Row, rows: Sequence[Row]) -> list[float]:
    """Return the microseconds a node of every round, without what chain8 costs."""
    if not row["cpu"]:
        return []
    start = median(_of(rows, model="chain8", tool=row["tool"])["cpu"] or [0.0])
    return [(cpu - start) / row["nodes"] * MICRO for cpu in row["cpu"]]


def startup(rows: Sequence[Row]) -> str:
    """Return the table of whole processes."""
    peer = _of(rows, process=PEER)
    lines = [
        [
            TOOLS.get(row["process"], row["process"]),
            spread(row["cpu"]) or f"failed: {row['error'][:60]}",
            spread(ratios(row["cpu"], peer["cpu"])),
            spread(row["wall"]),
            spread(row["peak"], 0),
        ]
        for row in map(_figures, rows)
    ]
    return markdown("process | CPU s | of ONNX Runtime's | wall s | peak MiB", lines)


def train(rows: Sequence[Row]) -> str:
    """Return the table of training steps beside PyTorch's; of more engines, a column for each."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    if set(tools) != {"ours", "torch"}:
        return _engines(rows, tools)
    lines: list[list[object]] = []
    for name in dict.fromkeys(row["network"] for row in rows):
        ours, torch = (_of(rows, network=name, tool=tool) for tool in ("ours", "torch"))
        lines.append(
            [
                name,
                spread(ours["ms"], 1),
                spread(torch["ms"], 1),
                spread(ratios(torch["ms"], ours["ms"])),
                spread(ours["peak"], 0),
                spread(torch["peak"], 0),
            ]
        )
    head = "network | step, ms | PyTorch, ms | PyTorch's by ours | peak MiB | PyTorch, peak MiB"
    return markdown(head, lines)


def _engines(rows: Sequence[Row], tools: Sequence[str]) -> str:
    """Return milliseconds and peak memory of every tool, and the best of PyTorch by ours."""
    peers = [tool for tool in tools if tool.startswith("torch")]
    lines: list[list[object]] = []
    for name in dict.fromkeys(row["network"] for row in rows):
        own = {tool: _of(rows, network=name, tool=tool) for tool in tools}
        cells = [_cell(row) for row in own.values()]
        best = {t: median(own[t]["ms"]) for t in tools if own[t].get("ms")}
        torch = min((best[t] for t in peers if t in best), default=None)
        mine = min((ms for t, ms in best.items() if t not in peers), default=None)
        lines.append([name, *cells, f"{torch / mine:.2f}" if torch and mine else ""])
    head = [f"{TOOLS.get(tool, tool)}, ms; peak MiB" for tool in tools]
    return markdown(" | ".join(["network", *head, "PyTorch's best by ours"]), lines)


def _cell(row: Row) -> str:
    if "stopped" in row:
        return f"did not end in {row['stopped']} s"
    return f"{spread(row['ms'], 1)}; {spread(row['peak'], 0)}" if row.get("ms") else ""


def layers(rows: Sequence[Row]) -> str:
    """Return the table of the times that building a step takes."""
    parts = ("minimize", "session", "first step", "total")
    lines = [
        [row["precision"], row["layers"], *(spread(row.get(part, [])) for part in parts)]
        for row in rows
    ]
    return markdown(f"precision | layers | {' | '.join(f'{part}, s' for part in parts)}", lines)


def exported(rows: Sequence[Row]) -> str:
    """Return the table of exported models: the worse of the exporters, on short and hard inputs."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    lines: list[list[object]] = []
    for network, precision in dict.fromkeys((row["model"], row["precision"]) for row in rows):
        of = [r for r in rows if r["model"] == network and r["precision"] == precision]
        cells = [_cosines([row for row in of if row["tool"] == tool]) for tool in tools]
        lines.append([network, precision, *cells])
    names = " | ".join(str(TOOLS.get(tool, tool)) for tool in tools)
    return markdown(f"network | precision | {names}", lines)


def _cosines(rows: Sequence[Row]) -> str:
    """Return a cell: cosines on short and on hard inputs, and what is not as it should be."""
    ran = [row["cosine"] for row in rows if not row["error"]]
    short = [found["short"] for found in ran]
    hard = [cosine for found in ran for case, cosine in found.items() if case != "short"]
    share = min((row["low"] / row["products"] for row in rows if not row["error"]), default=1)
    texts = [f"{_least(short)} / {_least(hard)}"] if ran else []
    if share < 1:
        texts.append(f"{share:.0%} low")
    if len(ran) < len(rows):
        texts.append(f"{len(ran)} of {len(rows)} run")
    if any(_said(row, "checker") != "yes" for row in rows if not row["error"]):
        texts.append("not valid")
    return ", ".join(texts)


def _least(cosines: Sequence[float | None]) -> str:
    """Return the least cosine; None is one that is not finite."""
    found = [cosine for cosine in cosines if cosine is not None]
    return f"{min(found):.5f}" if len(found) == len(cosines) else "not finite"


def convergence(rows: Sequence[Row]) -> str:
    """Return how far bfloat16 is from float32, and what a training without a loss scale leaves."""
    trained = [row for row in rows if "losses" in row]
    lines = [
        [row["training"], row["low, %"], *row["losses"], *row["apart, %"], *row["accuracies, %"]]
        for row in trained
    ]
    kinds = ("float32", "bfloat16", "PyTorch autocast")
    kinds = kinds[: len(trained[0]["losses"])] if trained else kinds
    head = [
        *("training", "low, %"),
        *(f"loss, {kind}" for kind in kinds),
        *(f"curves apart, {kind}, %" for kind in kinds[1:]),
        *(f"accuracy, {kind}, %" for kind in kinds),
    ]
    left = [[row["training"], row["loss left, %"]] for row in rows if "loss left, %" in row]
    tables = [markdown(" | ".join(head), lines)] if lines else []
    return "\n\n".join([*tables, *([markdown("training | loss left, %", left)] if left else [])])


JUDGES = {
    "checker": "valid",
    "loads": "loads on a CPU",
    "cuda": "placed on CUDA",
    "tensorrt": "parsed by TensorRT",
    "webgpu": "runs on WebGPU",
    "taken": "taken by `check` and `verify`",
    "emulated": "emulated",
}
"""What a judge's verdict is called in a row -> in the table."""


def judges(rows: Sequence[Row]) -> str:
    """Return how many models of each converter pass each judge."""
    asked = [fact for fact in JUDGES if any(fact in row for row in rows)]
    lines: list[list[object]] = []
    for tool in dict.fromkeys(row["tool"] for row in rows):
        of = [row for row in rows if row["tool"] == tool]
        done = [row for row in of if not row["error"]]
        passed = [sum(_said(row, fact) == "yes" for row in done) for fact in asked]
        cosines = [row["cosine"] for row in done if row.get("cosine") is not None]
        near = sum(cosine >= _NEAR for cosine in cosines)
        times = [row["seconds"] for row in done if "seconds" in row]
        seconds = f"{median(times):.1f}" if times else ""
        converted = "" if tool == ORIGINAL else f"{len(done)} of {len(of)}"
        cells = [TOOLS.get(tool, tool), converted, *passed]
        lines.append([*cells, len(cosines), near, seconds])
    names = " | ".join(JUDGES[fact] for fact in asked)
    return markdown(
        f"converter | converted | {names} | finite | cosine at least {_NEAR} | median s", lines
    )


_NEAR = 0.999


def torch(rows: Sequence[Row]) -> str:
    """Return the errors of gradients and of losses beside PyTorch's."""
    columns = ("gradient", "momentum", "adam", "adamw")
    lines = [
        [row["network"], row["exporter"], *(f"{row[column]:.0e}" for column in columns)]
        for row in rows
    ]
    head = "network | exporter | first gradient | 20 steps of momentum | of Adam | of AdamW"
    return markdown(head, lines)


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "rewrite": rewrite,
    "scaling": scaling,
    "startup": startup,
    "train": train,
    "layers": layers,
    "exported": exported,
    "judges": judges,
    "torch": torch,
    "openvino": openvino_table.openvino,
    "openvino_batch": openvino_table.openvino,
    "openvino_exported": openvino_table.openvino,
    "convergence": convergence,
}
"""Table, which is also what its results are called -> its text."""


def origin(results: Results) -> str:
    """Return when, where and with which command results were measured."""
    machine = results.machine
    packages = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    processor = ", ".join((machine["cpu"], *machine.get("instructions", ())))
    text = (
        f"`python benchmarks/bench.py {results.command}` measured this on {results.date}, on "
        f"{machine['cores']} cores ({processor}), with Python {machine['python']}, {packages}."
    )
    return textwrap.fill(text, 128, break_on_hyphens=False)


def report(
    table: str,
    words: Sequence[str],
    rows: list[Row],
    path: Path | None,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Print a table and its origin, and write its results if a path is given.

    Args:
        table: A key of TABLES.
        words: The command line behind `bench.py`.
        rows: What was measured.
        path: The file to write; None for none.
        versions: Package -> its version, of those that another interpreter has.
    """
    results = Results.of(shlex.join(words), rows, versions or {})
    print(TABLES[table](rows))
    print(origin(results))
    if path is not None:
        results.write(path)
