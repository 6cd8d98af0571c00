"""The real command: what it writes, going on after a kill, and what bad input gets."""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

import run_pretraining
import stopping
from data import build
from data.input_pipeline import pretraining_dataset, record_files
from data.vocabulary import Vocabulary
from errors import InputError, TrainingStopped
from pretrain import run as pretraining
from pretrain.load import load_encoder, load_objective
from pretrain.saved_settings import load_hparams
from tests import command_support
from tests.command_support import Command
from training import monitoring
from training.loop import Evaluator, evaluation_seed
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


def contents(folder, *without):
    """Bytes of every file, by its path in the folder."""
    paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    paths = [path for path in paths if path.name not in without]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_without_its_list_of_checkpoints_a_run_is_known(data_dir, trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "m")
    (tmp_path / "m" / "checkpoints" / "checkpoint").unlink()
    before = contents(tmp_path / "m", "hparams.json")  # whose run settings may change
    with pytest.raises(InputError, match="holds a run of another configuration"):
        run(data_dir, tmp_path / "m", {"learning_rate": 2e-3})
    run(data_dir, tmp_path / "m", {"num_eval_steps": 1}, do_train=False, do_eval=True)
    assert str(tmp_path / "m" / "checkpoints" / "checkpoint") in capsys.readouterr().err
    assert read_metrics(str(tmp_path / "m"))[-1]["step"] == 12
    written = ("hparams.json", "metrics.jsonl", "curves.png", "checkpoint")
    run(data_dir, tmp_path / "m")
    said = capsys.readouterr().err
    assert "training is finished: step 12" in said
    assert re.fullmatch(r"heldout: (\w+ [\d.e+-]+, )+\w+ [\d.e+-]+", said.splitlines()[-1])
    after = contents(tmp_path / "m")
    for path, content in before.items():
        if os.path.basename(path) not in written:
            assert after[path] == content


def test_a_warm_up_that_never_ends_is_warned_of(data_dir, tmp_path, capsys):
    for warmup in (2, 3):
        hparams = {"num_train_steps": 2, "num_warmup_steps": 4 - warmup, "objective": "masked_lm"}
        run(data_dir, tmp_path / str(warmup), hparams)
        said = capsys.readouterr().err
        assert ("`num_warmup_steps`" in said) == (warmup == 2)
        assert "not used by objective masked_lm: generator_hidden_size" in said


def test_checkpoints_that_are_all_gone_are_missed(data_dir, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "m")
    for path in (tmp_path / "m" / "checkpoints").iterdir():
        path.unlink()
    before = contents(tmp_path / "m")
    with pytest.raises(InputError, match="came to step 12"):
        run(data_dir, tmp_path / "m")
    assert contents(tmp_path / "m") == before


@pytest.mark.parametrize("damaged", ['{"hparams": 3}', "{}", "["])
def test_a_damaged_record_of_settings_is_named(data_dir, trained, tmp_path, damaged):
    shutil.copytree(trained, tmp_path / "m")
    (tmp_path / "m" / "hparams.json").write_text(damaged)
    for options in ({}, {"do_train": False, "do_eval": True}):
        with pytest.raises(InputError, match=r"hparams\.json"):
            run(data_dir, tmp_path / "m", **options)


@pytest.mark.parametrize("name", ["model.ckpt-12.index", "checkpoint"])
def test_another_configuration_is_refused_before_a_damaged_checkpoint(
    name, data_dir, trained, tmp_path
):
    """Nothing of it is rewritten."""
    shutil.copytree(trained, tmp_path / "m")
    (tmp_path / "m" / "checkpoints" / name).unlink()
    before = contents(tmp_path / "m")
    overrides = {**HPARAMS["model_hparam_overrides"], "hidden_size": 48}
    with pytest.raises(InputError, match="holds a run of another configuration"):
        run(data_dir, tmp_path / "m", {"model_hparam_overrides": overrides})
    assert contents(tmp_path / "m") == before


def test_a_checkpoint_of_another_network_is_refused_before_anything_is_written(
    data_dir, trained, tmp_path
):
    shutil.copytree(trained, tmp_path / "m")
    record = json.loads((tmp_path / "m" / "hparams.json").read_text())
    record["hparams"]["model_hparam_overrides"]["intermediate_size"] = 48
    (tmp_path / "m" / "hparams.json").write_text(json.dumps(record))
    before = contents(tmp_path / "m")
    overrides = {**HPARAMS["model_hparam_overrides"], "intermediate_size": 48}
    with pytest.raises(InputError, match="its checkpoint does not hold"):
        run(data_dir, tmp_path / "m", {"model_hparam_overrides": overrides})
    assert contents(tmp_path / "m") == before


def test_of_a_damaged_checkpoint_the_one_before_is_trained_on(data_dir, trained, tmp_path, capsys):
    """To the same weights, bit for bit, and the same measurements."""
    shutil.copytree(trained, tmp_path / "m")
    path = tmp_path / "m" / "checkpoints" / "model.ckpt-12.data-00000-of-00001"
    path.write_bytes(path.read_bytes().replace(b"\0\0\0\0", b"\0\0\1\0", 1))
    run(data_dir, tmp_path / "m", do_eval=True)
    err = capsys.readouterr().err
    assert f"warning: {path}" in err
    expected, found = checkpoint_tensors(trained, 12), checkpoint_tensors(tmp_path / "m", 12)
    assert set(found) == set(expected)
    for tensor, value in expected.items():
        np.testing.assert_array_equal(found[tensor], value, err_msg=tensor)
    rows = [
        [{**row, "time": 0} for row in read_metrics(str(folder))]
        for folder in (trained, tmp_path / "m")
    ]
    assert rows[0] == rows[1]


def test_without_a_good_checkpoint_nothing_is_overwritten(data_dir, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "m")
    parts = sorted((tmp_path / "m" / "checkpoints").glob("*.data-*"))
    for path in parts:
        path.write_bytes(path.read_bytes()[:-50])
    before = contents(tmp_path / "m")
    for options in ({}, {"do_train": False, "do_eval": True}):
        with pytest.raises(InputError) as error:
            run(data_dir, tmp_path / "m", **options)
        assert all(str(path) in str(error.value) for path in parts)
    assert contents(tmp_path / "m") == before


def test_a_signal_saves_and_the_run_is_resumed(data_dir, tmp_path, monkeypatch, capsys):
    bar, hparams = monitoring.ProgressBar, {"objective": "masked_lm"}
    command_support.signal_after(monkeypatch, bar, "__call__", signal.SIGTERM, 2)
    with pytest.raises(stopping.Stopped) as stopped:
        run(data_dir, tmp_path / "m", hparams)
    assert stopped.value.status == 143
    assert checkpoint_tensors(tmp_path / "m", 4)
    run(data_dir, tmp_path / "m", hparams)
    assert read_metrics(str(tmp_path / "m"))[-1]["step"] == 12
    assert "resuming from step 4 of 12" in capsys.readouterr().err


@pytest.mark.slow  # needs two runs
def test_an_evaluation_that_was_cut_short_is_repeated(data_dir, tmp_path, monkeypatch):
    """What a run measures does not depend on where it was stopped."""
    evaluate = Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", lambda *_: 1 / 0)
    hparams = {"objective": "masked_lm", "num_train_steps": 8}
    with pytest.raises(ZeroDivisionError):
        run(data_dir, tmp_path / "m", hparams, do_eval=True)
    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    run(data_dir, tmp_path / "m", hparams, do_eval=True)
    rows = [(row["step"], row["split"]) for row in read_metrics(str(tmp_path / "m"))]
    train = [(step, "train") for step in (2, 4, 5, 7, 8)]
    assert rows == [*train[:3], (5, "heldout"), *train[3:], (8, "heldout")]


def test_a_second_command_on_the_model_directory_is_rejected(data_dir, tmp_path, monkeypatch):
    def another(controller, *arguments, evaluate):
        before = sorted((tmp_path / "m").rglob("*"))
        with pytest.raises(InputError, match="another command is at work here"):
            run(data_dir, tmp_path / "m", {"learning_rate": 2e-3})
        assert sorted((tmp_path / "m").rglob("*")) == before
        raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "train", another)
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
    with pytest.raises(InputError) as error:
        run(str(tmp_path / "data"), trained)
    assert f"--data_dir was {data_dir} there, is {tmp_path / 'data'} now" in str(error.value)
    assert "corpus_digest" in str(error.value)
    assert "seed" not in str(error.value).replace(str(tmp_path), "")  # which is the same
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
        pytest.param({"precision": "mixed_bfloat16"}, marks=pytest.mark.bfloat16),
        pytest.param({"xla": True}, marks=pytest.mark.slow),  # compiles for a quarter of a minute
        {"strategy": "mirrored:2"},
        pytest.param({"hparams": {"optimizer": "lamb"}}, marks=pytest.mark.slow),  # ten seconds
    ],
    ids=lambda options: next(iter(options)),
)
def test_flags(data_dir, tmp_path, options):
    hparams = {"num_train_steps": 4, "objective": "masked_lm", **options.pop("hparams", {})}
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
        ({"max_seq_length": 24}, "`max_seq_length` should be 32"),
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


@pytest.mark.parametrize("missing", ["data_dir", "model_name"])
def test_a_missing_flag_is_named_with_what_it_should_be(tmp_path, missing):
    line = {"data_dir": str(tmp_path), "model_name": "m"}
    del line[missing]
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["run_pretraining.py", *(f"--{name}={value}" for name, value in line.items())])
        with pytest.raises(InputError, match=f"--{missing} is missing: it should be "):
            run_pretraining.main(["run_pretraining.py"])


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


@pytest.fixture(scope="module")
def other_data(data_dir):
    """Other text, with the vocabulary of `data_dir`."""
    folder = pathlib.Path(data_dir).parent
    rng = np.random.default_rng(1)
    documents = [
        "\n".join(" ".join(rng.choice(WORDS[:9], 12)) for _ in range(6)) for _ in range(60)
    ]
    (folder / "other.txt").write_text("\n\n".join(documents))
    options = build.BuildOptions(
        corpus=str(folder / "other.txt"),
        corpus_format="text",
        output_dir=str(folder / "other"),
        vocab=data_dir,
        max_seq_length=32,
        heldout_fraction=0.3,
        num_shards=2,
    )
    build.build(options)
    return str(folder / "other")


def evaluate_only(data_dir, model_dir):
    """Evaluation as a command line that repeats no setting of the model."""
    line = [f"--data_dir={data_dir}", "--model_name=m", f"--model_dir={model_dir}"]
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["run_pretraining.py", *line, "--nodo_train", "--do_eval"])
        run_pretraining.main(["run_pretraining.py"])


@pytest.mark.slow  # needs a second data folder
def test_a_finished_model_is_evaluated_on_other_data(
    data_dir, other_data, trained, tmp_path, capsys
):
    model = tmp_path / "model"
    shutil.copytree(trained, model)
    before, rows = contents(model), read_metrics(str(model))
    for _ in range(2):
        evaluate_only(other_data, model)
    said = capsys.readouterr().err
    assert f"of {other_data}, which the model was not trained on" in said
    assert "at step 12 on 8 held-out examples" in said  # two batches of four
    *kept, row = read_metrics(str(model))
    assert kept == rows
    assert (row["step"], row["split"], row["data_dir"]) == (12, "other_heldout", other_data)
    own = next(row for row in reversed(rows) if row["split"] == "heldout")
    assert row["loss"] != own["loss"]
    after = contents(model)
    assert {name for name in before if before[name] != after[name]} == {"metrics.jsonl"}
    assert set(after) == set(before)
    evaluate_only(data_dir, model)  # its own: takes the place of its row
    again = [row for row in read_metrics(str(model)) if row["split"] == "heldout"][-1]
    assert {**again, "time": 0} == {**own, "time": 0}
    assert len(read_metrics(str(model))) == len(rows) + 1
    run(data_dir, model)  # training knows the directory as it was


def test_evaluation_refuses_what_does_not_fit(data_dir, other_data, trained, tmp_path):
    before = contents(trained)
    vocabulary = Vocabulary.load(data_dir)
    shutil.copytree(other_data, tmp_path / "data")
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    manifest["vocabulary_digest"] = "of another"
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="its vocabulary should be that of"):
        evaluate_only(tmp_path / "data", trained)
    (tmp_path / "data" / "manifest.json").unlink()
    Vocabulary(vocabulary.tokens, do_lower_case=False).save(tmp_path / "data")
    with pytest.raises(InputError, match="its vocabulary should be that of"):
        evaluate_only(tmp_path / "data", trained)
    with pytest.raises(InputError, match=r"heldout_tfrecords.*max_seq_length=32"):
        evaluate_only(data_dir.replace("data32", "data64"), trained)
    with pytest.raises(InputError, match=r"mask_prob: 0\.15 there, 0\.2 now"):
        run(other_data, trained, {"mask_prob": 0.2}, do_train=False, do_eval=True)
    assert contents(trained) == before


def hidden_accuracy(model_dir, data_dir, batches):
    """Share of the [MASK]s of the first held-out batches that the model resolves."""
    objective, mask_id = load_objective(str(model_dir)), Vocabulary.load(data_dir).mask_id
    files = record_files(data_dir, "heldout")
    dataset = pretraining_dataset(
        files,
        batch_size=4,
        max_seq_length=32,
        seed=0,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    right = total = 0
    for number, features in dataset.take(batches).enumerate():
        batch = objective.prepare(features, evaluation_seed(0, number))
        best = tf.argmax(objective.generator_logits(batch), -1, output_type=tf.int32)
        seen = tf.gather(batch["masked_input_ids"], batch["masked_lm_positions"], batch_dims=1)
        hidden = (seen == mask_id) & (batch["masked_lm_weights"] > 0)
        right += int(tf.reduce_sum(tf.cast(hidden & (best == batch["masked_lm_ids"]), tf.int32)))
        total += int(tf.reduce_sum(tf.cast(hidden, tf.int32)))
    return right / total, total


@pytest.mark.slow  # needs a quarter of a minute
def test_what_was_learned_is_measured_on_the_data_that_is_named(other_data, trained, tmp_path):
    """Model and baselines on the same hidden tokens, here of other data than the model's own."""
    shutil.copytree(trained, tmp_path / "m")
    evaluate_only(other_data, tmp_path / "m")
    rows = read_metrics(str(tmp_path / "m"))
    assert f"{rows[-1]['disc_auc']:.3f}" != f"{rows[-2]['disc_auc']:.3f}"
    line = [f"--data_dir={other_data}", f"--model_dir={tmp_path / 'm'}"]
    done = command_support.run("-m", "examples.quickstart.learned", *line)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[1].startswith(f"Held-out text of {other_data}, which the model was not trained on")
    accuracy, hidden = hidden_accuracy(tmp_path / "m", other_data, 2)
    numbers = [int(n) for n in re.findall(r"\d+", told[2])]
    assert numbers == [hidden, numbers[2] - hidden, numbers[2]]
    assert numbers[1] > 0
    models = [line.split()[-1] for line in told if "this model" in line]
    assert models == [f"{accuracy:.1%}", f"{rows[-1]['disc_auc']:.3f}"]


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


@pytest.mark.slow  # needs half a minute: a process of its own imports TensorFlow and trains
def test_a_run_prints_nothing_of_the_libraries(data_dir, tmp_path):
    """As README says, so without TF_CPP_MIN_LOG_LEVEL."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    line = arguments(data_dir, tmp_path / "m", {}, do_eval=True)
    done = subprocess.run(
        [sys.executable, "run_pretraining.py", *line],
        cwd=command_support.ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"cuda|oneDNN|absl::|XLA|rendezvous|tensorflow", done.stderr), done.stderr


def test_a_checkpoint_that_cannot_be_written(data_dir, tmp_path, monkeypatch):
    """A full disk, as TensorFlow reports it."""

    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    with pytest.raises(TrainingStopped, match=r"cannot write the checkpoint of step 5 .*No space"):
        run(data_dir, tmp_path / "m", {"iterations_per_loop": 5, "objective": "masked_lm"})


def test_exit_code_and_no_traceback(data_dir, tmp_path):
    """Of the command itself, which has to split the processor before TensorFlow is first used."""
    line = arguments(data_dir, tmp_path / "m", {"train_batch_size": 5}, strategy="mirrored:2")
    done = command_support.run("run_pretraining.py", *line)
    assert done.returncode == 1
    assert "error: the train batch should be divisible by the 2 devices" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m").exists()
