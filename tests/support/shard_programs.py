"""Programs that run on several shards: python shard_programs.py FOLDER NAME...

Each returns what the tests look at; shard 0 writes the results of all shards to results.json.
"""

import contextlib
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

sys.path.append(str(Path(__file__).parent))  # started with -P
from digits_file import all_digits
from shard_models import (
    LINEAR,
    TABLE,
    TWO_LAYERS,
    cross,
    dropping_cnn,
    loaded,
    micro_batch,
    momentum,
    normalised_cnn,
    own_batch,
    plain_cnn,
    scaled,
    slow_momentum,
    table_batch,
)

import amp_rewrite as amp
from amp_rewrite.training.distributed.collective import compare, gather_text
from amp_rewrite.training.distributed.staged_program import _Bucket

STEPS, BATCH = 40, 64


def digest(session):
    """Return a hash of every state."""
    states = session.state_dict()
    return {n: hashlib.blake2b(a.tobytes(), digest_size=8).hexdigest() for n, a in states.items()}


def losses(shards, proto, optimizer, steps=STEPS, **options):
    """Train on digits; return losses and hashes. Without shards it is the reference."""
    op = optimizer.minimize(amp.value(loaded(proto), "loss"))
    data = all_digits() if shards is None else shards.data(all_digits())
    found = []
    with amp.TrainingSession(op, threads=1, shards=shards, **options) as session:
        for epoch in range(-(-steps // data.steps(BATCH))):
            for batch in data.epoch(BATCH, number=epoch, seed=0, drop_last=True):
                if len(found) < steps:
                    found.append(float(session.run(batch, "loss")["loss"]))
        return {"losses": found, "states": digest(session)}


FLOAT16 = {"precision": "float16", "emulate": True, "steps": 50}


def curve(shards, folder):
    """Float32."""
    return losses(shards, plain_cnn(), cross(momentum()))


def curve_normalised(shards, folder):
    """BatchNormalization: every shard sees the same examples, and so the same statistics."""
    return repeated(shards, cross(momentum()))


def repeated(shards, optimizer, copies=1, steps=20):
    """Train on batches whose examples occur `copies` times."""
    op = optimizer.minimize(amp.value(loaded(normalised_cnn()), "loss"))
    found = []
    with amp.TrainingSession(op, threads=1, shards=shards) as session:
        for batch in list(all_digits().epoch(BATCH))[:steps]:
            feeds = {n: np.concatenate([a] * copies) for n, a in batch.items()}
            found.append(float(session.run(feeds, "loss")["loss"]))
        statistics = {n: a.tolist() for n, a in session.state_dict().items() if n.endswith("1.var")}
        return {"losses": found, "states": digest(session), **statistics}


def normalised_apart(shards, folder):
    """Every shard normalises by its own examples; the states stay the same nevertheless."""
    return losses(shards, normalised_cnn(), cross(momentum()), steps=10)


def curve_float16(shards, folder):
    """Emulated float16 with a loss scale inside."""
    return losses(shards, plain_cnn(), cross(scaled(slow_momentum())), **FLOAT16)


def one_step(shards, reduction, groups=None, feeds=None):
    """Return loss, gradient norm and weights after a step of gradient descent with rate 1."""
    optimizer = amp.optimizers.GradientDescent(1.0)
    wrapped = cross(optimizer, reduction=reduction, group_assignment=groups)
    op = wrapped.minimize(amp.value(loaded(LINEAR), "loss"))
    with amp.TrainingSession(op) as session:
        out = session.run(feeds or own_batch(shards), ["loss", "gradient_norm"])
        return {**{k: float(v) for k, v in out.items()}, "w": session.state_dict()["w"].tolist()}


def reductions(shards, folder):
    return {name: one_step(shards, name) for name in ("SUM", "MEAN")}


def groups(shards, folder):
    """Pairs of neighbours; of two shards, each alone."""
    size = max(1, shards.size // 2)
    pairs = [list(range(i, i + size)) for i in range(0, shards.size, size)]
    turned = [list(reversed(range(shards.size)))]
    return {"pairs": one_step(shards, "mean", pairs), "turned": one_step(shards, "mean", turned)}


def hierarchy(shards):
    """Return pairs of neighbours, and what joins the pairs; of two shards, themselves."""
    size = max(1, shards.size // 2)
    rows = [list(range(i, i + size)) for i in range(0, shards.size, size)]
    return rows, [list(column) for column in zip(*rows, strict=True)]


def nested(shards, folder):
    """Sums of sums: of all shards twice, and of groups of groups; dense, sparse and in float16."""
    rows, columns = hierarchy(shards)
    ways = {
        "twice": lambda o: cross(cross(o)),
        "sum of sums": lambda o: cross(cross(o, reduction="sum"), reduction="sum"),
        "hierarchy": lambda o: cross(cross(o, group_assignment=rows), group_assignment=columns),
        "three": lambda o: cross(cross(cross(o, group_assignment=rows)), group_assignment=columns),
    }
    found = {name: one_linear(shards, wrap) for name, wrap in ways.items()}
    found["by hand"] = one_linear(shards, None)
    found["sparse"] = sparse_step(shards, ways["hierarchy"])
    loss = amp.value(loaded(normalised_cnn()), "loss")
    op = ways["hierarchy"](scaled(momentum())).minimize(loss)
    feeds = next(shards.data(all_digits()).epoch(BATCH))
    with amp.TrainingSession(op, precision="float16", emulate=True) as session:
        session.run(feeds)
        session.run(feeds)
        found["statistics"] = digest(session)
    return found


def one_linear(shards, wrap):
    """Return loss, gradient norm and weights after a step; None reduces gradients twice by hand."""
    loss = amp.value(loaded(LINEAR), "loss")
    if wrap is None:
        optimizer = cross(amp.optimizers.GradientDescent(1.0))
        pairs = optimizer.reduce_gradients(optimizer.compute_gradients(loss))
        op = optimizer.apply_gradients(pairs)
    else:
        op = wrap(amp.optimizers.GradientDescent(1.0)).minimize(loss)
    with amp.TrainingSession(op) as session:
        out = session.run(own_batch(shards), ["loss", "gradient_norm"])
        return {**{k: float(v) for k, v in out.items()}, "w": session.state_dict()["w"].tolist()}


def sparse_step(shards, wrap):
    """Return the table after a step."""
    loss = amp.value(loaded(TABLE), "loss")
    op = wrap(amp.optimizers.GradientDescent(1.0)).minimize(loss, var_list=["w"])
    with amp.TrainingSession(op) as session:
        session.run(table_batch(shards.rank))
        return {"w": session.state_dict()["w"].tolist(), "states": digest(session)}


def sparse(shards, folder):
    """Rows of a table, some of them on both shards, and a variable without a gradient."""
    rule = amp.optimizers.Adam(0.1, lazy=True)
    model = loaded(TABLE)
    pairs = cross(rule).compute_gradients(amp.value(model, "loss"), var_list=["w", "unused"])
    op = cross(rule).apply_gradients(pairs)
    own = table_batch(shards.rank)
    with amp.TrainingSession(op) as session:
        for _ in range(3):
            session.run(own)
        return {"w": session.state_dict()["w"].tolist(), "states": digest(session)}


def one_infinity(shards, folder):
    """Shard 1 meets an infinity in step 2."""
    found = {}
    for name, wrap in {
        "inside": lambda o: cross(scaled(o)),
        "outside": lambda o: scaled(cross(o)),
        "select": lambda o: amp.LossScaleOptimizer(
            cross(o), amp.DynamicLossScale(1024.0), conditional="select"
        ),
    }.items():
        op = wrap(amp.optimizers.Adam(0.1)).minimize(amp.value(loaded(LINEAR), "loss"))
        trace = []
        with amp.TrainingSession(op) as session:
            for step in range(4):
                feeds = own_batch(shards)
                if step == 2 and shards.rank == 1:
                    feeds["x"] = np.full_like(feeds["x"], np.inf)
                before = digest(session)
                out = session.run(feeds, ["grads_finite", "loss_scale", "skipped_steps"])
                after = digest(session)
                row = {k: float(v) for k, v in out.items()}
                kept = [n for n in after if before[n] == after[n]]
                trace.append({**row, "states": after, "kept": kept})
        found[name] = trace
    return found


def accumulated(shards, folder):
    """Three batches make an update; in the third update shard 1 meets an infinity."""
    found = {}
    for conditional in ("if", "select"):
        optimizer = amp.LossScaleOptimizer(
            cross(amp.optimizers.Adam(0.1)),
            amp.DynamicLossScale(1024.0),
            conditional=conditional,
        )
        op = optimizer.minimize(amp.value(loaded(LINEAR), "loss"), accumulate=3)
        rows, refused = [], ""
        with counted_sums() as sums, amp.TrainingSession(op) as session:
            for batch in range(12):
                feeds = micro_batch(shards, batch)
                if batch == 7 and shards.rank == 1:
                    feeds["x"] = np.full_like(feeds["x"], np.inf)
                if batch == 4:
                    try:
                        session.save(Path(folder) / "c.safetensors")
                    except amp.AmpError as error:
                        refused = str(error)
                before, count = digest(session), len(sums)
                out = session.run(feeds, ["grads_finite", "loss_scale", "accumulated"])
                after = digest(session)
                kept = [n for n in after if before[n] == after[n]]
                row = {k: float(v) for k, v in out.items()}
                rows.append({**row, "kept": kept, "sums": len(sums) - count})
            states = {k: v.tolist() for k, v in session.state_dict().items()}
        found[conditional] = {"rows": rows, "states": states, "refused": refused}
    return found


@contextlib.contextmanager
def counted_sums():
    """Yield a list that grows by the names of the values that are summed."""
    known, sums = _Bucket.exchange, []

    def exchange(self, group, values):
        sums.extend(self.results)
        known(self, group, values)

    _Bucket.exchange = exchange
    try:
        yield sums
    finally:
        _Bucket.exchange = known


def dropout(shards, folder):
    """The same images on both shards; what differs is the masks."""
    op = cross(momentum()).minimize(amp.value(loaded(dropping_cnn()), "loss"))
    data = all_digits()
    feeds = next(data.epoch(8))
    with amp.TrainingSession(op, threads=1) as session:
        hidden = session.run(feeds, "Dropout_8/mask")["Dropout_8/mask"]
        return {
            "dropped": float((hidden == 0).mean()),
            "mask": digest_of(hidden),
            "states": digest(session),
        }


def digest_of(array):
    return hashlib.blake2b((array != 0).tobytes(), digest_size=8).hexdigest()


def checkpoint(shards, folder):
    """Shard 0 writes, all restore; the file is for any number of shards."""
    op = cross(amp.optimizers.Adam(0.1)).minimize(amp.value(loaded(LINEAR), "loss"))
    path = folder / "two.safetensors"
    with amp.TrainingSession(op) as session:
        session.run(own_batch(shards))
        session.save(path, {"epoch": 1})
        saved = digest(session)
        session.run(own_batch(shards))
        progress = session.restore(path)
        restored = digest(session)
        session.run(own_batch(shards))
        return {
            "progress": progress,
            "same": saved == restored,
            "states": digest(session),
            "w": session.state_dict()["w"].tolist(),
        }


def fetches(shards, folder):
    """Shards fetch different values: what is summed, and in which order, is the same."""
    gradients = ["gradient/Gemm_1", "loss"]
    found = {}
    for name, own in {"like": ["loss"], "none": [], "local": gradients}.items():
        loss = amp.value(loaded(TWO_LAYERS), "loss")
        op = cross(amp.optimizers.GradientDescent(0.01)).minimize(loss)
        with amp.TrainingSession(op) as session:
            session.run(own_batch(shards), own if shards.rank else ["loss"])
            out = session.run(own_batch(shards), own if shards.rank else ["loss"])
            found[name] = digest(session)
            assert sorted(out) == sorted(own if shards.rank else ["loss"])
    return found


def initial(shards, folder):
    """Shards begin with other weights: those of shard 0 are taken."""
    model = onnx.parser.parse_model(LINEAR)
    if shards.rank:
        other = onnx.numpy_helper.from_array(np.zeros((3, 1), np.float32), "w")
        model.graph.initializer[0].CopyFrom(other)
    op = cross(momentum()).minimize(amp.value(loaded(model), "loss"))
    with amp.TrainingSession(op) as session:
        return {"w": session.state_dict()["w"].tolist()}


def errors(shards, folder):
    """Return the texts of errors that every shard meets alike."""
    first = shards.rank == 0
    narrow = LINEAR.replace("[N, 3] x", "[N, 2] x")
    narrow = narrow.replace("[3, 1] w = {1, 2, 3}", "[2, 1] w = {1, 2}")
    relu = LINEAR.replace("s = Mul (d, d)", "s = Abs (d)")
    found = {}

    def attempt(name, action):
        try:
            action()
            found[name] = None
        except amp.AmpError as error:
            found[name] = f"{type(error).__name__}: {error}"

    def session(text, wrap=cross, explicit=None):
        op = wrap(momentum()).minimize(amp.value(loaded(text), "loss"))
        return amp.TrainingSession(op, shards=explicit)

    attempt("shapes", lambda: session(LINEAR if first else narrow))
    attempt("operators", lambda: session(LINEAR if first else relu))
    attempt("optimizers", lambda: session(LINEAR, cross if first else lambda o: cross(scaled(o))))
    attempt("no sums", lambda: session(LINEAR, lambda o: o, explicit=shards))
    attempt("division", lambda: shards.part({"x": np.zeros((3, 2))}))
    attempt("batch", lambda: list(shards.data({"x": np.zeros((9, 2))}).epoch(3)))

    def three():
        with amp.distributed.shard_context(6):
            op = cross(momentum(), group_assignment=[[0, 1, 2], [3, 4, 5]]).minimize(
                amp.value(loaded(LINEAR), "loss")
            )
        amp.TrainingSession(op)

    attempt("groups", three)
    with session(LINEAR) as opened:
        attempt("no file", lambda: opened.restore(folder / "missing.safetensors"))
    with session(LINEAR) as opened:

        def meet(what):
            compare(shards.collective, "their calls", what)

        attempt("different calls", lambda: meet("restore" if first else "save"))
    return found


def main(folder, *names):
    with amp.distributed.mpi(timeout=60) as shards:
        results = {}
        for name in names:
            own = globals()[name](shards, Path(folder))
            results[name] = [json.loads(t) for t in gather_text(shards.collective, json.dumps(own))]
        if shards.is_first:
            (Path(folder) / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
