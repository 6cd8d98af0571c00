"""From a model directory back to the networks in it; nobody repeats the architecture."""

from __future__ import annotations

import tensorflow as tf

from data.vocabulary import Vocabulary
from errors import InputError
from model import Backbone, BackboneConfig, build_backbone, load_config
from pretrain.build import build_objective
from pretrain.saved_settings import load_hparams, special_ids
from training.checkpointing import as_stored, latest_checkpoint, restore
