"""Which outputs are fed to which inputs, and which of these have two types."""

from __future__ import annotations

import pytest

from amp_rewrite.rewriting.connected_ends import (
    Ends,
    connections,
    mismatch,
)


def linked(output: str, read: str, *, one_file: bool) -> bool:
    """Tell whether an output is taken to be fed to an input."""
    if one_file:
        models = {"a": Ends({read: "float32"}, {output: "float32"})}
    else:
        models = {"a": Ends({}, {output: "float32"}), "b": Ends({read: "float32"}, {})}
    return bool(connections(models))


@pytest.mark.parametrize("one_file", [True, False])
@pytest.mark.parametrize(
    ("output", "read"),
    [
        ("present.0.key", "past_key_values.0.key"),
        ("present.3.decoder.value", "past_key_values.3.decoder.value"),
        ("present_key_values.0.key", "past_key_values.0.key"),
        ("present_key_self_0", "past_key_self_0"),
        ("present_0", "past_0"),
        ("present_conv.1", "past_conv.1"),
    ],
)
def test_present_keys_and_values_are_past_in_the_next_step(
    output: str, read: str, *, one_file: bool
) -> None:
    assert linked(output, read, one_file=one_file)
    assert not linked(output, f"{read}1", one_file=one_file)


def test_between_models_names_connect() -> None:
    assert linked("last_hidden_state", "encoder_hidden_states", one_file=False)
    assert linked("inputs_embeds", "inputs_embeds", one_file=False)
    assert not linked("last_hidden_state", "encoder_hidden_states", one_file=True)
    assert not linked("logits", "inputs_embeds", one_file=False)
    assert not linked("past_0", "past_0", one_file=True)


def test_two_types_are_told_with_both_places() -> None:
    models = {"e": Ends({}, {"x": "float16"}), "d": Ends({"x": "float32"}, {})}
    (link,) = connections(models)
    assert mismatch(link, models) == (
        "output x of e is float16, and input x of d, which reads it, is float32"
    )
