"""Fine-tuned models of random weights whose heads transformers has."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

from convbert.checkpoints import formats
from convbert.checkpoints.model_directory import Options
from convbert.finetune.load import TaskModel, load_fine_tuned
from convbert.finetune.objective import FineTuning
from tests.model_support import random_features
from tests.serving.support import fine_tuned, task

PLAIN: dict[str, Any] = {"token_mixer": "attention", "head_ratio": 1, "linear_groups": 1}
WIDE = {**PLAIN, "embedding_size": 16}  # as its layers, which BERT needs


class Case(NamedTuple):
    """A kind, its settings, the encoder's, and what transformers calls that."""

    kind: str
    hparams: dict[str, Any]
    config: dict[str, Any]
    architecture: str


DENSE, POOLER = {"classifier": "dense"}, {"classifier": "pooler"}
CASES = {
    "convbert labels": Case("classification", DENSE, {}, "ConvBertForSequenceClassification"),
    "bert labels": Case("classification", POOLER, WIDE, "BertForSequenceClassification"),
    "convbert several labels": Case("multi_label", DENSE, {}, "ConvBertForSequenceClassification"),
    "convbert tags": Case("tagging", {}, {}, "ConvBertForTokenClassification"),
    "electra tags": Case("tagging", {}, PLAIN, "ElectraForTokenClassification"),
}


def declaration(case: str) -> dict[str, Any]:
    """The task as a user would declare it."""
    return task(CASES[case].kind).to_json()


def folder_of(folder: pathlib.Path, case: str, hparams: Any = None, **config: Any) -> FineTuning:
    """Writes the folder of a run; returns its objective."""
    kind, own, of_case, _ = CASES[case]
    config = {"mask_padding": False, "num_hidden_layers": 2, **of_case, **config}
    return fine_tuned(folder, task(kind), hparams={**own, **(hparams or {})}, **config)[0]


def written(tmp_path: pathlib.Path, case: str) -> tuple[FineTuning, pathlib.Path]:
    """A run and its folder in Hugging Face's format."""
    objective = folder_of(tmp_path / "run", case)
    formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "theirs"))
    return objective, tmp_path / "theirs"


def reread(folder: pathlib.Path, case: str, **changes: Any) -> TaskModel:
    """Converts a folder in Hugging Face's format; omits fields of the task that are None."""
    values = {**declaration(case), **changes}
    path, output = folder.parent / "task.json", folder.parent / "back"
    path.write_text(
        json.dumps({name: value for name, value in values.items() if value is not None})
    )
    formats.from_elsewhere("huggingface", str(folder), str(output), Options(task=str(path)))
    return load_fine_tuned(str(output))


def features(vocab_size: int):
    """Sequences of several lengths, padded; the second half of each is of another segment."""
    return random_features(3, 12, (12, 9, 5), vocab_size)
