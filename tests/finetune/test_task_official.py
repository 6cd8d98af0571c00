"""Files with the quirks of the official ones, official ones if at hand, and those of tfds."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow_datasets as tfds
from official.nlp.tools.squad_evaluate_v1_1 import _normalize_answer

from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import GLUE_TASKS, TASKS, load_task
from convbert.finetune.kinds.span import QuestionExample, official_scores
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.finetune.kinds.texts import TextExample
from convbert.finetune.task_files import find_source, read_split
from tests.finetune import squad_support
from tests.finetune.kinds_support import rejects
from tests.finetune.squad_support import gold_predictions, read_squad

UPOS = TASKS["pos"].labels
# What must not end a line: a lone carriage return, and Unicode's other line ends.
ODD = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g"


def write(path, *lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(map("\t".join, lines)) + end).encode())


PAIR = ("sentence1", "sentence2")
STS = (*("index", "genre", "filename", "year", "old_index", "source1", "source2"), *PAIR)
STS_ROW = ("news", "f", "2012", "1", "none", "none", 'A "man', "A man.")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
# Task, split, file, its lines, what is read.
FILES = [
    # No header in training and development, but in test.
    ("cola", "train", "CoLA/train.tsv",
     [("gj04", "1", "", "One sentence."), ("r-67", "0", "*", f"{ODD} other.")],
     [TextExample("0", "One sentence.", None, 1), TextExample("1", f"{ODD} other.", None, 0)]),
    ("cola", "test", "CoLA/test.tsv", [("index", "sentence"), ("7", "Which?")],
     [TextExample("7", "Which?", None, None)]),
    # Quotation marks that are not closed.
    ("mrpc", "train", "MRPC/train.tsv",
     [MRPC, ("1", "10", "20", '"He said so.', "She said "), ("0", "11", "21", "So", '"No.')],
     [TextExample("0", '"He said so.', "She said ", 1), TextExample("1", "So", '"No.', 0)]),
    ("sts-b", "dev", "STS-B/dev.tsv", [(*STS, "score"), ("0", *STS_ROW, "3.800")],
     [TextExample("0", 'A "man', "A man.", 3.8)]),
    ("mnli", "train", "MNLI/train.tsv",
     [("index", *PAIR, "label1", "gold_label"), ("0", "P", "H", "neutral", "contradiction")],
     [TextExample("0", "P", "H", 0)]),
    ("mnli", "diagnostic", "diagnostic/diagnostic.tsv", [("index", *PAIR), ("30", "P", "H")],
     [TextExample("30", "P", "H", None)]),
    ("sst", "dev", "SST-2/dev.tsv", [("sentence", "label"), ("a", "1")],
     [TextExample("0", "a", None, 1)]),
    ("qnli", "dev", "QNLI/dev.tsv",
     [("question", "sentence", "label"), ("a", "b", "not_entailment")],
     [TextExample("0", "a", "b", 1)]),
    ("rte", "dev", "RTE/dev.tsv", [(*PAIR, "label"), ("a", "b", "entailment")],
     [TextExample("0", "a", "b", 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "split", "file", "lines", "expected"), FILES)
def test_glue(tmp_path, name, split, file, lines, expected):
    write(tmp_path / file, *lines)
    assert read_split(load_task(name), str(tmp_path), split) == expected


def test_qqp(tmp_path, caplog):
    """Questions may be empty; rows that a line break cut in two are left out, and counted."""
    header = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    cut = [("6", "3", "4", "What is"), ("this?", "Who?", "0")]
    whole = [("5", "1", "2", "Why?", "How?", "1"), ("7", "5", "6", "", "Where?", "0")]
    write(tmp_path / "QQP/train.tsv", header, whole[0], *cut, whole[1])
    write(tmp_path / "QQP/test.tsv", ("id", "question1", "question2"), ("4", "Why?", ""))
    task = load_task("qqp")
    with caplog.at_level("WARNING", logger="absl"):
        examples = read_split(task, str(tmp_path), "train")
    found = [(e.text_a, e.text_b, e.label) for e in examples]
    assert found == [("Why?", "How?", 1), ("", "Where?", 0)]
    assert "2 rows" in caplog.text
    assert "line 3" in caplog.text
    assert read_split(task, str(tmp_path), "test") == [TextExample("4", "Why?", "", None)]
    write(tmp_path / "QQP/test.tsv", ("id", "question1", "question2"), ("4", "Why?"))
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), "test")  # each number must get a prediction


def test_part_of_speech(tmp_path):
    """Multiword tokens and empty nodes are no words; a test file may lack the tags."""

    def row(number, form, upos):
        return (number, form, form, upos, "X", "_", "0", "root", "_", "_")

    sentence = [
        ("# sent_id = s-1",),
        ("# text = Can't 10 000",),
        row("1-2", "Can't", "_"),
        row("1", "Ca", "AUX"),
        row("2", "n't", "PART"),
        row("2.1", "go", "VERB"),
        row("3", "10 000", "NUM"),
    ]
    write(tmp_path / "en-ud-train.conllu", *sentence, ("",), row("1", "Hi", "INTJ"), end="\n\n")
    write(tmp_path / "en-ud-test.conllu", row("1", "Hi", "_"), end="")
    task, folder = load_task("pos"), str(tmp_path)
    tags = tuple(UPOS.index(tag) for tag in ("AUX", "PART", "NUM"))
    assert read_split(task, folder, "train") == [
        TaggedExample("s-1", ("Ca", "n't", "10 000"), tags),
        TaggedExample("1", ("Hi",), (UPOS.index("INTJ"),)),
    ]
    assert read_split(task, folder, "test") == [TaggedExample("0", ("Hi",), None)]


def official(name=""):
    """OFFICIAL_DATA_DIR, which should hold this, and the vocabulary in it."""
    folder = os.environ.get("OFFICIAL_DATA_DIR", "")
    if not folder or not os.path.exists(os.path.join(folder, name)):
        pytest.skip(f"OFFICIAL_DATA_DIR should hold {name or 'official files'} and bert_vocab/")
    return folder, Vocabulary.load(os.path.join(folder, "bert_vocab"), do_lower_case=True)


def test_the_official_files():
    """Official counts; every GLUE index once and in order."""
    folder, _ = official()
    counts = {
        "cola": (8551, 1043, 1063),
        "mrpc": (3668, 408, 1725),
        "rte": (2490, 277, 3000),
        "sts": (5749, 1500, 1379),
        "sst": (67349, 872, 1821),
        "qqp": (363846, 40430, 390965),
        "qnli": (104743, 5463, 5463),
        "mnli": (392702, 9815, 9832, 9796, 9847, 1104),
    }
    read = 0
    for name in GLUE_TASKS:
        task = load_task(name)
        if not os.path.isdir(os.path.join(folder, "glue", task.folders[0])):
            continue
        splits = [read_split(task, os.path.join(folder, "glue"), s) for s in task.splits]
        assert tuple(map(len, splits)) == counts[name]
        for split, examples in zip(task.splits, splits, strict=True):
            hidden = split in task.test
            assert all((example.label is None) == hidden for example in examples)
            if hidden:
                assert [example.id for example in examples] == list(map(str, range(len(examples))))
        read += 1
    task = dataclasses.replace(load_task("pos"), folders=("ud_english_ewt",))
    sentences = [read_split(task, folder, split) for split in task.splits]
    assert tuple(map(len, sentences)) == (12544, 2001, 2077)
    assert read >= 4


def test_official_multiple_choice():
    """Questions and texts of RACE's middle schools, as Table I of the ALE report counts them."""
    folder, _ = official("race/train/middle")
    examples = read_split(load_task("race_middle"), os.path.join(folder, "race"), "train")
    assert (len(examples), len({each.context for each in examples})) == (25421, 6409)


@pytest.mark.parametrize(
    ("name", "version_2", "questions", "inside_a_piece"),
    [("train-v1.1-partial.json", False, 4370, 27), ("dev-v2.0-half.json", True, 6078, 0)],
)
def test_official_questions_and_their_gold_answers(name, version_2, questions, inside_a_piece):
    """Through windows, best spans and the official scorer they score exactly 100, but for answers
    that begin or end inside a word piece ("2" of "280")."""
    folder, vocabulary = official(f"squad/{name}")
    examples = read_squad(os.path.join(folder, "squad", name), training=True)
    assert len(examples) == questions
    lengths = {"max_seq_length": 384, "max_query_length": 64, "doc_stride": 128}
    encoded = squad_support.encode(examples, vocabulary, **lengths)
    threshold = -2.75 if version_2 else None
    answers = squad_support.decode(
        examples, encoded, gold_predictions(encoded), threshold, max_answer_length=300
    )
    told = [
        example.is_impossible
        or _normalize_answer(answer.text) in map(_normalize_answer, example.answers)
        for example, answer in zip(examples, answers, strict=True)
    ]
    assert told.count(False) == inside_a_piece
    kept = [i for i, whole in enumerate(told) if whole]
    scores = official_scores([examples[i] for i in kept], [answers[i] for i in kept], version_2)
    assert scores["exact_match"] == scores["f1"] == 100.0
    everything = official_scores(examples, answers, version_2)["exact_match"]
    assert everything == pytest.approx(100 * len(kept) / len(examples))


TEXT, LABEL, MANY = tfds.features.Text(), tfds.features.ClassLabel, tfds.features.Sequence
COLA = {"sentence": TEXT, "label": LABEL(names=["unacceptable", "acceptable"]), "idx": np.int32}
STSB = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32, "idx": np.int32}
ANSWERS = MANY({"text": TEXT, "answer_start": np.int32})
SQUAD = {"id": np.str_, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS}
SQUAD |= {"plausible_answers": ANSWERS, "is_impossible": np.bool_}


def prepare(folder, name, features, splits, config, version):
    """Prepares a dataset of this name in `folder`; `splits` has the rows of each."""
    with tfds.core.registered.skip_registration():

        class Small(tfds.core.GeneratorBasedBuilder):
            # As if defined in a script: for classes of a package, tfds 4.9.10 needs
            # importlib_resources, which it does not declare.
            __module__ = "__main__"
            VERSION = tfds.core.Version(version)
            BUILDER_CONFIGS = (tfds.core.BuilderConfig(name=config),)

            def _info(self):
                own = tfds.features.FeaturesDict(features)
                return tfds.core.DatasetInfo(builder=self, features=own)

            def _split_generators(self, dl_manager):
                return {split: enumerate(rows) for split, rows in splits.items()}

            def _generate_examples(self):
                raise NotImplementedError

    Small.name = name
    Small(data_dir=folder, config=config).download_and_prepare()


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tfds"))
    rows = [{"sentence": f"s {i}", "label": i % 2, "idx": i} for i in range(4)]
    hidden = [{"sentence": "?", "label": -1, "idx": 7}]
    splits = {"train": rows, "validation": rows, "test": hidden}
    prepare(folder, "glue", COLA, splits, "cola", "2.0.0")
    row = {"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 0}
    splits = {"train": [row], "test": [{**row, "label": -1.0}]}
    prepare(folder, "glue", STSB, splits, "stsb", "2.0.0")
    answers = [{"text": "text", "answer_start": 2}, {"text": "A text", "answer_start": 0}]
    question = {
        "id": "q1", "title": "T", "context": "A text.", "question": "Ü?", "answers": answers,
        "plausible_answers": [], "is_impossible": False,
    }  # fmt: skip
    impossible = {**question, "id": "q2", "answers": [], "is_impossible": True}
    unlabelled = {**question, "id": "q3", "answers": []}
    splits = {"train": [question, impossible], "validation": [question, unlabelled]}
    prepare(folder, "squad", SQUAD, splits, "v2.0", "3.0.0")
    return folder


def test_glue_by_name(datasets):
    task, place = load_task("cola"), f"tfds:{datasets}"
    by_id = {example.id: example for example in read_split(task, place, "dev")}
    assert by_id == {str(i): TextExample(str(i), f"s {i}", None, i % 2) for i in range(4)}
    assert read_split(task, place, "test") == [TextExample("7", "?", None, None)]
    task = load_task("sts")
    assert read_split(task, place, "train") == [TextExample("0", "a", "b", 2.5)]
    assert read_split(task, place, "test") == [TextExample("0", "a", "b", None)]
    assert [bool(find_source(task, place, split)) for split in ("dev", "test")] == [False, True]


def test_squad_by_name(datasets):
    examples = read_split(load_task("squad"), f"tfds:{datasets}", "train")
    expected = [("q1", "Ü?", "A text.", ("text", "A text"), 2, False)]
    expected += [("q2", "Ü?", "A text.", (), None, True)]
    found = sorted(examples, key=lambda example: example.id)
    assert found == [QuestionExample(*row) for row in expected]
    with pytest.raises(InputError):
        read_split(load_task("squad"), f"tfds:{datasets}", "dev")


def test_only_built_in_tasks_have_a_dataset(datasets):
    """Of others, the package would import a class that the folder names."""
    own = dataclasses.replace(load_task("cola"), tfds="own:1.0.0")
    for task in (load_task("pos"), own):
        with rejects(task.name):
            read_split(task, f"tfds:{datasets}", "train")
