"""Which model is asked, and by which method it scores."""

from __future__ import annotations

import os

import storage
from errors import InputError
from pretrain.load import is_fine_tuned, load_hparams
from pretrain.objectives import choose
from serving.description import read_description


def is_exported(path: str) -> bool:
    """Whether a folder holds a SavedModel."""
    return storage.exists(os.path.join(path, "saved_model.pb"))


def method_of(path: str, method: str | None = None) -> str:
    """The name of the method by which a model scores sentences.

    Args:
        path: a model directory of pre-training, or a SavedModel.
        method: the one that is asked for; by default the first that the objective offers, or the
            one that was exported.

    Raises:
        InputError: no such folder, no model that scores sentences, or none by this method.
    """
    if not storage.isdir(path):
        raise InputError(f"{path}: there is no such folder")
    if not is_exported(path):
        if is_fine_tuned(path):
            raise InputError(f"{path}: a fine-tuned model has no scoring method")
        hparams, _ = load_hparams(path)
        return choose(hparams.objective.scoring_methods, method, path).name
    description = read_description(path)
    if "score" not in description["signatures"]:
        raise InputError(f"{path}: the SavedModel has no signature `score`")
    exported = description["scoring_method"]
    if method not in (None, exported):
        raise InputError(
            f"{path}: the scoring method should be {exported}, with which the model was exported."
            f" Received: {method!r}"
        )
    return exported
