"""Which engine runs what: a provider of ONNX Runtime, or one that is an engine of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16, LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.model_source import stays_in_files
from amp_rewrite.runtimes.openvino.compiled_model import HINT
from amp_rewrite.runtimes.openvino.compiled_model import Session as OpenVinoSession
from amp_rewrite.runtimes.openvino.package import computes_in, core
from amp_rewrite.runtimes.ort import providers
from amp_rewrite.runtimes.ort.sessions import FAILING, check_options, session_options
from amp_rewrite.runtimes.ort.sessions import Session as OrtSession
from amp_rewrite.runtimes.session import Provider, Session, name_and_options
from amp_rewrite.targets import CPU, OPENVINO


def check_provider(name: str) -> None:
    """Refuse a provider that cannot run anything here; the error says why."""
    if name == OPENVINO:
        core()
    else:
        providers.check_provider(name)


def takes_low_arrays(provider: Provider) -> bool:
    """Return whether an engine takes and gives arrays of float16 and bfloat16.

    ONNX Runtime does not: it makes no numpy array of bfloat16.
    """
    return name_and_options(provider)[0] == OPENVINO


def own_choices(provider: str) -> dict[str, Provider]:
    """Return the settings with which an engine chooses types itself, by what they are called."""
    if provider != OPENVINO or not computes_in(BFLOAT16.name):
        return {}
    return {"the original with OpenVINO's own bfloat16": (OPENVINO, {HINT: "bf16"})}


def notes_on(provider: str, types: Collection[str]) -> tuple[str, ...]:
    """Return in which types an engine computes here, where a model says otherwise."""
    return tuple(
        f"this processor has no instructions for {low}: OpenVINO computes it in float32"
        for low in LOW
        if low in types and provider == OPENVINO and not computes_in(low)
    )


def open_session(
    model: ir.Model,
    *,
    providers: Sequence[Provider] = (CPU,),
    options: Any = None,
    threads: int = 0,
    profile: bool = False,
    what: str = "the model",
) -> Session:
    """Load a model on the engine of the preferred provider.

    Args:
        model: Any model; it is not changed and not needed any more afterwards.
        providers: The preferred one first: execution providers of ONNX Runtime, or OpenVINO,
            whose options are properties of its compile_model.
        options: An onnxruntime.SessionOptions instead of the default ones.
        threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or the engine's choice.
        profile: Time the nodes until `ran_nodes` is asked for them.
        what: The model as errors call it.

    Raises:
        OptionError: A provider is not available, or the options are not for it.
        RuntimeMissingError: The engine is not installed, or too old.
        RunError: It cannot load the model, or has no device.
    """
    name, properties = name_and_options(providers[0])
    if options is not None and name == OPENVINO:
        raise OptionError(
            f"{name} does not take the options of a session of ONNX Runtime",
            remedy=f"leave options out, or pass providers=[({name!r}, {{name: value}})]",
        )
    if name != OPENVINO:
        if options is None:
            copies = not stays_in_files(model)
            options = session_options(threads=threads, leave_out=FAILING, copies_weights=copies)
        check_options(options)
        return OrtSession(model, providers=providers, options=options, profile=profile, what=what)
    return OpenVinoSession(
        model, properties=properties, threads=threads, profile=profile, static=True, what=what
    )


def give_back() -> None:
    """Let glibc, which keeps freed memory for each thread, return it to the operating system.

    It takes a tenth of a second for a gigabyte.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # no glibc
        return
    trim(0)
