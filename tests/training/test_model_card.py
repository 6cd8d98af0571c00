"""Model cards: what they say of pre-trained, fine-tuned and converted models."""

import json

import pytest
import yaml

from training.model_card import CARD_FILE, write_card

DIGEST = 64 * "a"
CONFIG = {"vocab_size": 8192, "max_position_embeddings": 512}
PRETRAINING = {"objective": "masked_lm", "num_train_steps": 5000, "train_batch_size": 32}
PRETRAINING |= {"model_size": "convbert-tiny", "max_seq_length": 128, "data": DIGEST}
TASK = {
    "name": "reviews",
    "metrics": ["accuracy", "f1"],
    "kind": "classification",
    "labels": ["no", "yes"],
}
TASK |= {"files": {"train": "/home/someone/train.csv", "dev": ["a/dev_1.csv", "a/dev_2.csv"]}}
RESULT = {"model_size": "electra-small", "train_rows": 240, "steps": 60}
RESULT |= {"scores": {"dev": {"accuracy": 91.25, "f1": None}}}
RESULT |= {"baselines": {"dev": {"scores": {"accuracy": 52.0}}}}
HEADER = ("split", "metric", "score", "baseline without learning")


@pytest.fixture
def card_of(tmp_path):
    def write(hparams=None, rows=(), **contents):
        if hparams is not None:
            contents["hparams"] = {"hparams": hparams, "run_settings": {"data_dir": "/gone/data"}}
        for name, content in {"config": CONFIG, **contents}.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "metrics.jsonl").write_text(lines)
        write_card(str(tmp_path))
        text = (tmp_path / CARD_FILE).read_text()
        _, front, body = text.split("---\n", 2)
        return yaml.safe_load(front), body

    return write


def tables(body):
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in row) for row in rows]


def test_a_pretrained_model(card_of):
    rows = [{"step": 5000, "split": "heldout", "time": 1.0, "masked_lm_loss": 5.75312}]
    front, body = card_of(PRETRAINING, rows)
    assert front["license"] == "unknown"
    assert front["tags"] == ["convbert", "masked_lm"]
    assert ("masked_lm_loss", "5.753") in tables(body)
    assert ("max_seq_length", "128") in tables(body)
    assert DIGEST not in body
    assert "/gone" not in body


def test_a_fine_tuned_model(card_of):
    plain = CONFIG | {"token_mixer": "attention"}
    front, body = card_of({"seed": 3, "max_seq_length": 64}, task=TASK, result=RESULT, config=plain)
    assert front["tags"] == ["transformer", "classification"]
    assert front["metrics"] == ["accuracy", "f1"]
    assert HEADER in tables(body)
    assert ("dev", "accuracy", "91.25", "52") in tables(body)
    assert "`train.csv`" in body
    assert "someone" not in body
    assert "`yes`" in body


@pytest.mark.parametrize("contents", [{}, {"task": TASK}], ids=["encoder", "with a head"])
def test_a_converted_model_has_less_to_say(card_of, contents):
    front, body = card_of(**contents)
    assert front["tags"][0] == "convbert"
    assert "8,192" in body


def test_what_a_person_wrote_stays(card_of, tmp_path):
    _, before = card_of(PRETRAINING)
    assert card_of({**PRETRAINING, "num_train_steps": 6000})[1] != before
    path = tmp_path / CARD_FILE
    edited = path.read_text().replace("license: unknown", "license: mit")
    for text in (edited, "---\nlicense: mit\n---\nMine.\n"):
        path.write_text(text)
        front, _ = card_of(PRETRAINING)
        assert front["license"] == "mit"
        assert path.read_text() == text
