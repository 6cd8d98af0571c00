"""Model directories of random weights, for benchmarks of exported models.

python -m convbert.benchmarks.random_model SIZE FOLDER [classifier]

SIZE of the modern encoder may name one of MIXERS: "ettin-17m:mixed".
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import tensorflow as tf
import tf_keras

from convbert.benchmarks.texts import made_up_words
from convbert.checkpoints.model_directory import (
    Conversion,
    Networks,
    describe_pretraining,
    save,
    save_fine_tuned,
)
from convbert.common.settings import reject_unknown, replace_checked
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune import declaration
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.load import TaskModel
from convbert.finetune.objective import FineTuning
from convbert.model import build_backbone, named_size

# Fields of the modern encoder's configuration that differ from attention alone.
MIXERS: dict[str, dict[str, Any]] = {
    "mixed": {"token_mixer": "mixed"},
    "gated_convolution": {"token_mixer": "gated_convolution", "conv_kernel_size": 3},
    "canon": {"canon_kernel_size": 3},
}
FILES = {"name": "made_up", "files": {"train": "train.jsonl", "dev": "dev.jsonl"}}
# Declarations and hyper-parameters of fine-tuned models, whose heads others have, too.
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "classifier": (
        {
            "kind": "classification",
            "labels": ["no", "yes"],
            "columns": {"text_a": "text", "label": "label"},
        },
        {"classifier": "dense"},
    ),
    "embedding": ({"kind": "embedding", "columns": {"text_a": "text", "text_b": "second"}}, {}),
}


def make_model(size: str, folder: str, kind: str = "") -> None:
    """Writes a pre-trained model, or a fine-tuned one of `TASKS`."""
    name, _, mixer = size.partition(":")
    reject_unknown([mixer] if mixer else [], [*MIXERS])
    config = replace_checked(named_size(name), MIXERS.get(mixer, {}))
    words = made_up_words(config.vocab_size - len(SPECIAL_TOKENS))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    tf_keras.utils.set_random_seed(0)
    encoder = build_backbone(config)
    for variable in encoder.variables:  # so that no bias is zero, no scale one
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.02))
    if not kind:
        # A generator of a quarter of the width would have too few heads for some token mixers.
        hparams = describe_pretraining(config, vocabulary, generator_hidden_size=1.0)
        save(Conversion(config, hparams, vocabulary, Networks(encoder)), folder, {})
        return
    declared, values = TASKS[kind]
    task = declaration.parse(FILES | declared, "task")
    settings = resolve_hparams(values, task, config)
    objective = FineTuning(encoder, task.plugin.head(task, config, settings))
    record = {"hparams": {**dataclasses.asdict(settings), "vocabulary": vocabulary.digest}}
    save_fine_tuned(TaskModel(objective, task, settings, vocabulary, record), folder, {})


if __name__ == "__main__":
    make_model(*sys.argv[1:])
