"""Writes what sentence-transformers reads beside a transformers model: pooling, normalisation."""

from __future__ import annotations

import os

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.files import write_json
from convbert.finetune.load import TaskModel

_MODULES_FILE = "modules.json"
_MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


def unread(folder: str) -> list[str]:
    """Returns a note on the modules after the encoder, if any, which are not read."""
    if not storage.exists(os.path.join(folder, _MODULES_FILE)):
        return []
    return [f"{_MODULES_FILE}: pooling and later modules are not read; `embed` takes `pooling`"]


def write(model: TaskModel, folder: str) -> list[str]:
    """Adds the files of `SentenceTransformer(folder)` to an encoder's; returns notes.

    `model` has an `EmbeddingHead`. InputError if sentence-transformers has no such pooling.
    """
    config, mean = model.objective.encoder.config, model.objective.head.pooling == "mean"
    if not mean and config.summary_token != 0:
        raise InputError("sentence-transformers has no pooling of such a model's last token")
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (path, name) in enumerate(_MODULES.items())
    ]
    pooling = {"word_embedding_dimension": config.hidden_size}
    pooling |= {"pooling_mode_mean_tokens": mean, "pooling_mode_cls_token": not mean}
    for name, value in (
        (_MODULES_FILE, modules),
        ("1_Pooling/config.json", pooling),
        ("2_Normalize/config.json", {}),
        ("sentence_bert_config.json", {"max_seq_length": model.hparams.max_seq_length}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "cosine"}),
    ):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_json(path, value)
    call = "SentenceTransformer(FOLDER).encode(texts"
    # In transformers' ConvBERT, padding enters the convolution.
    call += ", batch_size=1)" if getattr(config, "convolves", False) else ")"
    notes = [f"written: pooling and normalisation, for {call}"]
    if config.visible_padding:
        notes.append("vectors differ: here texts are padded to `max_seq_length`, there hardly")
    return notes
