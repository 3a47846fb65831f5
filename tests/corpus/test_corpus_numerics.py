"""The corpus in float16: finite, alike and of the same class, with default lists."""

import importlib.util
import sys
from pathlib import Path

import pytest
from catalog import REAL
from releases import needs
from thinned import thinned


def _bench():
    path = Path(__file__).parents[2] / "benchmarks" / "bench_numerics.py"
    spec = importlib.util.spec_from_file_location("bench_numerics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_numerics"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


LARGE = ("light_vgg19", "light_bvlc_alexnet", "resnet50_rand")
"""Up to 1.1 GiB; light_zfnet512 and light_resnet50 have the same operators."""

HEAVY = (
    *("light_densenet121", "light_inception_v2", "light_resnet50", "light_zfnet512"),
    *("minilm_l3_ortfused", "ppocrv4_det", "ppocrv4_rec"),
)
"""What takes seconds, and resembles a smaller model."""

NOTHING_LOW = ("ort_mul_1", "oww_melspec")
"""No product, and the transform of a sound whose range nobody has given."""


@pytest.mark.share(7)
@pytest.mark.parametrize("name", thinned(REAL, lambda name: name in (*LARGE, *HEAVY)))
def test_every_model_holds_and_says_what_it_needed(corpus, name):
    if name == "ppocrv4_rec":
        needs("onnxruntime", (1, 30), "decides a tie of two characters, 8e-4 apart, the other way")
    # Of its second input one rounding scales the whole spectrum: 1 - cosine is 8e-4 to 3e-3 there,
    # as the last bits of float32's sums fall.
    seeds = 1 if name == "basic_pitch" else 2
    [row] = _bench().numerics_table(corpus.models.parent, [name], seeds=seeds)
    assert row.holds
    assert row.cosine >= 0.999
    assert row.top1 in (None, 1.0)
    assert row.needed == ("nothing low" if name in NOTHING_LOW else "default lists")
