"""`verify`: is a rewritten model as good as the original?

Evidence: that of verification.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import OptionError, OutOfTimeError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.metadata_keys import EXPONENTS_KEY
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.numerics.compare.distance import Tolerances, is_float
from amp_rewrite.numerics.compare.fed_back import calls_fed_back
from amp_rewrite.numerics.compare.made_up_inputs import finite_feed
from amp_rewrite.numerics.compare.stress_checks import StressChecks, many_steps
from amp_rewrite.numerics.compare.verification import Verification, lowest_precision
from amp_rewrite.numerics.compare.verify_report import MADE_UP, VerifyReport
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Data, Feeds, batches, count
from amp_rewrite.numerics.inputs.fed_states import states_of
from amp_rewrite.numerics.inputs.input_roles import InputRole, roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.numerics.inputs.scalings import Scaling
from amp_rewrite.numerics.inputs.stress_inputs import StressInputs, root_mean_square
from amp_rewrite.rewriting.apply.written_metadata import recorded_target
from amp_rewrite.rewriting.plan.input_ranges import InputRanges
from amp_rewrite.rewriting.plan.input_ranges import input_ranges as parsed_ranges
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.scaling.noted_exponents import scaled_as_noted
from amp_rewrite.runtimes.engines import check_provider
from amp_rewrite.runtimes.ort.isolated_load import load_of_source
from amp_rewrite.runtimes.ort.time_limit import check_time

_FEW = 8
"""How many feeds are held, for calls with states fed back."""

Progress = Callable[[str], None]
"""Called with what begins."""

STRESS_SHARE = 2.0
"""Stress inputs may take that many times as long as the rest of a verification."""

STRESS_SECONDS = (5.0, 60.0)
"""The least and the most seconds that they get unless a budget is given."""


def verify(
    original: Source,
    rewritten: Source,
    data: Data | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    seed: int = 0,
    stress: bool | None = None,
    stress_budget: float | None = None,
    input_ranges: Mapping[str, Any] | Iterable[str] = (),
    intermediates: bool = True,
    providers: Sequence[str] | None = None,
    threads: int = 0,
    target: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Run a model and its rewritten form on the same data and compare.

    The original runs in float32, the rewritten model is emulated: rounded wherever it is in 16
    bits, on a CPU. It passes if every output does and no value inside becomes infinite or NaN that
    is finite in the original. With a tolerance every element of an output must be within `rtol`
    times its largest magnitude plus `atol`. Without one an output passes if its error (root mean
    square) is at most 4.5 % of its spread, which is its deviation around its mean, that of an
    element at most 50 %, and if 99 % of its rows along the last axis have the same top-1 class.
    Slices of widely different scales, such as boxes beside scores, are each compared by their own.

    If an output fails, and the rounded weights alone, or a change of the inputs by one part in a
    million, move the original as far, the verdict is "in doubt". Feeds on which the original gives
    NaN or infinity do not count, nor does an output that is one number everywhere. Near ties that
    are selected otherwise (TopK, ArgMax), and rows that are masked whole, fail nothing.

    Outputs that are states, since an input is the same one call earlier, are fed back for up to
    1,000 calls if outputs pass. Stress inputs are extremes of what the inputs may be: late
    positions, long sequences, masked rows, bytes of images, zeros. At last ONNX Runtime loads the
    rewritten model as it is, in a process of its own.

    Args:
        original: The model before: a path, an onnx_ir model or a ModelProto.
        rewritten: The model after; inputs and outputs of the same names, of any float type.
        data: One feed (input name -> array), several of them, .npz files (one feed each) or
            folders of such files; None makes up plausible inputs.
        rtol: Tolerance relative to the largest magnitude of an output, or of a slice.
        atol: Absolute tolerance, added to that.
        seed: For made-up inputs.
        stress: Try stress inputs too; None does so if there are no data. A training step gets
            none: where extremes overflow it, it is to skip, not to agree.
        stress_budget: Seconds for them; by default twice what the rest took, from 5 to 60.
        input_ranges: Input -> the least and the greatest number that it ever holds.
        intermediates: Compare the values inside the models as well.
        providers: Also run the rewritten model itself on these execution providers; their outputs
            must pass as well.
        threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or ONNX Runtime's choice.
        target: Whose kernels are emulated; None is that of the first of `providers`, else what the
            model says that it was rewritten for, else "cuda".
        progress: Called with what begins: each feed, each kind of stress input.

    Raises:
        AmpError: A model, the data or the target are wrong, they do not fit together, or ONNX
            Runtime is not installed.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> low = amp.rewrite("model.onnx").model
        >>> report = amp.verify("model.onnx", low, data)
        >>> report.ok, report.worst < 0.001
        (True, True)
    """
    report = compared_models(
        original,
        rewritten,
        data,
        rtol,
        atol,
        seed=seed,
        stress=stress,
        stress_budget=stress_budget,
        input_ranges=input_ranges,
        intermediates=intermediates,
        providers=providers,
        threads=threads,
        target=target,
        progress=progress,
    )
    loading = load_of_source(rewritten)
    if loading is None or not loading.fails(targets.find(report.target)):
        return report
    return replace(report, refused=loading.said)


def compared_models(
    original: Source,
    rewritten: Source,
    data: Data | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    seed: int = 0,
    stress: bool | None = None,
    stress_budget: float | None = None,
    input_ranges: Mapping[str, Any] | Iterable[str] = (),
    intermediates: bool = True,
    providers: Sequence[str] | None = None,
    threads: int = 0,
    target: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Do what `verify` does, but do not load the rewritten model itself.

    Raises:
        AmpError: As for `verify`.
    """
    seed = arguments.integer("seed", seed)
    threads = arguments.threads(threads)
    intermediates = arguments.switch("intermediates", intermediates)
    stress = data is None if stress is None else arguments.switch("stress", stress)
    providers = arguments.texts("providers", () if providers is None else providers)
    progress = arguments.function("progress", progress)
    after = TypedModel.of(rewritten)
    note = after.model.metadata_props.get(EXPONENTS_KEY)
    if note is not None:  # compared scaled, so that the values inside are the same ones
        flat = read_source(original, inline_functions=False)
        is_scaled = flat.metadata_props.get(EXPONENTS_KEY) == note
        original = flat if is_scaled else scaled_as_noted(flat, note) or flat
    tolerances = Tolerances.of(lowest_precision(after.types), rtol, atol)
    kernels = targets.of_provider(providers[0]) if target is None and providers else None
    kernels = kernels or targets.find(target or recorded_target(after.model) or targets.DEFAULT)
    before = TypedModel.of(original)
    devices = device_providers(providers)
    run = Verification(before, after, tolerances, kernels, threads=threads, providers=devices)
    return verified(
        run,
        data,
        seed=seed,
        stress=stress,
        stress_budget=stress_budget,
        input_ranges=parsed_ranges(input_ranges),
        intermediates=intermediates,
        progress=progress or silent,
    )


def verified(
    run: Verification,
    data: Data | None,
    *,
    seed: int = 0,
    stress: bool,
    stress_budget: float | None = None,
    input_ranges: InputRanges,
    intermediates: bool = True,
    progress: Progress = silent,
) -> VerifyReport:
    """Do what `verify` does, for models that are loaded.

    Raises:
        AmpError: The data do not fit the models, or the budget is impossible.
    """
    start = time.perf_counter()
    if stress_budget is not None:
        expected = "a positive number of seconds"
        arguments.number("stress_budget", stress_budget, low=0, above=True, expected=expected)
    plausible = PlausibleInputs.of(run.before.model, seed, input_ranges, types=run.before.types)
    stress_report, fed_back, unfinished, attempt = None, None, None, None
    try:
        if data is None:
            attempt, feed = finite_feed(plausible, run.run_original)
            feeds = iter([feed])
        else:
            feeds = batches(data, run.before.model)
        few = _add_all(run, feeds, progress, inside=intermediates)
        base, is_step = few[0], bool(step_description(run.before.model))
        states = {} if is_step else states_of(run.before.model, plausible)
        holds = all(comparer.result().ok for comparer in run.outputs.values())
        if states and holds and run.count > len(run.left_out):
            progress("verifying: states fed back")
            fed_back = calls_fed_back(run, states, few)
        if stress and not is_step:
            least, most = STRESS_SECONDS
            usual = min(max(least, STRESS_SHARE * (time.perf_counter() - start)), most)
            budget = usual if stress_budget is None else stress_budget
            if attempt is not None:
                base = many_steps(run, plausible, attempt, base, budget)
            inputs = StressInputs(base, _roles(run, plausible, base, data is None), seed)
            stress_report = StressChecks(run, inputs, plausible, budget, progress).report()
        check_time()  # some of what failed then was left out
    except OutOfTimeError:
        unfinished = unfinished_after(run.count, data)
    return run.report(
        origin_of(data, seed),
        inside=intermediates,
        stress=stress_report,
        fed_back=fed_back,
        unfinished=unfinished,
    )


def _add_all(
    run: Verification, feeds: Iterator[Feeds], progress: Progress, *, inside: bool
) -> list[Feeds]:
    """Compare the models on all feeds; return the first few.

    Raises:
        OutOfTimeError: A time limit ended that; the feeds before count.
        OptionError: There is none.
    """
    few: list[Feeds] = []
    for number, each in enumerate(feeds, 1):
        few += [each] if number <= _FEW else []
        progress(f"verifying: feed {number}")
        try:
            run.add(each, inside=inside)
        except OutOfTimeError:
            run.count = number - 1
            raise
    if not few:
        raise OptionError("there is no data", expected="at least one feed")
    return few


def unfinished_after(feeds: int, data: Data | None) -> str:
    """Return what is said of a verification that a time limit ended after some feeds."""
    total = 1 if data is None else count(data)
    if feeds and feeds == total:
        done = "all feeds were, but not all stress inputs or values inside"
    else:
        done = f"{feeds}{'' if total is None else f' of {total}'} feeds were"
    return (
        f"the time was over before everything was compared: {done}; a larger budget does the rest"
    )


def _roles(
    run: Verification, plausible: PlausibleInputs, feeds: Feeds, made_up: bool
) -> dict[str, InputRole]:
    """Return the roles of inputs, with the ranges that the user gave, and scales that are known."""
    roles = roles_of(run.before.model, plausible.specs, plausible.limits)
    for name, role in roles.items():
        example, scaling = feeds.get(name), None
        if isinstance(example, np.ndarray) and is_float(example):
            scaling = plausible.scalings.get(name)
            if scaling is None and not made_up:
                scaling = Scaling(np.zeros(()), np.array(root_mean_square(example)))
        roles[name] = replace(role, range=plausible.ranges.get(name), scaling=scaling)
    return roles


def device_providers(providers: Sequence[str]) -> tuple[str, ...]:
    """Return the providers to compare with.

    Raises:
        AmpError: One of those asked for cannot be used here.
    """
    for name in providers:
        check_provider(name)
    return tuple(providers)


def origin_of(data: Data | None, seed: int) -> str:
    """Return what the feeds are called in a report."""
    if data is None:
        return f"{MADE_UP}, seed {seed}"
    return os.fspath(data) if isinstance(data, str | os.PathLike) else "given data"
