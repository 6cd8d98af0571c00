"""The real command: own tasks, sweeps that are killed and resumed, what bad input gets."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import CommandError
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import load_task
from convbert.finetune.load import load_fine_tuned
from convbert.model import build_backbone, load_config
from convbert.pretrain.load import load_encoder
from tests import command_support
from tests.finetune import kinds_support as kinds
from tests.finetune import squad_support
from tests.model_support import randomize

HPARAMS = {**kinds.HPARAMS, "save_checkpoints_steps": 7}


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """The declaration of a user's own task, beside quoted CSV."""
    fields = {"name": "reviews", "metrics": ["accuracy", "f1"]}
    return kinds.declared_reviews(tmp_path_factory.mktemp("reviews"), 240, 60, 20, **fields)


def arguments(model_dir, task, output_dir, hparams=None, **flags):
    places = {"model_dir": model_dir, "task": task, "output_dir": output_dir}
    flags = {**places, "hparams": json.dumps({**HPARAMS, **(hparams or {})}), **flags}
    return [f"--{name}={value}" for name, value in flags.items()]


@pytest.fixture
def outcomes(monkeypatch):
    """A function that runs command lines here; returns what the error of each said, or None."""

    def outcome(line):
        with monkeypatch.context() as patched:
            command, known = command_support.import_command(patched, "convbert.run_finetuning")
            known(["run_finetuning.py", *line])
            try:
                command.main([])
            except CommandError as error:
                return str(error)
        return None

    return lambda lines: [*map(outcome, lines)]


def results(output_dir) -> dict[str, dict]:
    found = {}
    for path in sorted(pathlib.Path(output_dir).glob("*/*/trial_*/result.json")):
        result = json.loads(path.read_text())
        del result["seconds"]
        found[str(path.parent.relative_to(output_dir))] = result
    return found


@pytest.mark.slow  # trains three times
def test_what_a_run_leaves_and_that_it_can_be_loaded(outcomes, model_dir, reviews, tmp_path):
    """Also of a random start, and of what is measured again."""
    lines = [
        arguments(model_dir, reviews, tmp_path / "a", init="random"),
        arguments(model_dir, reviews, tmp_path / "a", init="pretrained,random"),
        arguments(model_dir, reviews, tmp_path / "a", do_train="false"),
        # A fine-tuned model is a model directory, too.
        arguments(
            next_folder(tmp_path / "a"), reviews, tmp_path / "e", {"hidden_dropout_prob": 0.2}
        ),
    ]
    assert outcomes(lines) == [None] * len(lines)
    folder = pathlib.Path(next_folder(tmp_path / "a"))
    names = {"config.json", "vocab.txt", "hparams.json", "metrics.jsonl"}
    assert names <= set(os.listdir(folder))
    assert load_task(str(folder / "task.json")).labels == ("no", "yes")
    result = json.loads((folder / "result.json").read_text())
    assert (result["steps"], result["init"]) == (60, "pretrained")
    assert set(result["scores"]) == {"dev"}
    assert result["baselines"]["dev"] == pytest.approx(50, abs=15)
    for split, count in (("dev", 60), ("test", 20)):
        assert len(kinds.read_predictions(str(folder / "predictions" / f"{split}.jsonl"))) == count
    assert [path.name for path in folder.glob("checkpoints/*.index")] == ["weights-60.index"]
    stored = tf.train.load_checkpoint(str(folder / "checkpoints" / "weights-60"))
    assert not [name for name in stored.get_variable_to_shape_map() if "optimizer" in name]
    assert "random" in (tmp_path / "a" / "report.md").read_text()
    assert result["scores"]["dev"]["accuracy"] > 90
    loaded = load_fine_tuned(next_folder(tmp_path / "e"))
    assert loaded.objective.encoder.config.hidden_dropout_prob == 0.2


@pytest.mark.slow  # needs ten seconds: two runs; tests/experiments fine-tunes an earlier one, too
def test_an_earlier_checkpoint_of_pre_training(outcomes, model_dir, reviews, tmp_path):
    """Its weights are taken, and its runs are not those of the last one."""
    model = tmp_path / "model"
    shutil.copytree(model_dir, model)
    encoder = build_backbone(load_config(str(model)))
    randomize(encoder)
    later = tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder))
    tf.train.CheckpointManager(later, str(model / "checkpoints"), 2).save(2)  # beside ckpt-1
    line = arguments(model, reviews, "", {"max_steps": 1, "learning_rate": 0})
    runs = str(model / "finetuning_step_1")
    steps = ["--checkpoint_step=1"], [], ["--checkpoint_step=2", f"--output_dir={runs}"]
    lines = [[*line, *step] for step in (*steps, ["--checkpoint_step=7"])]
    first, last, other, absent = outcomes(lines)
    assert (first, last) == (None, None)
    assert "checkpoint: " in other
    assert "1, 2" in absent
    for folder, step in (("finetuning_step_1", 1), ("finetuning", 2)):
        (run,) = (model / folder).glob("*/*/trial_0")
        said = json.loads((run / "result.json").read_text())["checkpoint_step"]
        assert said == step  # also if it was the last one
        expected = load_encoder(str(model), step=step).get_weights()
        np.testing.assert_equal(load_encoder(str(run)).get_weights(), expected)


@pytest.mark.bfloat16
@pytest.mark.slow  # needs half a minute: a compiled run
def test_precision(outcomes, model_dir, reviews, tmp_path):
    options = {"precision": "mixed_bfloat16", "xla": "true"}
    padded = {"length_buckets": False}
    line = arguments(model_dir, reviews, tmp_path / "out", padded, **options)
    assert outcomes([line]) == [None]
    (result,) = results(tmp_path / "out").values()
    assert result["scores"]["dev"]["accuracy"] > 90


def next_folder(output_dir, epochs=2):
    """The folder of the one setting's first trial, also before it is there."""
    return f"{output_dir}/reviews/lr0.01_wd0.01_epochs{epochs}/trial_0"


@pytest.mark.slow  # trains for eight seconds
def test_the_originals_hparams(outcomes, model_dir, tmp_path):
    """A JSON for the original's --hparams, with official files in their folder."""
    data = tmp_path / "glue" / "CoLA"
    data.mkdir(parents=True)
    rows = [f"gj04\t{i % 2}\t\tw1 w2 {(kinds.BAD, kinds.GOOD)[i % 2][i % 10]}\n" for i in range(64)]
    for split in ("train", "dev"):
        (data / f"{split}.tsv").write_text("".join(rows))
    (data / "test.tsv").write_text("index\tsentence\n7\tw1 good1\n9\tw2 bad3\n")
    hparams = {"task_names": ["cola"], "num_trials": 2, "model_size": "tiny", "do_lower_case": True}
    hparams |= {"use_tpu": False, "model_hparam_overrides": {"hidden_dropout_prob": 0.0}}
    line = [f"--model_dir={model_dir}", f"--data_dir={tmp_path / 'glue'}"]
    line += [f"--output_dir={tmp_path / 'out'}", f"--hparams={json.dumps(hparams)}"]
    assert outcomes([line]) == [None]
    saved = results(tmp_path / "out")
    for folder in saved:
        said = (tmp_path / "out" / folder / "predictions" / "test.tsv").read_text()
        assert [row.split("\t")[0] for row in said.splitlines()] == ["index", "7", "9"]
    assert [result["seed"] for result in saved.values()] == [0, 1]
    assert next(iter(saved.values()))["hparams"]["hidden_dropout_prob"] == 0.0


def test_bad_input_is_named(outcomes, model_dir, reviews, tmp_path):
    task, broken = reviews, pathlib.Path(reviews).with_name("broken.json")
    broken.write_text(pathlib.Path(task).read_text().replace('"review"', '"reviews"'))
    strange = tmp_path / "strange"
    shutil.copytree(model_dir, strange)
    Vocabulary(Vocabulary.load(model_dir).tokens[:-1]).save(strange)
    cased, empty_handed = tmp_path / "cased", tmp_path / "empty_handed"
    shutil.copytree(model_dir, cased)
    Vocabulary(Vocabulary.load(model_dir).tokens, do_lower_case=False).save(cased)
    shutil.copytree(model_dir, empty_handed)
    shutil.rmtree(empty_handed / "checkpoints")
    head = tf.train.Checkpoint(objective=tf.train.Checkpoint(head=tf.Variable(1.0)))
    tf.train.CheckpointManager(head, str(empty_handed / "checkpoints"), 1).save()
    output = tmp_path / "out"
    cases = [
        (arguments(model_dir, "colla", output), "`cola`"),
        (["--task=cola"], "--model_dir"),
        (arguments(model_dir, "cola", output), "--data_dir"),
        (arguments(tmp_path, task, output), "config.json"),
        (arguments(strange, task, output), "65"),
        (arguments(cased, task, output), "tokenizer_config.json"),
        (arguments(empty_handed, task, output), "empty_handed"),
        (arguments(model_dir, broken, output), "train.csv"),
        (arguments(model_dir, task, output, sweep='{"doc_stride": [8]}'), "`doc_stride`"),
        (arguments(model_dir, task, output, sweep='{"seed": [1]}'), "--num_trials"),
        (arguments(model_dir, task, output, micro_batch_size=5), "`micro_batch_size`"),
        (arguments(model_dir, task, output, do_train="false"), "trial_0"),
        (arguments(model_dir, task, output, {"learning_rate": 1e30}), "finite"),
    ]
    found = outcomes([line for line, _ in cases])
    for message, (_, expected) in zip(found, cases, strict=True):
        assert expected in (message or "")
    assert not results(output)


@pytest.mark.slow  # needs ten seconds: two tasks are trained
def test_results_are_there_whatever_happens_to_the_report(model_dir, tmp_path):
    """Of two tasks, with labels that are formulas to matplotlib, and a report in the way."""
    rows = ["label,text", *(f"{tag},w{i}" for i in range(20) for tag in ("pp$$", "$$"))]
    columns = {"text_a": "text", "label": "label"}
    tags = kinds.declared(tmp_path, {"train": rows, "dev": rows}, columns, name="tags")
    for split in ("train", "dev"):
        asked = [squad_support.question(f"{split}{i}", "w1 w2 w3", "w2") for i in range(4)]
        squad_support.write_squad(tmp_path / f"{split}-v1.1.json", ("w1 w2 w3", asked))
    hparams = {"max_steps": 2, "max_query_length": 8, "doc_stride": 8}
    tasks, out = f"squadv1,{tags}", tmp_path / "out"
    command = ["run_finetuning.py", *arguments(model_dir, tasks, out, hparams, data_dir=tmp_path)]
    (out / "report.md").mkdir(parents=True)
    done = command_support.run(*command)
    assert "Traceback" not in done.stderr
    assert "report" in [x for x in done.stderr.splitlines() if x.startswith("warning: ")][-1]
    found = results(out)
    assert [result["task"] for result in found.values()] == ["squadv1", "tags"]
    for folder, result in found.items():
        assert (out / folder / "predictions" / "dev.jsonl").exists()
        assert result["scores"]["dev"]
