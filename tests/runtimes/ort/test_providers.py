"""What a provider may be, and which ones there are."""

import pytest

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.runtimes.ort.providers import check_providers, check_started
from amp_rewrite.targets import CPU, CUDA


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], r"must be a list of execution providers; found \[\]; pass providers="),
        (CPU, "must be a list of execution providers; found 'CPU"),
        ([3], "must be a name, or a tuple of a name and options; found 3"),
        ([(CPU,)], "must be a name, or a tuple"),
        ([(CPU, "x")], "must be a name, or a tuple"),
        (
            [CPU, "Nope"],
            r"has no such execution provider; found 'Nope'; expected .*CPU.* or OpenVINO; install",
        ),
    ],
)
def test_what_is_not_a_provider_is_refused(given: list, text: str):
    with pytest.raises(OptionError, match=text):
        check_providers(given)


def test_a_provider_that_did_not_start_is_an_error():
    check_started([(CUDA, {}), CPU], [CUDA, CPU])
    with pytest.raises(RunError, match=r"CUDAE.*: ONNX Runtime cannot start .* it would use CPU"):
        check_started([CUDA, CPU], [CPU])
