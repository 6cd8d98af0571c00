"""Heads of fine-tuned models in Hugging Face's files, there and back without transformers."""

import json

import numpy as np
import pytest

from checkpoints import formats
from checkpoints.model_directory import Options
from errors import InputError
from finetune.load import load_fine_tuned
from tests.checkpoints.task_head_support import CASES, declaration, features, folder_of, written
from tests.huggingface_support import change_json, change_tensors


def reread(folder, output, case):
    task = folder.parent / "task.json"
    task.write_text(json.dumps(declaration(case)))
    formats.from_elsewhere("huggingface", str(folder), str(output), Options(task=str(task)))
    return load_fine_tuned(str(output))


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(tmp_path, case):
    objective, folder = written(tmp_path, case)
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == [CASES[case].architecture]
    back = reread(folder, tmp_path / "back", case)
    batch = features(objective.encoder.config.vocab_size)
    expected, received = objective.predict(batch), back.objective.predict(batch)
    assert set(received) == set(expected)
    for name, value in expected.items():
        if value.dtype.is_floating:
            np.testing.assert_allclose(received[name], value, rtol=1e-5, atol=1e-6)
        else:
            assert received[name].numpy().tolist() == value.numpy().tolist()


def test_labels_in_another_order(tmp_path):
    objective, folder = written(tmp_path, "convbert labels")
    batch = features(objective.encoder.config.vocab_size)
    expected = objective.predict(batch)["logits"].numpy()
    own = ("good", "bad", "fair")  # there: bad, fair, good
    task = tmp_path / "other.json"
    task.write_text(json.dumps({**declaration("convbert labels"), "labels": own}))
    output, options = str(tmp_path / "back"), Options(task=str(task))
    formats.from_elsewhere("huggingface", str(folder), output, options)
    received = load_fine_tuned(output).objective.predict(batch)["logits"].numpy()
    np.testing.assert_allclose(received, expected[:, [2, 0, 1]], atol=1e-6)


def test_labels_come_from_the_file(tmp_path):
    _, folder = written(tmp_path, "convbert labels")
    task = tmp_path / "unlabelled.json"
    values = declaration("convbert labels")
    del values["labels"]
    task.write_text(json.dumps(values))
    output, options = str(tmp_path / "back"), Options(task=str(task))
    formats.from_elsewhere("huggingface", str(folder), output, options)
    assert load_fine_tuned(output).task.labels == ("bad", "fair", "good")


def test_without_a_task_the_encoder_is_read(tmp_path):
    _, folder = written(tmp_path, "electra labels")
    notes = formats.from_elsewhere("huggingface", str(folder), str(tmp_path / "out"), Options())
    assert any("classifier.out_proj.weight" in note and "--task" in note for note in notes)


def test_a_linear_head_is_left_out(tmp_path):
    """transformers has no such: the encoder is written, as it was before."""
    folder_of(tmp_path / "run", "convbert labels", {"classifier": "linear"})
    notes = formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said["architectures"] == ["ConvBertModel"]
    assert any("task head is left out" in note for note in notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": ["bad", "good"]}, "id2label"),
        ({"labels": ["bad", "fair", "best"]}, "id2label"),
        ({"kind": "regression", "labels": None}, "shape"),
        ({"kind": "tagging", "columns": {"words": "words", "tags": "tags"}}, "classifier.weight"),
    ],
)
def test_a_head_of_another_task_is_an_error(tmp_path, change, said):
    _, folder = written(tmp_path, "convbert labels")
    values = {**declaration("convbert labels"), **change}
    task = tmp_path / "other.json"
    task.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    options = Options(task=str(task))
    with pytest.raises(InputError) as error:
        formats.from_elsewhere("huggingface", str(folder), str(tmp_path / "out"), options)
    assert said in str(error.value)
    assert not (tmp_path / "out").exists()


def test_labels_without_names_are_an_error(tmp_path):
    _, folder = written(tmp_path, "convbert labels")
    change_json(folder / "config.json", id2label={str(i): f"LABEL_{i}" for i in range(3)})
    task, values = tmp_path / "unlabelled.json", declaration("convbert labels")
    del values["labels"]
    task.write_text(json.dumps(values))
    options = Options(task=str(task))
    with pytest.raises(InputError):
        formats.from_elsewhere("huggingface", str(folder), str(tmp_path / "out"), options)


@pytest.mark.parametrize("case", ["convbert labels", "electra labels"])
def test_a_pooler_is_of_bert_alone(tmp_path, case):
    folder_of(tmp_path / "run", case, {"classifier": "pooler"})
    with pytest.raises(InputError):
        formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))


@pytest.mark.parametrize("positions", [16, 100, 150])
def test_questions_of_a_model_with_few_positions(tmp_path, positions):
    case = "convbert spans"
    few = {"max_position_embeddings": positions}
    short = {"max_seq_length": positions, "max_query_length": 4, "doc_stride": 4}
    folder_of(tmp_path / "run", case, short, **few)
    formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "theirs"))
    back = reread(tmp_path / "theirs", tmp_path / "back", case)
    assert back.hparams.max_seq_length == positions
    room = positions - 3 - back.hparams.max_query_length
    assert 1 <= back.hparams.doc_stride <= room


def test_a_head_with_another_layer_is_an_error(tmp_path):
    _, folder = written(tmp_path, "convbert labels")
    change_tensors(folder, lambda held: held | {"classifier.middle.weight": np.ones([2, 2], "f")})
    with pytest.raises(InputError):
        reread(folder, tmp_path / "back", "convbert labels")
