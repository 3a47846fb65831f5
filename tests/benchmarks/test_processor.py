"""The processor and its instructions."""

import processor
import pytest

SAPPHIRE_RAPIDS = {
    "model name": "a Xeon",
    "flags": "fpu avx2 avx512f avx512_bf16 avx512_vnni avx512_fp16 amx_bf16 amx_tile",
}


@pytest.mark.parametrize(
    ("limit", "last"),
    [
        (None, "amx_bf16"),
        ("ALL", "amx_bf16"),
        ("DEFAULT", "amx_bf16"),
        ("AVX512_CORE_AMX", "amx_bf16"),
        ("AVX512_CORE_FP16", "avx512_fp16"),
        ("AVX512_CORE_BF16", "avx512_bf16"),
        ("avx512_core_bf16", "avx512_bf16"),
        ("AVX512_CORE_VNNI", "avx512_vnni"),
        ("AVX512_CORE", "avx512f"),
        ("AVX2", "avx2"),
    ],
)
def test_onednn_uses_what_it_is_allowed(
    limit: str | None, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_cpuinfo", lambda: SAPPHIRE_RAPIDS)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert processor.onednn_instructions()[-1] == last
    assert processor.instructions()[-1] == "amx_bf16"


def test_a_system_that_says_nothing_has_no_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_cpuinfo", dict)
    assert processor.instructions() == processor.onednn_instructions() == ()
    assert processor.processor_name()


def test_instructions_of_arm_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"Features": "fp asimd bf16"})
    assert processor.instructions() == ("bf16",)
