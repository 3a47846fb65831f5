"""What holds for every test."""

from collections.abc import Iterator

import pytest

from amp_rewrite.global_state import global_state


@pytest.fixture(autouse=True)
def _nothing_is_set_for_the_process() -> Iterator[None]:
    """Let no test see what another one has enabled, registered or been warned of."""
    global_state.reset()
    yield
    global_state.reset()
