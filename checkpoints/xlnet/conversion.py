"""XLNet's networks and vocabulary, for both of its formats."""

from __future__ import annotations

import os
from typing import Any

import storage
from checkpoints.model_directory import (
    INCOMPLETE,
    Conversion,
    Networks,
    Options,
    describe_pretraining,
)
from data.sentencepiece_model import MODEL_FILE
from data.vocabulary import Vocabulary
from errors import InputError
from model import build_backbone
from model.xlnet.config import XLNetConfig
from model.xlnet.head import XLNetLMHead
from pretrain.load import SpecialIds

OBJECTIVE = "permutation_lm"
UNWEIGHTED = ("max_position_embeddings", "type_vocab_size")  # fields that no weights depend on


def load_vocabulary(options: Options, folder: str, rows: int) -> tuple[Vocabulary, list[str]]:
    """The SentencePiece model that the options name, or that of a folder; and notes.

    Raises:
        InputError: no such file, another kind of vocabulary, or more pieces than `rows`.
    """
    path = options.vocab or os.path.join(folder, MODEL_FILE)
    if not storage.exists(path):
        hint = "" if options.vocab else "; say with --vocab where it is"
        raise InputError(f"{path}: there is no such vocabulary{hint}")
    vocabulary = Vocabulary.load(
        path, do_lower_case=options.do_lower_case, strip_accents=options.strip_accents
    )
    check_kind(vocabulary, path)
    if vocabulary.size > rows:
        raise InputError(
            f"{path} should hold at most {rows} pieces, as the embeddings have rows."
            f" Received: {vocabulary.size}"
        )
    cased = "lower-cased" if vocabulary.do_lower_case else "cased"
    accents = "stripped" if vocabulary.strip_accents else "kept"
    notes = [
        f"vocabulary: {vocabulary.size} pieces, {cased}, accents {accents}"
        " (--do_lower_case and --strip_accents say otherwise)"
    ]
    if vocabulary.size < rows:
        notes.append(
            f"padded vocabulary: the embeddings have {rows} rows for {vocabulary.size} pieces; the"
            f" ids from {vocabulary.size} on are never predicted, drawn or accepted as input"
        )
    return vocabulary, notes


def check_kind(vocabulary: Vocabulary, where: str) -> None:
    """Raises InputError unless a vocabulary is of the kind that other XLNets have."""
    if vocabulary.tokenizer != "sentencepiece":
        raise InputError(
            f"{where} should be a vocabulary of SentencePiece, as XLNets of other formats have."
            f" Received: {vocabulary.tokenizer}"
        )


def check_head_size(received: Any, config: XLNetConfig, path: str) -> None:
    """Raises InputError unless heads are as wide as they always are here."""
    if received != config.head_size:
        raise InputError(
            f"{path}: `d_head` should be d_model / n_head, {config.head_size}. Received: {received}"
        )


def build(
    config: XLNetConfig, vocabulary: Vocabulary, complete: bool
) -> tuple[Conversion, XLNetLMHead | None]:
    """A conversion whose networks are to be filled, and the head, or None.

    Without what only its head has (`complete` False) it is an encoder alone.
    """
    hparams = describe_pretraining(config, vocabulary, objective=OBJECTIVE)
    if complete:
        objective = hparams.build_objective(config, SpecialIds(vocabulary))
        return Conversion(config, hparams, vocabulary, objective), objective.head
    conversion = Conversion(config, hparams, vocabulary, Networks(build_backbone(config)))
    conversion.notes.append(f"there is no head of permutation language modelling; {INCOMPLETE}")
    return conversion, None


def unwritten(conversion: Conversion) -> list[str]:
    """What both formats have no place for."""
    moments = ", the optimizer's moments" if conversion.optimizer else ""
    notes = [f"left out, as the format has no place for it: the settings of pre-training{moments}"]
    config = conversion.config
    if conversion.objective.head is None:
        notes.append("left out, as the model has no such head: mask_emb and the output layer")
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        notes.append(
            f"`dropout` there is {config.hidden_dropout_prob}, also of attention probabilities,"
            f" where it is {config.attention_probs_dropout_prob} here; it matters in training only"
        )
    return notes
