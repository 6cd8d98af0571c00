"""Time of scoring sentences: a pass per masked piece, or one pass in all.

    python -m benchmarks.scoring --lists ../shared/data/asr_nbest/dev-clean.am.json --vocab my_data

The sentences are the hypotheses of n-best lists, in the formats of scoring/nbest.py.
All networks are of the same size and have random weights. "A sequence per mask" is the approach of
awslabs/mlm-scoring: masked sequences in the order of the text, each batch padded to its longest,
with logits at all positions; in our network, and with Hugging Face's. Their sentences are
tokenized already, ours are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks.interleaved import Result, System, measure, ratio
from benchmarks.ours_scoring import sequences
from benchmarks.table import Report
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors
from model import named_size
from scoring.nbest import Utterance, read_lists

_LISTS = flags.DEFINE_string("lists", None, "File of n-best lists.")
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary, or a folder that holds one.")
_SIZE = flags.DEFINE_string("size", "bert-small", "Named size of the encoder.")
_MAX_UTTERANCES = flags.DEFINE_integer(
    "max_utterances", 20, "Utterances, of lengths as in the file.", lower_bound=1
)
_BATCH = flags.DEFINE_integer("batch", 64, "Masked sequences of a batch of mlm-scoring's.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each system.")

CRITIC, LIKELIHOOD = "self-critic", "pseudo-log-likelihood"
BFLOAT16 = "the same in bfloat16"
PER_MASK, HF_PER_MASK = "a sequence per mask", "HF a sequence per mask"


def main(argv: list[str]) -> None:
    """Prints a row per system."""
    texts = hypotheses(read_lists(_LISTS.value), _MAX_UTTERANCES.value)
    ids = sequences(texts, _VOCAB.value)
    results = measure(systems(texts, ids), _ROUNDS.value)
    check_agreement(results)
    columns = {"system": "", "sentences": "d", "pieces": "d", "s per 1,000": ".1f", "GiB": ".2f"}
    report = Report(columns | {f"time / {name}": ".2f" for name in (LIKELIHOOD, CRITIC)})
    pieces = sum(len(sequence) - 2 for sequence in ids)
    for name, result in results.items():
        slower = [ratio(result, results[other]) for other in (LIKELIHOOD, CRITIC)]
        per_thousand = 1000 * result.median / len(texts)
        report.row(name, len(texts), pieces, per_thousand, result.peak_memory, *slower)
    report.missing(results)
    report.end()


def hypotheses(lists: Sequence[Utterance], count: int) -> list[str]:
    """The texts of `count` utterances, in their order: short and long ones as in all of them."""
    texts = [utterance.hypotheses for utterance in lists]
    by_length = np.argsort([sum(map(len, one)) for one in texts], kind="stable")
    count = min(count, len(texts))
    middles = (np.arange(count) + 0.5) * len(texts) / count  # of equal shares
    return [text for number in sorted(by_length[middles.astype(int)]) for text in texts[number]]


def systems(texts: list[str], ids: list[list[int]]) -> list[System]:
    """All five."""
    ours = {"size": _SIZE.value, "vocab": _VOCAB.value}
    critic = {"objective": "self_critic", "method": "self_critic", "sentences": texts}
    masked = {"objective": "masked_lm", "method": "pseudo_log_likelihood", "sentences": texts}
    per_mask = {"sequences": ids, "batch": _BATCH.value}
    words = Vocabulary.load(_VOCAB.value)
    fields = dataclasses.asdict(named_size(_SIZE.value).replace(vocab_size=words.size))
    theirs = {"fields": fields, "mask_id": words.mask_id, **per_mask}
    module = "benchmarks.ours_scoring"
    return [
        System(CRITIC, f"{module}:scores", {**ours, **critic}),
        System(LIKELIHOOD, f"{module}:scores", {**ours, **masked}),
        System(BFLOAT16, f"{module}:scores", {**ours, **masked, "precision": "mixed_bfloat16"}),
        System(PER_MASK, f"{module}:one_sequence_per_mask", {**ours, **per_mask}),
        System(HF_PER_MASK, "benchmarks.huggingface:pseudo_log_likelihood", theirs),
    ]


def check_agreement(results: dict[str, Result]) -> None:
    """Raises InputError where both ways to mask, in equal networks, find other scores."""
    ours, others = (np.array(results[name].facts["scores"]) for name in (LIKELIHOOD, PER_MASK))
    if not np.allclose(ours, others, rtol=1e-5, atol=1e-3):
        largest = np.max(np.abs(ours - others))
        raise InputError(f"both should find the same scores. Received: {largest:g} between them")


if __name__ == "__main__":
    flags.mark_flags_as_required(["lists", "vocab"])
    app.run(main_with_clear_errors(main))
