"""Training on real shards: processes under mpiexec."""

import numpy as np
import pytest
import shard_models as models
import shard_programs as programs
from launch import start

import amp_rewrite as amp
from amp_rewrite.training.session.checkpoint import read_checkpoint

NAMES = (
    "curve",
    "curve_normalised",
    "normalised_apart",
    "curve_float16",
    "reductions",
    "groups",
    "nested",
    "sparse",
    "one_infinity",
    "accumulated",
    "dropout",
    "checkpoint",
    "fetches",
    "initial",
    "errors",
)

CASES = [
    pytest.param(2, id="mpi-2"),
    pytest.param(4, id="mpi-4", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=CASES)
def results(request, run_programs):
    """Return program -> what it returned on each shard."""
    return run_programs(request.param, *NAMES)


@pytest.fixture(scope="module")
def reference():
    """Return the run of one process with the global batch; made when it is first asked for."""
    known = {}

    def of(name, make):
        if name not in known:
            known[name] = make()
        return known[name]

    return of


def batches(shards):
    """Return the global batch of the small programs."""

    class One:
        rank = 0

    parts = []
    for rank in range(shards):
        One.rank = rank
        parts.append(models.own_batch(One))
    return {name: np.concatenate([part[name] for part in parts]) for name in ("x", "t")}


def linear_gradient(feeds):
    """Return the loss and its gradient with respect to w, in float64."""
    w = np.array([[1.0], [2], [3]])
    d = feeds["x"] @ w - feeds["t"]
    return float((d**2).mean()), 2 * feeds["x"].T @ d / len(d)


@pytest.mark.share(2)
def test_losses_are_those_of_one_process_with_the_global_batch(results, reference):
    expected = reference(
        "float32", lambda: programs.losses(None, models.plain_cnn(), models.momentum())
    )
    for shard in results["curve"]:
        assert len(shard["losses"]) == 40
        np.testing.assert_allclose(shard["losses"], expected["losses"], rtol=1e-5)


@pytest.mark.parametrize("name", ["curve", "curve_normalised", "normalised_apart", "curve_float16"])
def test_all_shards_hold_the_same_bits(results, name):
    first, *others = results[name]
    for other in others:
        assert other == first


def test_normalisation_over_equal_parts_is_that_of_the_whole_batch(results, reference):
    shards = len(results["curve_normalised"])
    expected = reference(
        f"normalised {shards}", lambda: programs.repeated(None, models.momentum(), shards)
    )
    found = results["curve_normalised"][0]
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-4)
    # Within a batch the variance is divided by n, whatever n is, so that it is the same.
    np.testing.assert_allclose(found["conv1.var"], expected["conv1.var"], rtol=1e-4)


def float16_reference():
    optimizer = models.scaled(models.slow_momentum())
    return programs.losses(None, models.plain_cnn(), optimizer, **programs.FLOAT16)


def test_emulated_float16_stays_near_one_process(results, reference):
    expected = reference("float16", float16_reference)["losses"]
    # A rounding of float16 is up to 5e-4, and steps amplify it: float32 is 5 % away after 100.
    np.testing.assert_allclose(results["curve_float16"][0]["losses"], expected, rtol=0.02)


def test_sum_and_mean_of_gradients_are_those_of_numpy(results):
    shards = len(results["reductions"])
    loss, gradient = linear_gradient(batches(shards))
    w = np.array([[1.0], [2], [3]])
    for shard in results["reductions"]:
        for name, factor in (("SUM", shards), ("MEAN", 1)):
            found = shard[name]
            assert found["loss"] == pytest.approx(loss * factor, rel=1e-5)
            assert found["gradient_norm"] == pytest.approx(
                np.linalg.norm(gradient) * factor, rel=1e-5
            )
            np.testing.assert_allclose(found["w"], w - gradient * factor, rtol=1e-4, atol=1e-5)


def test_groups_sum_inside_each_group_only(results):
    shards = len(results["groups"])
    size = shards // 2
    feeds, w = batches(shards), np.array([[1.0], [2], [3]])
    for rank, shard in enumerate(results["groups"]):
        first = rank // size * size * 2
        rows = slice(first, first + 2 * size)
        loss, gradient = linear_gradient({k: v[rows] for k, v in feeds.items()})
        assert shard["pairs"]["loss"] == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(shard["pairs"]["w"], w - gradient, rtol=1e-4, atol=1e-5)
        assert shard["turned"]["loss"] == pytest.approx(linear_gradient(feeds)[0], rel=1e-5)


@pytest.mark.parametrize("way", ["twice", "hierarchy", "three", "sum of sums", "by hand"])
def test_a_sum_of_sums_is_that_of_numpy_and_never_zero(results, way):
    shards = len(results["nested"])
    loss, gradient = linear_gradient(batches(shards))
    factor = {"sum of sums": shards**2, "by hand": shards}.get(way, 1)
    w = np.array([[1.0], [2], [3]]) - gradient * factor
    for shard in results["nested"]:
        shown = loss * shards**2 if way == "sum of sums" else loss
        assert shard[way]["loss"] == pytest.approx(shown, rel=1e-5)
        norm = np.linalg.norm(gradient) * factor
        assert shard[way]["gradient_norm"] == pytest.approx(norm, rel=1e-5)
        np.testing.assert_allclose(shard[way]["w"], w, rtol=1e-4, atol=1e-4)


def test_groups_of_groups_gather_the_sparse_gradients_of_all(results):
    shards = len(results["nested"])
    parts = [models.table_batch(rank) for rank in range(shards)]
    feeds = {name: np.concatenate([part[name] for part in parts]) for name in ("i", "t")}
    loss = amp.value(models.loaded(models.TABLE), "loss")
    op = amp.optimizers.GradientDescent(1.0).minimize(loss, var_list=["w"])
    with amp.TrainingSession(op) as session:
        session.run(feeds)
        expected = session.state_dict()["w"]
    for shard in results["nested"]:
        assert shard["sparse"]["states"] == results["nested"][0]["sparse"]["states"]
        np.testing.assert_allclose(shard["sparse"]["w"], expected, rtol=1e-5)


def test_groups_of_groups_average_the_statistics_of_all(results):
    for shard in results["nested"]:
        assert shard["statistics"] == results["nested"][0]["statistics"]


def test_sparse_gradients_touch_the_rows_of_all_shards_and_no_others(results):
    shards = len(results["sparse"])
    parts = [models.table_batch(rank) for rank in range(shards)]
    feeds = {name: np.concatenate([part[name] for part in parts]) for name in ("i", "t")}
    loss = amp.value(models.loaded(models.TABLE), "loss")
    op = amp.optimizers.Adam(0.1, lazy=True).minimize(loss, var_list=["w"])
    with amp.TrainingSession(op) as session:
        for _ in range(3):
            session.run(feeds)
        expected = session.state_dict()["w"]
    untouched = sorted(set(range(6)) - set(feeds["i"].tolist()))
    for shard in results["sparse"]:
        assert shard["states"] == results["sparse"][0]["states"]
        np.testing.assert_allclose(shard["w"], expected, rtol=1e-5)
        initial = np.arange(1, 13).reshape(6, 2)
        np.testing.assert_array_equal(np.array(shard["w"])[untouched], initial[untouched])


@pytest.mark.parametrize("wrapping", ["inside", "outside", "select"])
def test_one_shards_infinity_makes_every_shard_skip(results, wrapping):
    first = results["one_infinity"][0][wrapping]
    for shard in results["one_infinity"]:
        assert shard[wrapping] == first
    assert [row["grads_finite"] for row in first] == [1, 1, 0, 1]
    assert [row["loss_scale"] for row in first] == [1024, 1024, 1024, 512]
    assert [row["skipped_steps"] for row in first] == [0, 0, 1, 1]
    changed = set(first[2]["states"]) - set(first[2]["kept"])
    assert changed
    assert all(name.startswith("loss_scale/") for name in changed)


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_accumulated_gradients_are_summed_once_per_update(results, conditional):
    shards = [shard[conditional] for shard in results["accumulated"]]
    for shard in shards:
        rows = shard["rows"]
        assert [row["accumulated"] for row in rows] == [1, 2, 0] * 4
        assert [row["sums"] for row in rows] == [1, 1, 2] * 4  # the loss, and the gradient
        assert [row["grads_finite"] for row in rows] == [1] * 8 + [0, 1, 1, 1]
        assert [row["loss_scale"] for row in rows] == [1024] * 9 + [512] * 3
        changed = set(shard["states"]) - set(rows[8]["kept"])
        assert {n for n in changed if not n.startswith("loss_scale/")} == {
            "accumulated",
            "w/accumulated",
        }
        assert shard["states"] == shards[0]["states"]
        assert "every shard has gradients of its own" in shard["refused"]


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_accumulated_gradients_are_those_of_the_whole_batch(results, conditional):
    shards = results["accumulated"]

    class One:
        rank = 0

    op = amp.optimizers.Adam(0.1).minimize(amp.value(models.loaded(models.LINEAR), "loss"))
    with amp.TrainingSession(op) as session:
        for update in (0, 1, 3):
            parts = []
            for rank in range(len(shards)):
                One.rank = rank
                parts += [models.micro_batch(One, 3 * update + i) for i in range(3)]
            session.run({n: np.concatenate([part[n] for part in parts]) for n in ("x", "t")})
        expected = session.state_dict()
    for name in ("w", "w/Adam", "w/Adam_1"):
        found = shards[0][conditional]["states"][name]
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-7)


def test_each_shard_drops_other_elements_and_counts_alike(results):
    shards = results["dropout"]
    assert len({shard["mask"] for shard in shards}) == len(shards)
    for shard in shards:
        assert shard["dropped"] == pytest.approx(0.25, abs=0.02)
        assert shard["states"] == shards[0]["states"]


def test_shard_0_writes_and_all_restore(results):
    for shard in results["checkpoint"]:
        assert shard["same"]
        assert shard["progress"] == {"epoch": 1}
        assert shard["states"] == results["checkpoint"][0]["states"]


def test_shards_may_fetch_different_values(results):
    for shard in results["fetches"]:
        states = list(shard.values())
        assert shard == results["fetches"][0]
        if len(results["fetches"]) == 2:  # more numbers may be added in another order
            assert states == [states[0]] * len(states)


@pytest.mark.share(2)
def test_initial_states_are_those_of_shard_0(results):
    assert all(shard["w"] == [[1], [2], [3]] for shard in results["initial"])


ERRORS = {
    "shapes": "shard 1: the shards differ in the states of their steps; found w float [2, 1] "
    "variable; expected w float [3, 1] variable, as on shard 0",
    "operators": "shard 1: the shards differ in the nodes of their steps; found Abs",
    "optimizers": "differ in the states of their steps; found loss_scale/current_loss_scale",
    "no sums": "the step sums nothing over shards",
    "division": "the batch cannot be divided evenly among the shards; found 3 examples",
    "batch": "the batch cannot be divided evenly among the shards; found 3 examples",
    "groups": "group_assignment must be a permutation of range({shards})",
    "different calls": "the shards differ in their calls; found save; expected restore",
    "no file": "the checkpoint cannot be read",
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_shard_reports_the_error(results, name):
    texts = [shard[name] for shard in results["errors"]]
    for rank, text in enumerate(texts):
        expected = ERRORS[name].format(shards=len(texts))
        if name == "no file" and rank:
            expected = "shard 0 cannot restore; found"
        assert expected in text


def test_a_checkpoint_is_for_any_number_of_shards(tmp_path, run_programs):
    two = run_programs(2, *NAMES)["checkpoint"][0]
    loss = amp.value(models.loaded(models.LINEAR), "loss")
    with amp.TrainingSession(amp.optimizers.Adam(0.1).minimize(loss)) as session:
        for _ in range(2):
            session.run(batches(2))
        np.testing.assert_allclose(session.state_dict()["w"], two["w"], rtol=1e-5)
        session.save(tmp_path / "one.safetensors")
    with amp.distributed.shard_context(4):
        loss = amp.value(models.loaded(models.LINEAR), "loss")
        op = models.cross(amp.optimizers.Adam(0.1)).minimize(loss)
    with amp.TrainingSession(op) as session:
        session.restore(tmp_path / "one.safetensors")
        assert session.global_step == 2


DEATHS = {
    "killed": "Killed (signal 9)",
    "hangs": "another shard does not answer; found no answer in 8 seconds",
    "hangs without a block": "another shard does not answer; found no answer in 8 seconds",
    "raises": "ArithmeticError: shard 1 cannot go on",
}


@pytest.mark.share(4)
@pytest.mark.parametrize("how", DEATHS)
def test_a_shard_that_dies_ends_the_others_and_leaves_the_checkpoint(how, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    script = programs.Path(programs.__file__).with_name("dying_shard.py")
    done = start(2, script, how, path)
    assert done.returncode != 0
    assert DEATHS[how] in done.stdout + done.stderr
    checkpoint = read_checkpoint(path)
    assert checkpoint.progress == {"step": 15}
    assert checkpoint.tensors["global_step"] == 15
