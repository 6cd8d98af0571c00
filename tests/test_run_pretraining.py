"""The real command: what it writes, resuming after a kill, and what bad input gets."""

import functools
import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from convbert.common import stopping
from convbert.common.errors import InputError, LossNotFinite
from convbert.common.locks import locked
from convbert.data.vocabulary import Vocabulary
from convbert.pretrain import evaluation
from convbert.pretrain.load import load_encoder, load_hparams, load_objective
from convbert.training import monitoring
from convbert.training import run as training_run
from convbert.training.loop import Evaluator, Trainer
from tests import command_support
from tests import pretraining_support as small
from tests.build_support import content
from tests.damage_support import delete, each, edit, shorten
from tests.finetune.kinds_support import rejects

EVALUATE = {"do_train": False, "do_eval": True}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A small data folder, made by the real builder, and beside it `data64` of longer sequences."""
    folder = tmp_path_factory.mktemp("pretraining")
    small.build_data(folder, "data64", max_seq_length=64, num_shards=3)
    return small.build_data(folder, "data32", num_shards=3)


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("trained") / "model"
    small.run(data_dir, model_dir, do_eval=True)
    return model_dir


@pytest.fixture
def copies(data_dir, trained, tmp_path):
    """A folder with copies of the run, `m`, and of its data, `data`."""
    shutil.copytree(trained, tmp_path / "m")
    shutil.copytree(data_dir, tmp_path / "data")
    return tmp_path


def test_what_a_model_directory_holds(trained, data_dir):
    names = {"config.json", "vocab.txt", "hparams.json", "metrics.jsonl"}
    assert names | {"tokenizer_config.json"} <= set(os.listdir(trained))
    for split in ("train", "heldout"):
        assert list((trained / split).glob("*tfevents*"))
    rows = small.metrics(trained)
    assert [r["step"] for r in rows if r["split"] == "train"] == [2, 4, 5, 7, 9, 10, 12]
    assert [r["step"] for r in rows if r["split"] == "heldout"] == [5, 10, 12]
    assert {"loss", "disc_auc", "masked_lm_accuracy", "learning_rate"} <= set(rows[0])
    record = json.loads((trained / "hparams.json").read_text())
    assert record["versions"]["tensorflow"] == tf.__version__
    assert load_hparams(str(trained))[0].train_batch_size == 4
    assert Vocabulary.load(trained).digest == Vocabulary.load(data_dir).digest
    stored = small.checkpoint_tensors(trained, 12)
    name = "objective/encoder/embeddings/word_embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    for encoder in (load_encoder(str(trained)), load_objective(str(trained)).encoder):
        np.testing.assert_array_equal(stored[name], encoder.embeddings.word_embeddings)


def test_the_mean_of_the_last_checkpoints(trained, tmp_path):
    mean = tmp_path / "mean"
    assert small.average(str(trained), 2, str(mean)) == [10, 12]
    places = (trained, 10), (trained, 12), (mean, 12)
    first, last, found = (small.checkpoint_tensors(*place) for place in places)
    assert not any(name.startswith("optimizer") for name in found)
    names = [name for name in found if name.startswith("objective") and name in last]
    assert any((first[name] != last[name]).any() for name in names)
    for name in names:
        middle = (first[name] + last[name]) / 2
        np.testing.assert_allclose(found[name], middle, rtol=1e-6, atol=1e-8)
    objective = load_objective(str(mean))
    assert len(objective.trainable_variables) <= len(names)
    (hparams, run), (same, settings) = map(load_hparams, map(str, (trained, mean)))
    del settings["converted"]
    assert (same, {**run, **settings}) == (hparams, run)
    assert evaluation.is_own_data(run["data_dir"], str(mean))
    with pytest.raises(InputError, match="keep_checkpoint_max"):
        small.average(str(trained), 4, str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    shutil.copytree(trained, tmp_path / "damaged")
    (tmp_path / "damaged/checkpoints/model.ckpt-12.index").unlink()
    assert small.average(str(tmp_path / "damaged"), 2, str(tmp_path / "of_10")) == [5, 10]


def test_a_signal_saves_and_the_run_is_resumed(data_dir, tmp_path, monkeypatch, capsys):
    bar, hparams = monitoring.ProgressBar, {"objective": "masked_lm"}
    (tmp_path / "m").mkdir()  # with a list of an earlier run
    (tmp_path / "m" / "skipped_steps.json").write_text('{"steps": [6]}')
    command_support.signal_after(monkeypatch, bar, "__call__", signal.SIGTERM, 2)
    with pytest.raises(stopping.Stopped) as stopped:
        small.run(data_dir, tmp_path / "m", hparams)
    assert stopped.value.status == 143
    assert small.checkpoint_tensors(tmp_path / "m", 4)
    skipped = tmp_path / "m" / "skipped_steps.json"
    assert json.loads(skipped.read_text()) == {"steps": []}
    small.run(data_dir, tmp_path / "m", hparams)
    assert small.metrics(tmp_path / "m")[-1]["step"] == 12
    assert "resuming from step 4 of 12" in capsys.readouterr().err
    # Checkpoints of 4, 5, 10 and 12 steps: a mean has none of the interruption.
    assert small.average(str(tmp_path / "m"), 3, str(tmp_path / "mean")) == [5, 10, 12]


@pytest.mark.slow  # needs two runs
def test_an_evaluation_that_was_cut_short_is_repeated(data_dir, tmp_path, monkeypatch):
    """A run's measurements do not depend on where it was stopped."""
    hparams = {"objective": "masked_lm", "num_train_steps": 8}
    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "evaluate", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small.run(data_dir, tmp_path / "m", hparams, do_eval=True)
    small.run(data_dir, tmp_path / "m", hparams, do_eval=True)
    rows = [(row["step"], row["split"]) for row in small.metrics(tmp_path / "m")]
    train = [(step, "train") for step in (2, 4, 5, 7, 8)]
    assert rows == [*train[:3], (5, "heldout"), *train[3:], (8, "heldout")]


@pytest.mark.slow  # needs a run
def test_a_clock_that_jumps(data_dir, trained, tmp_path, monkeypatch):
    """By a day, forward and back, in a run that is stopped and resumed."""
    clock, draw = time.time, np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: clock() + draw.uniform(-1e5, 1e5))
    with monkeypatch.context() as patched:
        bar = monitoring.ProgressBar
        command_support.signal_after(patched, bar, "__call__", signal.SIGTERM, 4)
        with pytest.raises(stopping.Stopped):
            small.run(data_dir, tmp_path / "m", do_eval=True)
    small.run(data_dir, tmp_path / "m", do_eval=True)
    small.assert_same_run(tmp_path / "m", trained, 12)


def test_a_second_command_on_the_model_directory_is_rejected(data_dir, tmp_path):
    with locked(str(tmp_path / "m")):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError):
            small.run(data_dir, tmp_path / "m")
        assert sorted(tmp_path.rglob("*")) == before


def test_settings_that_do_not_change_results_may_change(copies, capsys):
    """They may also change for a finished run: only its records are rewritten."""
    before = content(copies / "m")
    small.run(copies / "data", copies / "m", {"iterations_per_loop": 5, "keep_checkpoint_max": 2})
    assert "training is finished: step 12" in capsys.readouterr().err
    after = content(copies / "m")
    rewritten = {os.path.basename(name) for name in before if after[name] != before[name]}
    assert rewritten <= {"hparams.json", "metrics.jsonl", "checkpoint"}


def not_finite_at(monkeypatch, *steps):
    """Gives these steps, from 1, a loss and gradients that are not finite."""
    gradients = Trainer._gradients_fn

    def poisoned(self, *args):
        bad = tf.reduce_any(self.optimizer.iterations + 1 == tf.constant(steps, tf.int64))
        loss, sums, found = gradients(self, *args)
        factor = tf.where(bad, np.nan, 1.0)
        return loss * factor, sums, [gradient * factor for gradient in found]

    monkeypatch.setattr(Trainer, "_gradients_fn", poisoned)


def test_steps_that_are_not_finite_are_skipped(data_dir, tmp_path, monkeypatch):
    """The run goes back to its checkpoint. A signal meanwhile saves what was restored."""
    hparams = {"objective": "masked_lm", "num_train_steps": 16, "iterations_per_loop": 2}
    hparams |= {"save_checkpoints_steps": 4, "keep_checkpoint_max": 0}
    with monkeypatch.context() as patch:
        not_finite_at(patch, 6, 7, 11)
        command_support.signal_after(patch, training_run, "warn", signal.SIGTERM)
        with stopping.handling(), pytest.raises(stopping.Stopped):
            small.run(data_dir, tmp_path / "m", hparams)
        small.run(data_dir, tmp_path / "m", hparams)
    skipped = (tmp_path / "m" / "skipped_steps.json").read_text()
    assert json.loads(skipped) == {"steps": [6, 7, 11]}
    rows = {row["step"]: row for row in small.metrics(tmp_path / "m") if row["split"] == "train"}
    counts = [rows[step].get("skipped_steps") for step in range(2, 17, 2)]
    assert counts == [None, None, 1.0, 1.0, None, 1.0, None, None]
    shutil.copytree(tmp_path / "m", tmp_path / "told")
    for step in (8, 12, 16):
        for path in (tmp_path / "told" / "checkpoints").glob(f"model.ckpt-{step}.*"):
            path.unlink()
    small.run(data_dir, tmp_path / "told", hparams)  # no step is bad, but these are skipped
    small.assert_same_run(tmp_path / "told", tmp_path / "m", 16)


@pytest.mark.slow  # needs half a minute: four runs
def test_steps_that_are_not_finite_end_a_run(data_dir, tmp_path, monkeypatch):
    """Those beyond the limit, and before the first checkpoint, also of a continued run."""
    hparams = {"objective": "masked_lm", "num_train_steps": 12, "iterations_per_loop": 2}
    hparams |= {"save_checkpoints_steps": 4}
    small.run(data_dir, tmp_path / "source", {**hparams, "num_train_steps": 4})
    for name, steps, changes, options in (
        ("limit", (6, 7), {"max_skipped_steps": 1}, {}),
        ("first", (3,), {}, {}),
        ("continued", (6,), {}, {"continue_from": tmp_path / "source"}),
    ):
        (tmp_path / name).mkdir()
        if name == "first":  # of another run
            (tmp_path / name / "skipped_steps.json").write_text('{"steps": [3]}')
        with monkeypatch.context() as patch:
            not_finite_at(patch, *steps)
            with pytest.raises(LossNotFinite) as error:
                small.run(data_dir, tmp_path / name, hparams | changes, **options)
        assert error.value.step == steps[-1]


def test_a_damaged_list_of_skipped_steps_is_named(copies, data_dir):
    for text in ('{"steps": null}', "{}", '{"steps": ["1"]}'):
        (copies / "m" / "skipped_steps.json").write_text(text)
        with rejects("skipped_steps.json"):
            small.run(copies / "data", copies / "m")


@pytest.mark.slow  # needs a second data folder
def test_a_finished_model_is_evaluated_on_other_data(copies, data_dir, capsys):
    options = {"count": 60, "seed": 1, "heldout_fraction": 0.3}
    other = small.build_data(copies, "other", words=small.WORDS[:9], vocab=data_dir, **options)
    evaluate_only = functools.partial(small.run, defaults={}, **EVALUATE)  # repeats no setting
    model = copies / "m"
    before, rows = content(model), small.metrics(model)
    for _ in range(2):
        evaluate_only(other, model)
    assert f"of {other}, other data" in capsys.readouterr().err
    *kept, row = small.metrics(model)
    assert kept == rows
    assert (row["step"], row["split"], row["data_dir"]) == (12, "other_heldout", other)
    after = content(model)
    assert {name for name in after if before.get(name) != after[name]} == {"metrics.jsonl"}

    line = [f"--data_dir={other}", f"--model_dir={model}", f"--output={copies / 'learned.json'}"]
    command_support.run("-m", "convbert.examples.quickstart.learned", *line)
    learned = json.loads((copies / "learned.json").read_text())
    assert 0 < learned["hidden"] < learned["chosen"]  # the n-grams' tokens are the model's
    assert learned["model"]["disc_auc"] == pytest.approx(row["disc_auc"], abs=1e-3)

    own = next(row for row in reversed(rows) if row["split"] == "heldout")
    assert row["loss"] != own["loss"]
    evaluate_only(data_dir, model)  # its own: takes the place of its row
    assert [row for row in small.metrics(model) if row["split"] == "heldout"][-1] == own
    assert len(small.metrics(model)) == len(rows) + 1
    small.run(data_dir, model)  # training knows the directory as it was
    manifest = Path(data_dir, "manifest.json").read_text()  # of the same corpus
    Path(other, "manifest.json").write_text(manifest.replace('"seed": 0', '"seed": 7'))
    capsys.readouterr()
    evaluation.describe_data(str(other), str(model))
    assert "warning: " in capsys.readouterr().err


def vocabulary(known=False, **changes):
    """Another vocabulary of the data; `known` to the manifest of its records, which is removed."""

    def change(folder):
        tokens = Vocabulary.load(folder / "data").tokens
        if not changes:
            tokens = (*tokens[:-2], *reversed(tokens[-2:]))
        Vocabulary(tokens, **changes).save(folder / "data")
        if known:
            (folder / "data" / "manifest.json").unlink()

    return change


def widths(**changes):
    return {"model_hparam_overrides": {**small.HPARAMS["model_hparam_overrides"], **changes}}


OTHER = "holds a run of another configuration"
NEW = {"model_dir": "{0}/new"}
DATA = ["model.ckpt-5 ", "model.ckpt-10 ", "model.ckpt-12 "]
# What is done to the copies, hyper-parameters, options, and what the error names.
REJECTED = {
    # The run of another configuration, in whatever state its checkpoints are.
    "differences": (None, {"learning_rate": 2e-3, "mask_prob": 0.2}, {},
                    OTHER, "learning_rate: 0.001 there, 0.002 now", "mask_prob: 0.15 there"),
    "other text": (edit("data/manifest.json:settings", corpus_digest="of another text"), {}, {},
                   "--data_dir was ", "is {}/data now"),
    "other network": (edit("m/hparams.json:hparams", **widths(intermediate_size=48)),
                      widths(intermediate_size=48), {}, "model.ckpt-12"),
    # A damaged model directory.
    "no checkpoints": (each("m/checkpoints/*", delete), {}, {}, "came to step 12"),
    "record empty": (each("m/hparams.json", lambda path: path.write_text("{}")), {}, {},
                     "hparams.json"),
    "all cut": (each("m/checkpoints/*.data-*", shorten), {}, {}, *DATA),
    "all cut, evaluated": (each("m/checkpoints/*.data-*", shorten), {}, EVALUATE, *DATA),
    # Hyper-parameters that do not fit the data, the devices or each other.
    "length": (None, {"max_seq_length": 24}, NEW, "`max_seq_length` should be 32"),
    "case": (None, {"do_lower_case": False}, NEW, "`do_lower_case` should be True"),
    "devices": (None, {"train_batch_size": 5}, {**NEW, "strategy": "mirrored:2"},
                "divisible by the 2 devices"),
    # Nothing to start from.
    "no steps": (None, {}, {**NEW, "continue_from": "{0}/m"}, "`num_train_steps`"),
    # The data.
    "other tokens": (vocabulary(), {}, NEW, "not the one the records were built with"),
    "other vocabulary": (vocabulary(known=True), {"num_train_steps": 20},
                         {**NEW, "continue_from": "{0}/m"}, "its vocabulary is not that of"),
    "nothing held out": (each("data/heldout*", delete), {}, {**NEW, "do_eval": True},
                         "heldout_tfrecords"),
    "no records": (each("data/pretrain_tfrecords", delete), {}, NEW, "no record files"),
    # Data to evaluate on.
    "evaluated casing": (vocabulary(known=True, do_lower_case=False), {}, EVALUATE,
                         "do_lower_case"),
    "evaluated length": (None, {}, {**EVALUATE, "data_dir": "{1}/data64"},
                         "data64", "max_seq_length"),
    "evaluated setting": (None, {"mask_prob": 0.2}, EVALUATE, "mask_prob: 0.15 there, 0.2 now"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name, data_dir, copies):
    change, hparams, options, *named = REJECTED[name]
    if change is not None:
        change(copies)
    options = {"data_dir": "{0}/data", "model_dir": "{0}/m", **options}
    places = copies, os.path.dirname(data_dir)
    options = {n: v.format(*places) if isinstance(v, str) else v for n, v in options.items()}
    before = sorted(copies.rglob("*")), content(copies)
    with rejects(*(text.format(copies) for text in named)):
        small.run(hparams=hparams, **options)
    assert (sorted(copies.rglob("*")), content(copies)) == before
