"""From a model directory back to the networks in it; nobody repeats the architecture."""

from __future__ import annotations

import tensorflow as tf

from data.vocabulary import Vocabulary
from errors import InputError
from model import Backbone, BackboneConfig, build_backbone, load_config
from pretrain.build import build_objective
from pretrain.saved_settings import load_hparams, special_ids
from training.checkpointing import latest_checkpoint, restore
from training.objective import Objective
from training.stored_shapes import as_stored


def stored_parts(prefix: str) -> set[str]:
    """What a checkpoint of training holds: names of the objective's networks, and "optimizer".

    A network all of whose variables are another's, as a generator that is the encoder, is not
    among them.
    """
    names = [name.split("/") for name, _ in tf.train.list_variables(prefix)]
    networks = {name[1] for name in names if name[0] == "objective" and len(name) > 1}
    return networks | {name[0] for name in names if name[0] == "optimizer"}


def load_objective(model_dir: str) -> Objective:
    """The whole pre-training graph of a model directory, with its last checkpoint's weights.

    Raises:
        InputError: there is no checkpoint, or one of the networks is not in it, as after the
            conversion of a checkpoint that lacked it.
    """
    hparams, _ = load_hparams(model_dir)
    vocabulary = Vocabulary.load(model_dir)
    path = latest_checkpoint(model_dir)
    with as_stored(model_dir):
        objective = build_objective(hparams, load_config(model_dir), special_ids(vocabulary))
    stored = stored_parts(path)
    missing = [name for name in hparams.objective.own_networks() if name not in stored]
    if missing:
        raise InputError(f"{path}: the {' and the '.join(missing)} of the objective is not in it")
    restore(tf.train.Checkpoint(objective=objective), model_dir)  # the optimizer is left out
    return objective


def load_encoder(model_dir: str, config: BackboneConfig | None = None) -> Backbone:
    """The pre-trained backbone of a model directory; what fine-tuning and serving start from.

    Args:
        model_dir: of run_pretraining.py or run_finetuning.py.
        config: the architecture with other dropout rates; by default that of `model_dir`.

    Raises:
        InputError: there is no checkpoint, or it holds no such encoder.
    """
    config = config or load_config(model_dir)
    with as_stored(model_dir):
        encoder = build_backbone(config)
    restore_encoder(encoder, model_dir)
    return encoder


def restore_encoder(encoder: Backbone, model_dir: str) -> None:
    """Gives a backbone the pre-trained weights of a model directory; raises as `load_encoder`."""
    restore(tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder)), model_dir)
