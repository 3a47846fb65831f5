"""Every model of the corpus, rewritten: valid, loadable, close to float32, stable, no larger."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import catalog
import inputs
import numpy as np
import onnx
import pytest
import rewrite_digest
import runs
from invariants import verify_invariants
from rewrite_digest import RECORD, difference
from thinned import thinned

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.graph.added import SUFFIX

MODELS = (*catalog.REAL, "loop_capture")
LARGE = ("light_vgg19",)
"""What takes 1.1 GiB to run; light_zfnet512 has the same operators."""
HEAVY = (
    *("minilm_l3", "minilm_l3_ortfused", "light_resnet50", "ppocrv4_det", "ppocrv4_rec"),
    *("resnet50_rand", "light_densenet121", "light_inception_v2"),
)
"""Of which the fast suite has one form."""
LIKE_OTHERS = HEAVY[-3:]
"""Whose operators smaller models have; the fast suite compares them with what was recorded."""
NO_BFLOAT16 = frozenset(
    {
        *("loop_capture", "magika", "minilm_l3", "minilm_l3_ortfused", "oww_hey_jarvis"),
        *("oww_hey_mycroft", "oww_melspec", "silero_v6_ifless"),
    }
)
"""Models in which a bfloat16 node has no kernel on the CPU provider: Attention, Clip, Einsum, Gemm,
MatMul or Sigmoid.
"""

BYTES_PER_CAST = 400
"""What an added Cast may take: its name and its output's, which contain the value's name."""

FLOAT16_DISTANCE = 0.02
"""How far, relative to the output's norm, a float16 model may be from float32 on the CPU."""

BY_MODEL = {
    "basic_pitch": 0.04,  # logarithms of a constant-Q transform magnify what weights lose: 0.027
}
"""Tolerances of single models, with the reason and the distance measured."""


@dataclass(frozen=True)
class Case:
    """One model before and after."""

    name: str
    precision: str
    source: Path
    target: Path
    options: dict[str, Any]
    digest: str


def path_of(name: str, corpus: Any, synthetic: Path) -> Path:
    return synthetic / f"{name}.onnx" if name == "loop_capture" else corpus.path(name)


FORMS = list(itertools.product(MODELS, ("float16", "bfloat16"), ("schema", "cuda")))
NUMBERS: dict[tuple[str, str, str], int] = {form: n for n, form in enumerate(FORMS)}
CHECKED = {("float16", "cuda"): MODELS[::2], ("bfloat16", "schema"): MODELS[1::4]}
"""Precision and target -> the models that the fast suite loads, runs and rewrites again.

It compares the others with what was recorded, which passed all of that.
"""


def forms(slow: Callable[[tuple[str, str, str]], bool]) -> Any:
    """Return what gives a test its forms of each model; those of which `slow` is true are slow."""
    params = thinned([(form,) for form in FORMS], lambda one: slow(one[0]))
    return pytest.mark.parametrize("case", params, indirect=True, scope="module", ids="-".join)


def is_left(form: tuple[str, str, str]) -> bool:
    """Return whether the fast suite does without a form of a model."""
    return form[0] in LARGE or (form[0] in HEAVY and form[1:] != ("float16", "cuda"))


every_form = forms(lambda form: is_left(form) or NUMBERS[form] % 3 == 1)
first_forms = forms(
    lambda form: is_left(form) or form[0] in LIKE_OTHERS or form[0] not in CHECKED.get(form[1:], ())
)


@pytest.fixture(scope="module")
def case(
    request: pytest.FixtureRequest,
    corpus: Any,
    synthetic: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Case:
    name, precision, target = request.param
    source = path_of(name, corpus, synthetic)
    options = {"precision": precision, "target": target}
    folder = tmp_path_factory.mktemp(name)
    digest = rewrite_digest.save_form(source, folder, (precision, target))
    return Case(name, precision, source, folder / "rewritten.onnx", options, digest)


Arrays = dict[str, Any]
Original = Callable[[str], tuple[Arrays, Arrays]]


@pytest.fixture(scope="module")
def original(corpus: Any, synthetic: Path) -> Original:
    """Return what gives a model's feeds and outputs; it runs once for all of its forms."""

    @cache
    def run(name: str) -> tuple[Arrays, Arrays]:
        source = path_of(name, corpus, synthetic)
        spec = corpus.spec(name) if name in corpus.entries else {}
        feeds = inputs.make_inputs(onnx.load(source), spec)
        return feeds, runs.run(source, feeds)

    return run


@first_forms
def test_every_invariant_holds(case: Case) -> None:
    violations = verify_invariants(amp.load(case.source), amp.load(case.target))
    assert [str(v) for v in violations] == []


@first_forms
def test_inputs_and_outputs_are_as_before(case: Case) -> None:
    before, after = (
        onnx.load(path, load_external_data=False) for path in (case.source, case.target)
    )
    assert inputs.real_inputs(after) == inputs.real_inputs(before)
    assert list(after.graph.output) == list(before.graph.output)


@first_forms
def test_onnx_runtime_loads_it_unless_it_lacks_a_bfloat16_kernel(case: Case) -> None:
    if case.precision == "float16":
        pytest.skip("loaded, and run, by the next test")
    try:
        runs.session_of(case.target)
    except runs.NoKernel:
        assert case.name in NO_BFLOAT16


@first_forms
def test_float16_outputs_are_close_to_float32(case: Case, original: Original) -> None:
    if case.precision != "float16":
        pytest.skip("the CPU provider lacks most bfloat16 kernels")
    feeds, before = original(case.name)
    after = runs.run(case.target, feeds)
    assert list(after) == list(before)
    for name, reference in before.items():
        assert after[name].dtype == reference.dtype
        assert np.isfinite(after[name]).all()
        limit = BY_MODEL.get(case.name, FLOAT16_DISTANCE)
        assert runs.distance(reference, after[name]) <= limit


@first_forms
def test_rewriting_again_changes_nothing(case: Case, tmp_path: Path) -> None:
    again = amp.rewrite(case.target, **case.options)
    assert not again.changed
    again.save(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == case.target.read_bytes()


@every_form
def test_bytes_and_report_are_as_they_were_recorded(case: Case) -> None:
    own, digests = rewrite_digest.digests_of_model(case.name)
    if why := rewrite_digest.not_comparable():
        pytest.skip(why)
    if own != rewrite_digest.sum_of(case.source):
        pytest.skip("no digests of this file: it was made here, or with other releases")
    before = digests[case.options["precision"], case.options["target"]]
    assert difference(case.name, before, case.digest) is None, RECORD


@first_forms
def test_the_file_does_not_grow_but_for_the_casts(case: Case) -> None:
    model = onnx.load(case.target)
    casts = sum(SUFFIX in node.name for node in model.graph.node)
    limit = case.source.stat().st_size + casts * BYTES_PER_CAST
    assert case.target.stat().st_size <= limit


@pytest.mark.filterwarnings("ignore:.* of the model with a default")
def test_a_model_that_is_nearly_all_convolution_weights_is_halved(
    corpus: Any, tmp_path: Path
) -> None:
    source, target = corpus.path("resnet50_rand"), tmp_path / "rewritten.onnx"
    amp.save(amp.rewrite(source).model, target)
    assert target.stat().st_size < 0.51 * source.stat().st_size


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_shared_weights_stay_shared(precision: Precision, synthetic: Path, tmp_path: Path) -> None:
    source, target = synthetic / "rxnmap_like.onnx", tmp_path / "rewritten.onnx"
    amp.save(amp.rewrite(source, precision=precision).model, target)
    model = onnx.load(target)
    used = [name for node in model.graph.node for name in node.input]
    weights = {i.name for i in model.graph.initializer}
    assert len(weights) == 28
    assert sum(name in weights for name in used) == 186
    assert target.stat().st_size < 0.75 * source.stat().st_size


def test_bytes_do_not_depend_on_the_hash_seed(synthetic: Path, tmp_path: Path) -> None:
    source = synthetic / "loop_capture.onnx"  # what is recorded of others holds for every seed
    code = "import sys, amp_rewrite as a; a.save(a.rewrite(sys.argv[1]).model, sys.argv[2])"
    outputs = [tmp_path / f"{seed}.onnx" for seed in ("1", "2")]
    for output in outputs:
        environment = {**os.environ, "PYTHONHASHSEED": output.stem}
        command = [sys.executable, "-P", "-c", code, str(source), str(output)]
        subprocess.run(command, check=True, env=environment)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
