"""The real command: what it writes, going on after a kill, and what bad input gets."""

import itertools
import json
import os
import pathlib
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

import run_pretraining
from data import build
from data.vocabulary import Vocabulary
from errors import InputError, TrainingStopped
from pretrain.load import load_encoder, load_hparams, load_objective
from tests import command_support
from tests.command_support import Command
from training.monitoring import read_metrics

WORDS = [f"w{i}" for i in range(60)]
HPARAMS = {
    "model_size": "convbert-tiny",
    "model_hparam_overrides": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "embedding_size": 16,
        "max_position_embeddings": 64,
    },
    "generator_hidden_size": 0.5,
    "train_batch_size": 4,
    "max_seq_length": 32,
    "num_train_steps": 12,
    "num_warmup_steps": 2,
    "learning_rate": 1e-3,
    "iterations_per_loop": 2,
    "save_checkpoints_steps": 5,
    "num_eval_steps": 2,
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A small data folder, made by the real builder."""
    folder = tmp_path_factory.mktemp("pretraining")
    rng = np.random.default_rng(0)
    documents = ["\n".join(" ".join(rng.choice(WORDS, 12)) for _ in range(6)) for _ in range(80)]
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    Vocabulary(tokens).save(folder / "vocabulary")
    for length in (32, 64):
        build.build(
            build.BuildOptions(
                corpus=str(folder / "corpus.txt"),
                corpus_format="text",
                output_dir=str(folder / f"data{length}"),
                vocab=str(folder / "vocabulary"),
                max_seq_length=length,
                heldout_fraction=0.1,
                num_shards=3,
            )
        )
    return str(folder / "data32")


def arguments(data_dir, model_dir, hparams, **options):
    options = {
        "data_dir": data_dir,
        "model_name": "m",
        "model_dir": str(model_dir),
        "hparams": json.dumps({**HPARAMS, **hparams}),
        **options,
    }
    return [f"--{name}={value}" for name, value in options.items()]


def run(data_dir, model_dir, hparams=None, **options):
    """`main` in this process, with the flags as a command line would set them."""
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(
            ["run_pretraining.py", *arguments(data_dir, model_dir, hparams or {}, **options)]
        )
        run_pretraining.main(["run_pretraining.py"])


def checkpoint_tensors(model_dir, step):
    reader = tf.train.load_checkpoint(
        str(pathlib.Path(model_dir) / f"checkpoints/model.ckpt-{step}")
    )
    names = reader.get_variable_to_shape_map()
    skipped = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    return {name: reader.get_tensor(name) for name in names if name not in skipped}


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    """A finished run, with evaluation."""
    model_dir = tmp_path_factory.mktemp("trained") / "model"
    run(data_dir, model_dir, do_eval=True)
    return model_dir


def test_what_a_model_directory_holds(trained, data_dir):
    names = set(os.listdir(trained))
    assert {"config.json", "vocab.txt", "hparams.json", "metrics.jsonl", "curves.png"} <= names
    assert {"train", "heldout", "checkpoints", "tokenizer_config.json"} <= names
    for split in ("train", "heldout"):
        assert any("tfevents" in name for name in os.listdir(trained / split))
    rows = read_metrics(str(trained))
    assert [r["step"] for r in rows if r["split"] == "train"] == [2, 4, 5, 7, 9, 10, 12]
    assert [r["step"] for r in rows if r["split"] == "heldout"] == [5, 10, 12]
    assert {"loss", "disc_auc", "masked_lm_accuracy", "learning_rate"} <= set(rows[0])
    record = json.loads((trained / "hparams.json").read_text())
    assert record["hparams"]["seed"] == 0
    assert record["versions"]["tensorflow"] == tf.__version__
    hparams, _ = load_hparams(str(trained))
    assert hparams.train_batch_size == 4
    assert Vocabulary.load(trained).digest == Vocabulary.load(data_dir).digest


def test_the_encoder_comes_back(trained):
    objective, encoder = load_objective(str(trained)), load_encoder(str(trained))
    for a, b in zip(objective.encoder.get_weights(), encoder.get_weights()):
        np.testing.assert_array_equal(a, b)
    stored = checkpoint_tensors(trained, 12)
    name = "objective/encoder/embeddings/word_embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(stored[name], encoder.embeddings.word_embeddings)


@pytest.mark.slow  # needs most of a minute: three processes train
def test_killed_at_any_moment_it_goes_on_as_if_never_stopped(data_dir, tmp_path):
    """A real SIGKILL of the real command, between checkpoints; equal to the bit."""
    hparams = {"num_train_steps": 300, "save_checkpoints_steps": 40, "iterations_per_loop": 3}

    def start(model_dir):
        return Command("run_pretraining.py", *arguments(data_dir, model_dir, hparams))

    whole, killed = start(tmp_path / "whole"), start(tmp_path / "killed")
    deadline = time.monotonic() + 300
    while not [r for r in read_metrics(str(tmp_path / "killed")) if r["step"] > 100]:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    stopped_at = read_metrics(str(tmp_path / "killed"))[-1]["step"]
    assert 100 < stopped_at < 300
    resumed = start(tmp_path / "killed")
    for process in (whole, resumed):
        done = process.finish()
        assert done.returncode == 0, done.stderr
    expected = checkpoint_tensors(tmp_path / "whole", 300)
    found = checkpoint_tensors(tmp_path / "killed", 300)
    assert set(found) == set(expected)
    assert len(expected) > 100
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)

    def rows(name):  # everything that was measured, but for the time
        return [{**row, "time": 0} for row in read_metrics(str(tmp_path / name))]

    assert rows("killed") == rows("whole")


def test_a_signal_saves_and_the_run_is_resumed(data_dir, tmp_path, monkeypatch):
    bar, hparams = run_pretraining.monitoring.ProgressBar, {"electra_objective": False}
    command_support.signal_after(monkeypatch, bar, "__call__", signal.SIGTERM, 2)
    with pytest.raises(SystemExit) as stopped:
        run(data_dir, tmp_path / "m", hparams)
    assert stopped.value.code == 143
    assert checkpoint_tensors(tmp_path / "m", 4)
    run(data_dir, tmp_path / "m", hparams)
    assert read_metrics(str(tmp_path / "m"))[-1]["step"] == 12


def test_an_evaluation_that_was_cut_short_is_repeated(data_dir, tmp_path, monkeypatch):
    """What a run measures does not depend on where it was stopped."""
    evaluate = run_pretraining.Evaluator.evaluate
    monkeypatch.setattr(run_pretraining.Evaluator, "evaluate", lambda *_: 1 / 0)
    hparams = {"electra_objective": False, "num_train_steps": 8}
    with pytest.raises(ZeroDivisionError):
        run(data_dir, tmp_path / "m", hparams, do_eval=True)
    monkeypatch.setattr(run_pretraining.Evaluator, "evaluate", evaluate)
    run(data_dir, tmp_path / "m", hparams, do_eval=True)
    rows = [(row["step"], row["split"]) for row in read_metrics(str(tmp_path / "m"))]
    train = [(step, "train") for step in (2, 4, 5, 7, 8)]
    assert rows == [*train[:3], (5, "heldout"), *train[3:], (8, "heldout")]


def test_a_second_command_on_the_model_directory_is_rejected(data_dir, tmp_path, monkeypatch):
    def another(controller, *arguments):
        before = sorted((tmp_path / "m").rglob("*"))
        with pytest.raises(InputError, match="another command is at work here"):
            run(data_dir, tmp_path / "m", {"learning_rate": 2e-3})
        assert sorted((tmp_path / "m").rglob("*")) == before
        raise KeyboardInterrupt

    monkeypatch.setattr(run_pretraining, "train", another)
    with pytest.raises(KeyboardInterrupt):
        run(data_dir, tmp_path / "m")
    assert ".lock" not in os.listdir(tmp_path / "m")


@pytest.mark.slow  # needs three minutes: ten processes are signalled and start again
def test_a_signal_at_any_moment(data_dir, tmp_path):
    """Start-up, tracing, training, saving, evaluation: exit status, and equality to the bit."""
    hparams = {"num_train_steps": 60, "save_checkpoints_steps": 20, "iterations_per_loop": 3}
    hparams |= {"num_eval_steps": 40, "eval_batch_size": 1}

    def start(name):
        line = arguments(data_dir, tmp_path / name, hparams, do_eval=True)
        return Command("run_pretraining.py", *line)

    def rows(name):
        return [{**row, "time": 0} for row in read_metrics(str(tmp_path / name))]

    events = (
        "",
        "hparams.json",
        "metrics.jsonl",
        "checkpoints/*-20.index",
        "checkpoints/*-40.index",
    )
    assert start("whole").finish().returncode == 0
    statuses = []
    for moment, (event, delay) in enumerate(itertools.product(events, (0, 0.3))):
        name, number = f"m{moment}", (signal.SIGTERM, signal.SIGINT)[moment % 2]
        process = start(name)
        process.send_at(number, tmp_path / name, event, delay)
        done = process.finish()
        statuses.append(done.returncode)
        if done.returncode != 0:
            assert done.returncode == 128 + number, (moment, done.stderr)
            assert f"stopped by {number.name}" in done.stderr
            assert not (tmp_path / name / ".lock").exists()
            assert start(name).finish().returncode == 0
        assert rows(name) == rows("whole"), moment
        expected, found = (checkpoint_tensors(tmp_path / run, 60) for run in ("whole", name))
        assert set(found) == set(expected)
        for tensor, value in expected.items():
            np.testing.assert_array_equal(found[tensor], value, err_msg=f"{moment} {tensor}")
    assert len([status for status in statuses if status]) > len(statuses) // 2


def test_another_configuration_is_refused_with_the_difference(data_dir, trained, tmp_path):
    with pytest.raises(InputError) as error:
        run(data_dir, trained, {"learning_rate": 2e-3, "mask_prob": 0.2})
    assert "learning_rate: 0.001 there, 0.002 now" in str(error.value)
    assert "mask_prob: 0.15 there, 0.2 now" in str(error.value)
    with pytest.raises(InputError, match="seed: 0 there, 7 now"):
        run(data_dir, trained, seed=7)
    shutil.copytree(data_dir, tmp_path / "data")
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    manifest["settings"]["corpus_digest"] = "of another text"
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="data: "):
        run(str(tmp_path / "data"), trained)
    # Settings that do not change results may change.
    run(data_dir, trained, {"iterations_per_loop": 5, "keep_checkpoint_max": 2})


def test_continue_at_another_length(data_dir, trained, tmp_path):
    """The paper's further updates on longer sequences: weights, optimizer and step go along."""
    longer = data_dir.replace("data32", "data64")
    hparams = {"max_seq_length": 64, "num_train_steps": 15}
    run(longer, tmp_path / "m", hparams, continue_from=trained)
    rows = read_metrics(str(tmp_path / "m"))
    assert [r["step"] for r in rows] == [14, 15]
    assert rows[0]["learning_rate"] == pytest.approx(1e-3 * (1 - 14 / 15))
    changed = {"model_hparam_overrides": {**HPARAMS["model_hparam_overrides"], "hidden_size": 48}}
    with pytest.raises(InputError, match=r"another encoder:\n  hidden_size: 32 there, 48 now"):
        run(longer, tmp_path / "n", {**hparams, **changed}, continue_from=trained)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "mixed_bfloat16"},
        pytest.param({"xla": True}, marks=pytest.mark.slow),  # compiles for a quarter of a minute
        {"strategy": "mirrored:2"},
        pytest.param({"hparams": {"optimizer": "lamb"}}, marks=pytest.mark.slow),  # ten seconds
    ],
    ids=lambda options: next(iter(options)),
)
def test_flags(data_dir, tmp_path, options):
    hparams = {"num_train_steps": 4, "electra_objective": False, **options.pop("hparams", {})}
    run(data_dir, tmp_path / "m", hparams, do_eval=True, **options)
    rows = read_metrics(str(tmp_path / "m"))
    assert rows[-1]["split"] == "heldout"
    assert np.isfinite(rows[-1]["loss"])
    saved = json.loads((tmp_path / "m" / "hparams.json").read_text())
    for name, value in options.items():
        assert {**saved["hparams"], **saved["run_settings"]}[name] == value


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(data_dir, tmp_path):
    with pytest.raises(TrainingStopped, match="not finite"):
        run(data_dir, tmp_path / "m", {"learning_rate": 1e30, "save_checkpoints_steps": 2})
    assert not [r for r in read_metrics(str(tmp_path / "m")) if not np.isfinite(r["loss"])]
    kept = tf.train.latest_checkpoint(str(tmp_path / "m" / "checkpoints"))
    if kept is not None:
        weights = tf.train.load_checkpoint(kept)
        for name in weights.get_variable_to_shape_map():
            if name.startswith("objective"):
                assert np.isfinite(weights.get_tensor(name)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rat": 1}, "Did you mean `learning_rate`"),
        ({"max_seq_length": 24}, "pretrain_data.tfrecord"),
        ({"vocab_size": 100}, "`vocab_size` should be 65"),
        ({"train_batch_size": 0}, "`train_batch_size` should be at least 1"),
        ({"do_lower_case": False}, "`do_lower_case` should be True"),
        ({"do_train": "false"}, "`do_train` should be true or false"),
    ],
)
def test_mistakes_name_what_is_wrong(data_dir, tmp_path, change, message):
    with pytest.raises(InputError) as error:
        run(data_dir, tmp_path / "m", change)
    assert message in str(error.value)
    assert not (tmp_path / "m").exists()


def test_nothing_starts_from_what_is_not_there(data_dir, trained, tmp_path):
    with pytest.raises(InputError, match="there is no checkpoint"):
        run(data_dir, tmp_path / "typo", do_train=False, do_eval=True)
    with pytest.raises(InputError, match="there is no checkpoint"):  # the original's JSON says it
        run(data_dir, tmp_path / "typo", {"do_train": False, "do_eval": True})
    with pytest.raises(InputError, match="should be more than its 12 steps"):
        run(data_dir, tmp_path / "typo", continue_from=trained)
    assert not (tmp_path / "typo").exists()
    with pytest.raises(InputError, match="divisible by the 2 devices"):
        run(data_dir, tmp_path / "odd", {"train_batch_size": 5}, strategy="mirrored:2")
    run(data_dir, trained, do_train=False, do_eval=True)
    assert read_metrics(str(trained))[-1]["split"] == "heldout"


def test_another_vocabulary_is_refused(data_dir, trained, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    vocabulary = Vocabulary.load(data_dir)
    other = Vocabulary((*vocabulary.tokens[:-2], *reversed(vocabulary.tokens[-2:])))
    other.save(tmp_path / "data")
    with pytest.raises(InputError, match="not the one the records were built with"):
        run(str(tmp_path / "data"), tmp_path / "m")
    (tmp_path / "data" / "manifest.json").unlink()
    hparams = {"num_train_steps": 20}
    with pytest.raises(InputError, match="its vocabulary is not that of"):
        run(str(tmp_path / "data"), tmp_path / "m", hparams, continue_from=trained)


def test_nothing_held_out_is_said_before_training(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "heldout_tfrecords")
    with pytest.raises(InputError, match="do without --do_eval"):
        run(str(tmp_path / "data"), tmp_path / "m", do_eval=True)


def test_bad_folders(data_dir, tmp_path):
    with pytest.raises(InputError, match=r"vocab\.txt"):
        run(str(tmp_path), tmp_path / "m")
    shutil.copytree(data_dir, tmp_path / "data")
    record = sorted((tmp_path / "data" / "pretrain_tfrecords").iterdir())[0]
    record.write_bytes(record.read_bytes()[:-7])
    (tmp_path / "data" / "manifest.json").unlink()
    with pytest.raises(InputError, match=record.name):
        run(str(tmp_path / "data"), tmp_path / "m")
    shutil.rmtree(tmp_path / "data" / "pretrain_tfrecords")
    with pytest.raises(InputError, match="no record files"):
        run(str(tmp_path / "data"), tmp_path / "n")


def test_a_checkpoint_that_cannot_be_written(data_dir, tmp_path, monkeypatch):
    """A full disk, as TensorFlow reports it."""

    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    with pytest.raises(TrainingStopped, match=r"cannot write the checkpoint of step 5 .*No space"):
        run(data_dir, tmp_path / "m", {"iterations_per_loop": 5, "electra_objective": False})


def test_exit_code_and_no_traceback(data_dir, tmp_path):
    """Of the command itself, which has to split the processor before TensorFlow is first used."""
    line = arguments(data_dir, tmp_path / "m", {"train_batch_size": 5}, strategy="mirrored:2")
    done = command_support.run("run_pretraining.py", *line)
    assert done.returncode == 1
    assert "error: the train batch should be divisible by the 2 devices" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m").exists()
