"""The table and the picture of the corpus on OpenVINO."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean, median

from markdown_table import markdown, ratios
from results import Row

FULL, OURS, HINT, ORT = "float32", "amp_rewrite", "hint", "onnxruntime"
TORCH = {"torch": "PyTorch", "torch-autocast": "PyTorch autocast"}
"""Tool -> what the table calls it, where networks were run in PyTorch too."""
SLOWER, BEHIND = 1.03, 1.05
"""What counts as slower than float32, and as slower than the hint."""
_LEAST_MS = 0.03
"""How many milliseconds slower than the better of float32 and hint is more than a call varies."""

Models = dict[str, dict[str, Row]]


def by_model(rows: Iterable[Row]) -> Models:
    """Return model -> tool -> row, of the models that OpenVINO runs in float32."""
    found: Models = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["tool"]] = row
    return {name: of for name, of in found.items() if FULL in of and of[FULL]["ms"]}


def speed(of: dict[str, Row], tool: str) -> float | None:
    """Return float32's time by a tool's: the median of the rounds' ratios; None if it failed."""
    quotients = ratios(of[FULL]["ms"], of[tool]["ms"]) if tool in of else []
    return median(quotients) if quotients else None


def openvino(rows: Sequence[Row]) -> str:
    """Return the table of times and errors, and what it says of all models together."""
    models = by_model(rows)
    torch = {tool: name for tool, name in TORCH.items() if any(tool in m for m in models.values())}
    lines = [_line(name, of, torch) for name, of in models.items()]
    erring = [name for tool, name in torch.items() if tool != "torch"]
    head = [
        *("model", "float32, ms", "ours, ms", "hint, ms", "ONNX Runtime float32, ms"),
        *(f"{name}, ms" for name in torch.values()),
        *("ours, speed", "hint, speed", *(f"{name}, speed" for name in torch.values())),
        *("ours, error", "hint, error", *(f"{name}, error" for name in erring)),
    ]
    left = sorted({row["model"] for row in rows} - models.keys())
    sentences = [_together(models), *_exceptions(models)]
    if torch:
        sentences.append(_beside(models, torch))
    if left:
        sentences.append(f"OpenVINO does not run in float32: {', '.join(left)}.")
    return "\n\n".join([markdown(" | ".join(head), lines), " ".join(sentences)])


def _line(name: str, of: dict[str, Row], torch: Iterable[str]) -> list[object]:
    kept = "" if of.get(OURS, {}).get("low", 1) else " (left as it is)"
    times = [_time(of.get(tool)) for tool in (FULL, OURS, HINT, ORT, *torch)]
    speeds = [speed(of, tool) for tool in (OURS, HINT, *torch)]
    return [
        f"{name}{kept}",
        *times,
        *("" if found is None else f"{found:.2f}" for found in speeds),
        *(_error(of.get(tool)) for tool in (OURS, HINT, *(t for t in torch if t != "torch"))),
    ]


def _beside(models: Models, torch: Mapping[str, str]) -> str:
    """Return a sentence with the times of PyTorch by ours."""
    texts: list[str] = []
    for tool, name in torch.items():
        pairs = [(speed(of, OURS), speed(of, tool)) for of in models.values()]
        quotients = [ours / its for ours, its in pairs if ours and its]
        if quotients:
            texts.append(f"{name} {geometric_mean(quotients):.2f} ({len(quotients)} models)")
    return f"The time by ours, geometric mean: {', '.join(texts) or 'failed'}."


def _time(row: Row | None) -> str:
    """Return a median and the least of all runs: "3.05 (2.98)"."""
    if row is None or not row["ms"]:
        return "failed"
    return f"{median(row['ms']):.3g} ({min(row['least']):.3g})"


def _error(row: Row | None) -> str:
    distance = None if row is None else row.get("distance")
    return "not finite" if distance is None else f"{distance:.1e}" if distance else "0"


def _together(models: Models) -> str:
    both = [of for of in models.values() if speed(of, OURS) and speed(of, HINT)]
    if not both:
        return "Nothing was measured."
    texts = [f"{geometric_mean(speed(of, tool) or 1 for of in both):.2f}" for tool in (OURS, HINT)]
    errors = [of[OURS]["distance"] / of[HINT]["distance"] for of in both if _wrong(of)]
    share = f"{geometric_mean(errors):.2f}" if errors else "nothing to compare"
    return (
        f"Geometric means over {len(both)} models: the speed is {texts[0]} of float32's with ours "
        f"and {texts[1]} with the hint; our error by the hint's is {share} where neither is 0 "
        f"({len(errors)} models)."
    )


def _wrong(of: dict[str, Row]) -> bool:
    """Tell whether neither error is 0 and both are finite."""
    return bool(of[OURS].get("distance") and of[HINT].get("distance"))


def _exceptions(models: Models) -> list[str]:
    slower = _named(models, lambda of: (speed(of, OURS) or 1) < 1 / SLOWER)
    found = [f"Slower than float32 by more than 3 %: {slower}."]
    found.append(
        f"Less exact than the hint and not faster, or slower by over 5 %: {_behind(models)}."
    )
    wrong = {n: of for n, of in models.items() if (of[HINT].get("cosine") or 0) < _NEAR}
    texts = [
        f"{name} ({_cosine(of[HINT])}, ours {_cosine(of[OURS])})" for name, of in wrong.items()
    ]
    return [*found, f"Cosine of the hint below {_NEAR}: {', '.join(texts) or 'none'}."]


_NEAR = 0.999


def _cosine(row: Row) -> str:
    cosine = row.get("cosine")
    return "not finite" if cosine is None else f"{cosine:.5f}"


def _behind(models: Models) -> str:
    def is_behind(of: dict[str, Row]) -> bool:
        ours, hint = speed(of, OURS), speed(of, HINT)
        if ours is None or hint is None:
            return ours is None
        exact = (of[OURS].get("distance") or 0) <= (of[HINT].get("distance") or math.inf)
        return ours < hint / BEHIND if exact else ours <= hint

    return _named(models, is_behind)


def _named(models: Models, which: Callable[[dict[str, Row]], bool]) -> str:
    return ", ".join(name for name, of in models.items() if which(of)) or "none"


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 440, 72, 24, 60, 52
_TIMES, _ERRORS = (0.25, 2.0), (1e-6, 1.0)
_TOOLS = {
    OURS: ("ours", "#0969da"),
    HINT: ("OpenVINO's hint bf16", "#d1242f"),
    ORT: ("ONNX Runtime float32", "#6e7781"),
}
_FONT = 'font-family="sans-serif" font-size="13"'


def picture(rows: Sequence[Row]) -> str:
    """Return the same as SVG: time by float32's against error, a point for each tool and model.

    What lies outside stands at the edge. A line joins ours and the hint's of a model.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">The corpus on OpenVINO: time by float32\'s, '
        "and error</text>",
        *_axes(),
    ]
    for name, of in by_model(rows).items():
        points = {tool: _point(of, tool) for tool in _TOOLS}
        ours, hint = points[OURS], points[HINT]
        if ours and hint:
            line = f'x1="{ours[0]:.1f}" y1="{ours[1]:.1f}" x2="{hint[0]:.1f}" y2="{hint[1]:.1f}"'
            parts.append(f'<line {line} stroke="#d0d7de"/>')
        for tool, point in points.items():
            if point:
                at = f'cx="{point[0]:.1f}" cy="{point[1]:.1f}"'
                label, color = _TOOLS[tool]
                parts.append(
                    f'<circle {at} r="4" fill="{color}" fill-opacity="0.75">'
                    f"<title>{name}, {label}</title></circle>"
                )
    for index, (label, color) in enumerate(_TOOLS.values()):
        x = _LEFT + 190 * index
        parts.append(f'<circle cx="{x + 6}" cy="42" r="4" fill="{color}"/>')
        parts.append(f'<text x="{x + 16}" y="46">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _share(number: float, ends: tuple[float, float]) -> float:
    """Return where a number lies between two ends on a logarithmic axis, from 0 to 1."""
    low, high = ends
    return math.log(min(max(number, low), high) / low) / math.log(high / low)


def _x(time: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _share(time, _TIMES)


def _y(error: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * _share(error, _ERRORS)


def _point(of: dict[str, Row], tool: str) -> tuple[float, float] | None:
    quotient = speed(of, tool)
    distance = of[tool].get("distance") if quotient else None
    return None if quotient is None or distance is None else (_x(1 / quotient), _y(distance))


def _axes() -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts: list[str] = []
    for exponent in range(-6, 1):
        y = _y(10.0**exponent)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#eaeef2"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{exponent}</text>')
    for time in (0.25, 0.5, 1, 2):
        x, color = _x(time), "#57606a" if time == 1 else "#eaeef2"
        parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="{color}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{time:g}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">time by float32\'s</text>'
    )
    turned = f'transform="translate(18 {(_TOP + bottom) / 2}) rotate(-90)"'
    return [*parts, f'<text {turned} text-anchor="middle">distance to float32 by its norm</text>']
