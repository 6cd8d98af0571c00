# ruff: noqa: RUF001  (odd characters are what is tested)
"""A small question set with everything that makes alignment hard, and a vocabulary for it."""

import json
import os
import string

import numpy as np

from convbert.data.text.layout import TextLayout
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.encoding import Encoded, Split
from convbert.finetune.kinds.span import SpanHParams
from convbert.finetune.squad import decode_answers, encode_questions
from convbert.finetune.task_files import read_split
from tests.finetune.kinds_support import task_of

CHARACTERS = string.ascii_letters + string.digits + string.punctuation + "éèüÉαβσς−–北京한한"
WORDS = ("the", "in", "was", "cafe", "café", "who", "what", "city", "born", "19", "##s", "##95")
CONTEXT = (
    "In the 1995s, the Café “Zoé”\u200b was born; cafe\u0301s in 北京 were soft\u00adly lit."
    " ΑΣ İzmir, ﬁne 한국: straße −5\u00a0% \ufffdthe\tend"
)
LONG = " ".join(f"the {i} city was born in 19{i:02} ." for i in range(40))


def vocabulary(**switches) -> Vocabulary:
    pieces = [*CHARACTERS, *(f"##{character}" for character in CHARACTERS), *WORDS]
    return Vocabulary((*SPECIAL_TOKENS, *dict.fromkeys(pieces)), **switches)


def question(identifier, context, *answers, text="What was it?", is_impossible=None) -> dict:
    """A question of a SQuAD file; answers are texts (their first place) or pairs (text, start)."""
    places = [(item, context.index(item)) if isinstance(item, str) else item for item in answers]
    item = {"id": identifier, "question": text}
    item["answers"] = [{"text": text, "answer_start": start} for text, start in places]
    if is_impossible is not None:
        item["is_impossible"] = is_impossible
    return item


def write_squad(path, *paragraphs) -> str:
    content = [{"context": context, "qas": questions} for context, questions in paragraphs]
    path.write_text(json.dumps({"version": "2", "data": [{"paragraphs": content}]}))
    return str(path)


def small_file(path) -> str:
    """Answerable and unanswerable questions about a short and a long context."""
    texts = ["Café “Zoé”", "cafés", "北京", "soft\xadly", "ΑΣ", "İzmir", "ﬁne", "−5\xa0%", "end"]
    short = [question(f"s{i}", CONTEXT, text, is_impossible=False) for i, text in enumerate(texts)]
    long = [
        question(f"l{i}", LONG, f"born in 19{i:02}", f"19{i:02}", is_impossible=False)
        for i in range(0, 40, 3)
    ]
    none = [question(f"n{i}", LONG, is_impossible=True) for i in range(4)]
    return write_squad(path, (CONTEXT, short), (LONG, long + none))


def encode(examples, words, **lengths) -> Encoded:
    hparams = SpanHParams(**lengths)
    layout = TextLayout(create_tokenizer(words), hparams.max_seq_length)
    return encode_questions(task_of("span"), examples, layout, hparams)


def decode(examples, encoded, predictions, threshold=None, **changes) -> list:
    if threshold is not None:
        changes["qa_na_threshold"] = threshold
    task, split = task_of("span", version_2=threshold is not None), Split(examples, encoded)
    return decode_answers(task, split, predictions, SpanHParams(**changes))


def random_predictions(encoded: Encoded, K: int = 6, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns random predictions for every window, best first, without repetitions."""
    draw = np.random.default_rng(seed)
    n = len(encoded)
    predictions = {
        "start_log_probs": -np.sort(draw.uniform(1, 9, [n, K])),
        "end_log_probs": -np.sort(draw.uniform(1, 9, [n, K, K])),
        "start_index": np.zeros([n, K]),
        "end_index": np.zeros([n, K, K]),
        "answerable_logit": draw.normal(-2.75, 2, [n]),
    }
    for window, length in enumerate(encoded.lengths):
        predictions["start_index"][window] = draw.permutation(length + 2)[:K]  # two are padding
        for beam in range(K):
            predictions["end_index"][window, beam] = draw.permutation(length + 2)[:K]
    kinds = {name: np.int32 if "index" in name else np.float32 for name in predictions}
    return {name: value.astype(kinds[name]) for name, value in predictions.items()}


def gold_predictions(encoded: Encoded) -> dict[str, np.ndarray]:
    """Random ones, but for the gold spans, which are all but certain."""
    predictions = random_predictions(encoded)
    windows = np.flatnonzero(encoded.sequences["start_position"])
    predictions["start_index"][windows, 0] = encoded.sequences["start_position"][windows]
    predictions["end_index"][windows, 0, 0] = encoded.sequences["end_position"][windows]
    predictions["start_log_probs"][windows, 0] = predictions["end_log_probs"][windows, 0, 0] = -0.01
    predictions["answerable_logit"] = 12.0 * encoded.sequences["is_impossible"] - 6.0
    return predictions


def read_squad(path, *, training=False):
    """The examples of a file as those of a training split, or of a test split."""
    folder, name = os.path.split(path)
    files = dict.fromkeys(("train", "dev", "test"), name)
    task = task_of("span", files=files, test=("test",), version_2=True)
    return read_split(task, folder, "train" if training else "test")
