"""The built-in tasks: GLUE, SQuAD, RACE and part-of-speech tagging, by their official files.

Columns, label order and the symmetric tasks are those of ELECTRA's
finetune/classification/classification_tasks.py; the metrics are those of Table 3 of the ConvBERT
paper (arXiv 2008.02496) with, after them, the others that the GLUE server reports.
"""

from __future__ import annotations

from typing import Any

from finetune.task import Task

# The tags of https://universaldependencies.org/u/pos/
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip

_ENTAILMENT = ("entailment", "not_entailment")
_LONG = 10.0  # epochs of the small tasks that the papers train for longer


def _glue(name: str, folder: str, texts: tuple[str, ...], label: str, **fields: Any) -> Task:
    """A GLUE task of `train.tsv`, `dev.tsv` and `test.tsv`, unless `fields` of Task say otherwise.

    Args:
        folder: its folder in the official download; ELECTRA's has the task's name.
        texts: the columns of the one or two texts.
        label: the column of the label.
    """
    values = {
        "kind": "classification",
        "labels": ("0", "1"),
        "metrics": ("accuracy",),
        "format": "tsv",
        "files": {split: f"{split}.tsv" for split in ("train", "dev", "test")},
        "folders": (folder, name),
        **fields,
    }
    columns = dict(zip(("text_a", "text_b"), texts))
    # Test files have no labels, and the numbers that the server wants back.
    hidden = {"columns": {**columns, "id": "index"}}
    per_split = dict.fromkeys(values.get("test", ("test",)), hidden)
    values["per_split"] = per_split | values.get("per_split", {})
    return Task(name=name, columns={**columns, "label": label}, **values)


def _table() -> list[Task]:
    pair = ("sentence1", "sentence2")
    return [
        _glue(
            "cola", "CoLA", (3,), 1, tfds="glue/cola", header=False,
            metrics=("matthews_corrcoef",),
            per_split={"test": {"columns": {"id": "index", "text_a": "sentence"}, "header": True}},
        ),
        _glue("sst", "SST-2", ("sentence",), "label", tfds="glue/sst2", lenient=True),
        _glue(
            "mrpc", "MRPC", ("#1 String", "#2 String"), "Quality", tfds="glue/mrpc",
            metrics=("accuracy", "f1"), symmetric=True,
        ),
        _glue(
            "sts", "STS-B", pair, "score", tfds="glue/stsb", kind="regression", labels=(),
            metrics=("spearman", "pearson"), symmetric=True, label_range=(0.0, 5.0),
            num_train_epochs=_LONG,
        ),
        _glue(
            "qqp", "QQP", ("question1", "question2"), "is_duplicate", tfds="glue/qqp",
            metrics=("accuracy", "f1"), lenient=True,
            per_split={"test": {"columns": {
                "id": "id", "text_a": "question1", "text_b": "question2"
            }}},
        ),
        _glue(
            "mnli", "MNLI", pair, "gold_label", tfds="glue/mnli", lenient=True,
            labels=("contradiction", "entailment", "neutral"),
            dev=("dev_matched", "dev_mismatched"),
            test=("test_matched", "test_mismatched", "diagnostic"),  # diagnostic: AX
            files={
                "train": "train.tsv",
                "dev_matched": "dev_matched.tsv",
                "dev_mismatched": "dev_mismatched.tsv",
                "test_matched": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
                "diagnostic": ("diagnostic/diagnostic.tsv", "AX.tsv"),
            },
            folders=("MNLI", "mnli", "AX"),
        ),
        _glue(
            "qnli", "QNLI", ("question", "sentence"), "label", tfds="glue/qnli", lenient=True,
            labels=_ENTAILMENT,
        ),
        _glue(
            "rte", "RTE", pair, "label", tfds="glue/rte", labels=_ENTAILMENT,
            num_train_epochs=_LONG,
        ),
        _glue("wnli", "WNLI", pair, "label", tfds="glue/wnli"),
        _squad("squad", "2.0"),
        _squad("squadv1", "1.1"),
        Task(
            name="pos", kind="tagging", format="conllu", columns={"tags": "upos"}, labels=UPOS,
            metrics=("token_accuracy",),
            files={split: f"*-ud-{split}.conllu" for split in ("train", "dev", "test")},
            folders=("pos", "UD_English-EWT", "ud_english_ewt"),
        ),
        _race("race", ""),
        _race("race_middle", "/middle"),
        _race("race_high", "/high"),
        _treebank("ptb", {"train": "00-18", "dev": "19-21", "test": "22-24"}),
    ]  # fmt: skip


def _squad(name: str, version: str) -> Task:
    return Task(
        name, kind="span", format="squad", columns={}, metrics=("f1", "exact_match"), test=(),
        files={split: (f"{split}-v{version}.json", f"{split}.json") for split in ("train", "dev")},
        tfds=f"squad/v{version}", version_2=version == "2.0", folders=(name, "squad"),
    )  # fmt: skip


def _race(name: str, level: str) -> Task:
    """RACE, all of it or one level; the labels of its test split are public."""
    return Task(
        name, kind="multiple_choice", format="race", columns={}, metrics=("accuracy",),
        labels=("A", "B", "C", "D"), dev=("dev", "test"), test=(), folders=("RACE", "race"),
        files={split: f"{split}{level}" for split in ("train", "dev", "test")},
    )  # fmt: skip


def _treebank(name: str, sections: dict[str, str]) -> Task:
    """Wall Street Journal of the Penn Treebank by sections, or lists of files SPLIT.files."""
    places = ("wsj", "tagged/pos/wsj", "parsed/mrg/wsj", "")
    return Task(
        name, kind="tagging", format="treebank", columns={}, metrics=("token_accuracy",),
        files={
            split: (f"{split}.files", *(f"{place}@{numbers}" for place in places))
            for split, numbers in sections.items()
        },
        dev=("dev", "test"), test=(), folders=(name, "treebank"),  # whose tags are there
    )  # fmt: skip


TASKS = {task.name: task for task in _table()}
# The eight tasks of the papers' average; WNLI is left out, as there.
GLUE_TASKS = ("cola", "sst", "mrpc", "sts", "qqp", "mnli", "qnli", "rte")
ALIASES = {
    **dict.fromkeys(("sst-2", "sst2"), "sst"),
    **dict.fromkeys(("sts-b", "stsb"), "sts"),
    **dict.fromkeys(("squadv2", "squad2", "squad-2.0"), "squad"),
    **dict.fromkeys(("squad1", "squad-1.1"), "squadv1"),
    "upos": "pos",
    "race-middle": "race_middle",
    "race-high": "race_high",
    "treebank": "ptb",
}
