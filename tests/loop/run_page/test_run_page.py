"""The callback that writes the page of a run: what it measures, when it writes, how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_pages import examples, step, trained

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning, OptionError, SaveError
from amp_rewrite.loop.run import Callback, Run
from amp_rewrite.loop.run_page.run_document import read_runs
from amp_rewrite.training.optimizers.schedules import LinearWarmUp

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* on a CPU is slower:amp_rewrite.errors.AmpWarning"
)


def run_in(page: Path) -> dict[str, Any]:
    (run,) = read_runs(page.read_text("utf-8"))
    return run


class Rows(Callback):
    """Keeps what steps computed."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []

    def fetches(self, run: Run) -> list[str]:
        return ["gradient_norm"]

    def on_step(self, run: Run) -> None:
        self.losses.append(run.at.loss)
        self.norms.append(float(run.at.fetched["gradient_norm"]))


def test_the_page_has_what_the_run_measured(tmp_path: Path) -> None:
    rows = Rows()
    trained(tmp_path / "r.html", callbacks=[rows])
    run = run_in(tmp_path / "r.html")
    curves = run["curves"]
    assert (run["state"], run["title"], run["step"], run["epoch"]) == ("finished", "r", 10, 2)
    assert curves["step"] == list(range(1, 11))
    np.testing.assert_allclose(curves["loss"], rows.losses, rtol=1e-5)
    np.testing.assert_allclose(curves["gradient_norm"], rows.norms, rtol=1e-5)
    assert curves["loss_scale"] == [2.0**15] * 10
    assert curves["learning_rate"] == pytest.approx([0.01] * 10)
    assert curves["throughput"][0] is None
    assert all(rate > 0 for rate in curves["throughput"][1:])
    assert run["evaluations"]["step"] == [5, 10]
    assert sorted(run["layers"]["variable"]) == ["b", "w"]
    assert run["missing"] == []
    assert run["settings"] == {
        "precision": "float16",
        "batch": 8,
        "learning rate": 0.01,
        "initial loss scale": 2**15,
        "epochs": 2,
        "seed": 0,
    }


def test_the_norm_is_that_without_the_loss_scale(tmp_path: Path) -> None:
    trained(tmp_path / "low.html", epochs=1)
    trained(tmp_path / "wide.html", epochs=1, precision="float32")
    low, wide = run_in(tmp_path / "low.html"), run_in(tmp_path / "wide.html")
    np.testing.assert_allclose(
        low["curves"]["gradient_norm"], wide["curves"]["gradient_norm"], rtol=0.01
    )
    assert wide["layers"]["variable"] == []


def test_skipped_steps_are_marked(tmp_path: Path) -> None:
    data = examples()
    data["x"][17] = np.inf
    trained(tmp_path / "r.html", data, epochs=1, shuffle=False)
    curves = run_in(tmp_path / "r.html")["curves"]
    assert curves["skipped"] == [0, 0, 1, 0, 0]
    assert curves["gradient_norm"][2] is None
    assert curves["small"][2] is None


def test_batches_that_wait_for_an_update_have_no_norm(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    with amp.Trainer(step(accumulate=2), precision="float16", emulate=True) as trainer:
        trainer.train(examples(32), batch=8, callbacks=[amp.callbacks.RunPage(page)])
    norms = run_in(page)["curves"]["gradient_norm"]
    assert [norm is None for norm in norms] == [True, False, True, False]


class Fails(Callback):
    """Ends a run by an error."""

    def on_step(self, run: Run) -> None:
        if run.at.step == 3:
            raise ZeroDivisionError("by <b>nothing</b>\n")


def test_an_error_ends_the_page_too(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path / "r.html", callbacks=[Fails()])
    run = run_in(tmp_path / "r.html")
    assert (run["state"], run["reason"]) == ("failed", "ZeroDivisionError: by <b>nothing</b>")
    assert run["curves"]["step"] == [1, 2, 3]


def test_a_run_that_is_stopped_says_why(tmp_path: Path) -> None:
    class Stops(Callback):
        def on_step(self, run: Run) -> None:
            run.stop("seen enough")

    trained(tmp_path / "r.html", callbacks=[Stops()])
    run = run_in(tmp_path / "r.html")
    assert (run["state"], run["reason"], run["step"]) == ("stopped", "seen enough", 1)


def test_while_it_runs_the_page_is_new_and_says_so(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    class Looks(Callback):
        def on_step(self, run: Run) -> None:
            found = run_in(tmp_path / "r.html")
            seen.append((found["state"], found["step"]))

    trained(tmp_path / "r.html", epochs=1, callbacks=[Looks()])
    assert seen == [("running", number) for number in range(1, 6)]


def test_a_resumed_run_goes_on_with_its_curves(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c.safetensors"}
    trained(tmp_path / "r.html", epochs=1, **kept)
    first = run_in(tmp_path / "r.html")["curves"]
    trained(tmp_path / "again.html", epochs=2, resume=True, **kept)
    second = run_in(tmp_path / "again.html")["curves"]
    assert second["step"] == list(range(1, 11))
    assert second["loss"][:5] == first["loss"]
    assert second["seconds"] == sorted(second["seconds"])


def test_what_a_step_does_not_compute_is_said_and_how_it_would(tmp_path: Path) -> None:
    model = amp.build_step(amp.optimizers.Adam(0.01).minimize(_loss()))
    with amp.Trainer(model) as trainer:
        trainer.train(examples(), callbacks=[amp.callbacks.RunPage(tmp_path / "r.html")])
    run = run_in(tmp_path / "r.html")
    assert run["missing"] == ["gradient norm: build the step with train-step --fetch gradient_norm"]
    assert run["curves"]["learning_rate"] == pytest.approx([0.01, 0.01])


def test_the_rate_of_a_schedule_is_in_every_step_that_is_built(tmp_path: Path) -> None:
    rate = LinearWarmUp(0.1, 4)
    model = amp.build_step(amp.optimizers.GradientDescent(rate).minimize(_loss()))
    with amp.Trainer(model) as trainer:
        trainer.train(examples(), batch=20, callbacks=[amp.callbacks.RunPage(tmp_path / "r.html")])
    rates = run_in(tmp_path / "r.html")["curves"]["learning_rate"]
    assert rates[0] < rates[1]


def _loss() -> Any:
    from handmade import CLASSIFIER
    from onnx import parser

    return amp.value(amp.load(parser.parse_model(CLASSIFIER)), "loss")


@pytest.mark.parametrize("path", ["r.htm", "r", 1, None])
def test_a_page_is_an_html_file(path: Any) -> None:
    with pytest.raises(OptionError, match="must be an HTML file"):
        amp.callbacks.RunPage(path)


def test_a_page_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(SaveError):
        trained(tmp_path / "no" / "r.html")


def test_a_page_that_cannot_be_written_any_more_ends_no_training(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()

    class Removes(Callback):
        def on_step(self, run: Run) -> None:
            if run.at.step == 2:
                (folder / "r.html").unlink()
                folder.rmdir()

    with pytest.warns(AmpWarning, match="page of the run is out of date") as caught:
        trained(folder / "r.html", callbacks=[Removes()])
    assert len([w for w in caught if "out of date" in str(w.message)]) == 1


def test_settings_of_the_users_own_are_on_the_page(tmp_path: Path) -> None:
    settings = {"warm-up": 20, "augmented": True, "<b>": "\x1b[31mred"}
    page = amp.callbacks.RunPage(tmp_path / "r.html", settings=settings)
    with amp.Trainer(step()) as trainer:
        trainer.train(examples(), epochs=1, batch=8, callbacks=[page])
    found = run_in(tmp_path / "r.html")["settings"]
    assert found["batch"] == 8
    assert (found["warm-up"], found["augmented"], found["<b>"]) == (20, "True", r"\x1b[31mred")


@pytest.mark.parametrize("settings", ["rate", {"rate": [1]}, {3: 4}, {"rate": None}])
def test_settings_that_no_page_can_show_are_refused(settings: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"settings? of a run's page"):
        amp.callbacks.RunPage(tmp_path / "r.html", settings=settings)
