"""docs/tasks.md: its declarations and their example files are read and trained on."""

import pathlib
import re
import textwrap

import pytest

from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from finetune.catalogue import load_task
from finetune.hparams import resolve_hparams
from finetune.kinds.tagging import TaggedExample
from finetune.task_data import load_task_data
from tests.finetune.kinds_support import predicted, task_of
from tests.model_support import TINY

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "tasks.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FILE = re.compile(r"^`(\w+/[\w.]+)`:\n\n((?:    .*\n|\n)+)", re.MULTILINE)
LENGTHS = {"max_seq_length": 48, "max_query_length": 12, "doc_stride": 16}
# And their words, questions, or places of options in the training split.
TASKS = {"topics": 4, "ner": 7 + 5 + 7, "facts": 4, "choices": 4 * 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the document shows, by the names that it gives them."""
    folder = tmp_path_factory.mktemp("extending")
    for name, content in FILE.findall(TEXT):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_the_declarations_are_read(folder, name):
    task = load_task(str(folder / name / f"{name}.json"))
    assert task.name == name
    config = TINY.replace(vocab_size=1000)
    lengths = {name: LENGTHS[name] for name in task.plugin.shaping if name in LENGTHS}
    hparams = resolve_hparams(lengths, task, config)
    words = {word.lower() for word in re.findall(r"\w+|[^\w\s]", TEXT)}
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *sorted(words)))
    data = load_task_data(task, "", vocabulary, hparams, cache_dir=None)
    assert vocabulary.unk_id not in data.train.tokens["input_ids"]  # all words are the document's
    if name == "ner":
        assert data.task.labels == ("B-LOC", "B-PER", "I-PER", "O")
        assert data.train.tokens["tag_weight"].sum() == TASKS[name]
    else:
        assert len(data.train.sequences["example"]) == TASKS[name]
    assert list(data.splits) == ["dev"]
    assert len(data.splits["dev"].examples) == 2


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        # Two neighbours of one type, one of another.
        ("I-PER I-PER B-PER O I-LOC I-PER", 4),  # IOB1
        ("B-PER I-PER B-PER O B-LOC B-PER", 4),  # IOB2, BIO
        ("B-PER E-PER S-PER O S-LOC S-PER", 4),  # BIOES
        ("B-PER L-PER U-PER O U-LOC U-PER", 3),  # BILOU: the neighbours become one
        ("O I-PER O O O O", 1),
    ],
)
def test_entities_of_each_scheme(tags, entities):
    """One entity missing of n found: precision 1, recall (n - 1) / n."""
    tags = tags.split()
    task = task_of("tagging", "f1", labels=tuple(sorted({*tags, "O"})))
    gold = tuple(map(task.labels.index, tags))
    found = [TaggedExample("0", tuple("abcdef"), gold)]
    assert task.plugin.score(predicted(task, found, [gold])) == {"f1": 100.0}
    # Without its last entity, one word long in each scheme but the last two.
    last = max(place for place, tag in enumerate(tags) if tag != "O")
    fewer = (*gold[:last], task.labels.index("O"), *gold[last + 1 :])
    recall = (entities - 1) / entities
    expected = pytest.approx(100 * 2 * recall / (1 + recall))
    assert task.plugin.score(predicted(task, found, [fewer]))["f1"] == expected
