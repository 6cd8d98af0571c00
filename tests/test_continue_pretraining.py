"""The real command continuing from a converted checkpoint: what is carried, how steps count."""

import functools
import json
import shutil
import signal
import sys

import numpy as np
import pytest

from convbert.checkpoints.formats import to_elsewhere
from convbert.common import stopping
from convbert.common.errors import InputError
from convbert.data.input_pipeline import pretraining_dataset, record_files
from convbert.data.manifest import read_manifest
from convbert.pretrain.continuation import continued_values
from convbert.pretrain.hparams import CommandLine
from convbert.pretrain.load import load_hparams
from convbert.pretrain.objectives import masked_lm, replaced_token_detection
from convbert.training import monitoring
from tests import command_support
from tests import tf1_support as tf1
from tests.finetune.kinds_support import rejects
from tests.pretraining_support import assert_same_run, average, build_data, metrics, run

STEP = 1234  # of the source
HPARAMS = {
    **{"train_batch_size": 4, "max_seq_length": 32, "learning_rate": 1e-3, "num_warmup_steps": 2},
    **{"iterations_per_loop": 1, "save_checkpoints_steps": 100},
}
run = functools.partial(run, defaults=HPARAMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sources of one layer: `whole`, `discriminator` alone and without moments, `tuned`."""
    folder = tmp_path_factory.mktemp("continue")
    tensors = tf1.golden_tensors("sdconv", STEP)
    tensors = {name: value for name, value in tensors.items() if "/layer_1/" not in name}
    others = ("generator", "/adam_")
    half = {n: value for n, value in tensors.items() if not any(other in n for other in others)}
    for name, kept in (("whole", tensors), ("discriminator", half)):
        config = {**tf1.golden_fields("sdconv"), "num_hidden_layers": 1}
        source = tf1.write_original(folder / f"{name}_original", kept, config=config)
        tf1.convert(source, folder / name)
    shutil.copytree(folder / "whole", folder / "tuned")
    (folder / "tuned" / "task.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def data_dir(folder):
    """Data of the sources' vocabulary, made by the real builder."""
    words = [f"w{i}" for i in range(5, 97)]
    return build_data(folder, words=words, vocab=folder / "whole", heldout_fraction=0.01)


def stop_after(monkeypatch, loops):
    bar = monitoring.ProgressBar
    command_support.signal_after(monkeypatch, bar, "__call__", signal.SIGTERM, loops)


def updated(tensors, reference, rate):
    """The original's update in NumPy: clipping, Adam without bias correction, weight decay."""
    names = [name for name in tensors if f"grad/{name}" in reference]
    gradients = {name: reference[f"grad/{name}"].astype(np.float64) for name in names}
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values()))
    expected = {"global_step": STEP + 1}
    for name in names:
        g = gradients[name] / max(norm, 1.0)
        w, m, v = (tensors[name + slot].astype(np.float64) for slot in ("", "/adam_m", "/adam_v"))
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        decay = 0.01 * w if w.ndim > 1 else 0.0
        expected |= {f"{name}/adam_m": m, f"{name}/adam_v": v}
        expected[name] = w - rate * (m / (np.sqrt(v) + 1e-6) + decay)
    return expected


@pytest.mark.slow  # twenty seconds each
@pytest.mark.parametrize("name", ["sdconv_grouped", "electra"])
def test_first_step_on_the_golden_batch(name, data_dir, tmp_path, monkeypatch):
    """Losses of the source graph, and one update of the original's optimizer; without dropout."""
    tensors, original = tf1.golden_tensors(name, STEP), tf1.reference(name)
    source = tmp_path / "source"
    tf1.convert(tf1.write_original(tmp_path / "original", tensors, config=name), source)
    there, _ = load_hparams(str(source))
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hparams = {"model_hparam_overrides": {**there.model_hparam_overrides, **dropout}}
    hparams |= {"model_size": there.model_size, "num_warmup_steps": 0, "num_train_steps": 2000}
    options = {"continue_from": source}
    rate = 1e-3 * (1 - (STEP + 1) / 2000)
    batch, sampled = tf1.masked_batch(original)
    detection = replaced_token_detection.ReplacedTokenDetection
    monkeypatch.setattr(detection, "prepare", lambda self, features, seed: batch)
    monkeypatch.setattr(masked_lm, "draw_tokens", lambda *_: sampled)
    stop_after(monkeypatch, 1)
    with pytest.raises(stopping.Stopped):
        run(data_dir, tmp_path / "m", hparams, **options)

    (row,) = metrics(tmp_path / "m")
    assert row["step"] == STEP + 1
    assert row["masked_lm_loss"] == pytest.approx(original["mlm_loss"], abs=1e-5)
    assert row["disc_loss"] == pytest.approx(original["disc_loss"], abs=1e-5)
    assert row["loss"] == pytest.approx(float(original["total_loss"]), rel=1e-6)
    assert row["learning_rate"] == pytest.approx(rate, rel=1e-5)
    to_elsewhere("tf1", str(tmp_path / "m"), str(tmp_path / "back"))
    found = tf1.read_tensors(tmp_path / "back")
    expected = updated(tensors, original, rate)
    assert set(found) == set(expected) == set(tensors)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.slow  # needs half a minute: three runs
def test_interrupted_it_ends_as_if_never_stopped(folder, data_dir, tmp_path, monkeypatch):
    """To the bit; and the source is not needed any more."""
    shutil.copytree(folder / "whole", tmp_path / "source")
    options = {"continue_from": tmp_path / "source", "additional_steps": 6}
    run(data_dir, tmp_path / "uninterrupted", **options)
    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        with pytest.raises(stopping.Stopped):
            run(data_dir, tmp_path / "stopped", **options)
    shutil.rmtree(tmp_path / "source")
    run(data_dir, tmp_path / "stopped", **options)
    assert_same_run(tmp_path / "stopped", tmp_path / "uninterrupted", STEP + 6)
    with pytest.raises(InputError, match=f"num_train_steps: {STEP + 6} there, {STEP + 8} now"):
        run(data_dir, tmp_path / "stopped", **{**options, "additional_steps": 8})


def test_killed_before_its_first_checkpoint(folder, data_dir, tmp_path, monkeypatch):
    options = {"continue_from": folder / "whole", "additional_steps": 3}
    (tmp_path / "m").mkdir()
    row = '{"step": 2, "split": "train"}\n'  # of a killed start from random weights
    (tmp_path / "m" / "metrics.jsonl").write_text(row)
    with monkeypatch.context() as patched:
        patched.setattr(monitoring.ProgressBar, "__call__", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            run(data_dir, tmp_path / "m", **options)
    assert [row["step"] for row in metrics(tmp_path / "m")] == [STEP + 1]
    run(data_dir, tmp_path / "m", **options)
    assert [row["step"] for row in metrics(tmp_path / "m")] == [STEP + 1, STEP + 2, STEP + 3]
    monkeypatch.chdir(folder / "whole")
    run(data_dir, tmp_path / "m", **{**options, "continue_from": "."})  # is finished
    for other in ({}, {**options, "continue_from": folder / "discriminator"}):
        with rejects("whole"):  # where it began
            run(data_dir, tmp_path / "m", **other)


def test_another_batch_goes_on_in_the_data_where_the_source_stopped(folder, data_dir, tmp_path):
    """Also where a third run continues the mean of the second, with the first one's batch."""
    continued, back = tmp_path / "continued", tmp_path / "back"
    batch = {"train_batch_size": 6, "save_checkpoints_steps": 1}
    run(data_dir, continued, batch, continue_from=folder / "whole", additional_steps=2)
    average(str(continued), 2, str(tmp_path / "mean"))
    run(data_dir, back, continue_from=tmp_path / "mean", additional_steps=1)
    files = record_files(str(data_dir), "train")

    def first_batch(model_dir, step):
        hparams = json.loads((model_dir / "hparams.json").read_text())["hparams"]
        place = {"batch_size": hparams["train_batch_size"], "offset": hparams["data_offset"]}
        dataset = pretraining_dataset(files, max_seq_length=32, start_step=step, **place)
        return next(iter(dataset))["input_ids"].numpy()

    batch_size = load_hparams(str(folder / "whole"))[0].train_batch_size
    one_by_one = pretraining_dataset(
        files, max_seq_length=32, batch_size=1, start_step=STEP * batch_size
    )
    ids = np.concatenate([example["input_ids"] for example in one_by_one.take(16)])
    np.testing.assert_array_equal(first_batch(continued, STEP), ids[:6])
    np.testing.assert_array_equal(first_batch(back, STEP + 2), ids[12:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "hparams", "said"),
    [
        ("discriminator", {}, "from random weights: generator, generator_head"),
        (
            "whole",
            {"objective": "masked_lm", "optimizer": "lamb"},  # moments could not be carried either
            "encoder; from random weights: head; optimizer fresh",
        ),
    ],
)
def test_what_the_source_lacks_is_new(source, hparams, said, folder, data_dir, tmp_path, capsys):
    options = {"continue_from": folder / source, "additional_steps": 3}
    run(data_dir, tmp_path / "m", hparams, **options)
    assert said in capsys.readouterr().err
    assert [row["step"] for row in metrics(tmp_path / "m")] == [STEP + 1, STEP + 2, STEP + 3]


@pytest.mark.parametrize(
    ("hparams", "options", "complaint"),
    [
        ({}, {"continue_from": None, "additional_steps": 5}, "--additional_steps"),
        ({"num_train_steps": 1000}, {"additional_steps": 5}, "`num_train_steps`"),
        ({"num_train_steps": 2000, "schedule_from_step": 1500}, {}, "`schedule_from_step`"),
        ({"max_seq_length": 16}, {"additional_steps": 5}, "`max_seq_length` should be 32, as"),
        ({"model_size": "convbert-small"}, {"additional_steps": 5}, "another encoder:\n"),
        ({"generator_hidden_size": 0.25}, {"additional_steps": 5}, "another generator:\n"),
        ({}, {"continue_from": "tuned", "additional_steps": 5}, "fine-tuned"),
        ({}, {"do_train": "false"}, "--continue_from"),
    ],
    ids=str,
)
def test_contradictions_are_rejected(hparams, options, complaint, folder, data_dir, tmp_path):
    if source := options.get("continue_from", "whole"):
        options = {**options, "continue_from": folder / source}
    options = {name: value for name, value in options.items() if value is not None}
    with rejects(complaint):
        run(data_dir, tmp_path / "m", hparams, **options)
    assert not (tmp_path / "m").exists()


def test_what_is_not_said_is_the_sources(folder, data_dir):
    """The objective, its masking and length; warm-up is a tenth of the additional steps."""
    source = folder / "settings"
    shutil.copytree(folder / "whole", source)
    record = json.loads((source / "hparams.json").read_text())
    own = {"mask_token_prob": 0.8, "random_token_prob": 0.1, "disc_weight": 30.0}
    own |= {"max_seq_length": 24, "learning_rate": 0.5}
    record["hparams"] |= own
    record["run_settings"]["converted"] = {"max_seq_length": 24}
    (source / "hparams.json").write_text(json.dumps(record))

    def continued(**values):
        folders = {"data_dir": str(data_dir), "model_dir": str(folder / "none")}
        folders["continue_from"] = str(source)
        return continued_values(values, CommandLine(**folders, additional_steps=10_000))

    found = continued()
    del own["learning_rate"]  # of training, not of the objective
    assert {name: found[name] for name in own} == own
    assert (found["num_warmup_steps"], found["num_train_steps"]) == (1000, STEP + 10_000)
    assert "learning_rate" not in found
    said = {"mask_token_prob": 0.9, "max_seq_length": 16, "num_warmup_steps": 7}
    assert continued(**said).items() >= said.items()
    assert "mask_token_prob" not in continued(objective="masked_lm")
    overrides = found["model_hparam_overrides"] | {"hidden_dropout_prob": 0.3}
    dropped = continued(model_hparam_overrides={"hidden_dropout_prob": 0.3})
    assert dropped == {**found, "model_hparam_overrides": overrides}
    record["run_settings"]["converted"] = {"max_seq_length": None}  # unknown: it is the data's
    (source / "hparams.json").write_text(json.dumps(record))
    built = read_manifest(str(data_dir))["settings"]
    assert continued()["max_seq_length"] == built["max_seq_length"]
