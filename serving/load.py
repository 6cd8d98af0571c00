"""What can be served: the networks of a model directory, pre-trained or fine-tuned."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tf_keras

import storage
from data.vocabulary import Vocabulary, trained_vocabulary
from errors import InputError, reason
from finetune.hparams import FinetuningHParams
from finetune.load import load_fine_tuned
from finetune.objective import FineTuning
from finetune.results import choose_run, read_results, run_record
from finetune.task import Task
from model import Backbone, BackboneConfig, load_config
from model.config import CONFIG_FILE
from model.heads.crf import CrfHead
from model.heads.linear_chain import ChainScores
from pretrain.hparams import PretrainingHParams
from pretrain.load import (
    SpecialIds,
    is_fine_tuned,
    load_hparams,
    restore,
    stored_parts,
)
from pretrain.objectives import ScoringMethod, choose
from settings import check_setting
from signatures.embeddings import embeddings
from signatures.functions import Function, Offer
from signatures.network import Network
from signatures.pretraining import signatures as pretraining
from signatures.signature import Signature
from training.checkpointing import latest_checkpoint
from training.model_directory import RESULT_FILE, read_record
from training.stored_shapes import as_stored

T = TypeVar("T", bound=Offer | ScoringMethod)
# Where the maximum sequence length is from.
_TRAINED, _SAID = "as in training", "from --max_seq_length"
PRETRAINING = "pretraining"  # the kind of a model that has not been fine-tuned


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """Networks with their weights, and what is known of them; None for what a model has not."""

    kind: str  # of the task (see `finetune.kinds`), or PRETRAINING
    encoder: Backbone
    vocabulary: Vocabulary
    max_seq_length: int
    length_origin: str
    precision: str  # "float32" or "mixed_bfloat16"
    hparams: FinetuningHParams | PretrainingHParams
    record: dict[str, Any]  # what `hparams.json` holds
    objective: FineTuning | None = None  # encoder and head of a fine-tuned model
    task: Task | None = None  # likewise
    # What the objective of a pre-trained model offers, with the networks for it.
    offers: dict[Offer, tuple[tf.Module, ...]] = dataclasses.field(default_factory=dict)
    scoring: tuple[ScoringMethod, tuple[tf.Module, ...]] | None = None  # of sentences; its networks
    run: dict[str, Any] | None = None  # fine-tuned: its score, what it was chosen from, as JSON
    folder: str = ""  # it was loaded from; of several runs that of the one chosen

    @property
    def config(self) -> BackboneConfig:
        """The encoder's architecture."""
        return self.encoder.config

    @property
    def visible_padding(self) -> int:
        """See `BackboneConfig.visible_padding`: the most of the networks that answer."""
        encoders = [self.encoder, *self.scoring_networks[:1]]
        encoders += [networks[0] for networks in self.offers.values()]
        return max(encoder.config.visible_padding for encoder in encoders)

    @property
    def scoring_method(self) -> ScoringMethod | None:
        """How sentences are scored; None where the model has no networks for that."""
        return self.scoring[0] if self.scoring else None

    @property
    def scoring_networks(self) -> tuple[tf.Module, ...]:
        """The networks of `scoring`, its encoder first."""
        return self.scoring[1] if self.scoring else ()

    @property
    def transitions(self) -> ChainScores | None:
        """The scores of a CRF head's chain; None without one."""
        head = self.objective.head if self.objective else None
        return head.scores() if isinstance(head, CrfHead) else None

    @property
    def layers(self) -> list[tf.Module]:
        """All networks and their layers, those that are shared once."""
        networks = [self.objective or self.encoder, *self.scoring_networks]
        networks += [network for of_offer in self.offers.values() for network in of_offer]
        found = [layer for network in networks for layer in (network, *network.submodules)]
        return list({id(layer): layer for layer in found}.values())

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables, those of shared layers once."""
        found = {id(v): v for layer in self.layers for v in layer.variables}
        return list(found.values())


def load(
    model_dir: str,
    *,
    precision: str = "float32",
    max_seq_length: int | None = None,
    scoring_method: str | None = None,
) -> ServedModel:
    """Loads a model directory.

    Args:
        model_dir: of run_pretraining.py; of a run of run_finetuning.py
            (`OUTPUT_DIR/TASK/SETTING/trial_N`); or a folder of such runs, of which the one of
            highest development score is taken, see `finetune.results.choose_run`.
        precision: whatever the model was trained with: "float32", or "mixed_bfloat16", in which
            matrices are stored in bfloat16, too.
        max_seq_length: the maximum; by default as in training, or of a converted model, of which
            that is unknown, all that it has positions for.
        scoring_method: the name of one of a pre-trained model; by default the first that it has
            the networks for, if any.

    Raises:
        InputError: no model directory, no checkpoint, files that do not fit each other, weights
            that are not finite, a length or a scoring method that the model cannot have.
    """
    if not storage.isdir(model_dir):
        raise InputError(
            f"{model_dir}: there is no such folder; checkpoints.convert makes a model directory of"
            " the files of other models"
        )
    if not storage.exists(os.path.join(model_dir, CONFIG_FILE)):
        run = choose_run(model_dir)
        model_dir = run["folder"]
    else:
        run = _own_record(model_dir)
    tf_keras.mixed_precision.set_global_policy(precision)
    if is_fine_tuned(model_dir):
        if scoring_method is not None:
            raise InputError(f"{model_dir}: a fine-tuned model has no scoring method")
        fields = _load_fine_tuned(model_dir, max_seq_length)
    else:
        fields = _load_pretrained(model_dir, max_seq_length, scoring_method)
    model = ServedModel(precision=precision, run=run, folder=model_dir, **fields)
    _check_finite(model, model_dir)
    if precision != "float32":
        _store_as_computed(model)
    return model


def _own_record(model_dir: str) -> dict[str, Any] | None:
    """What a run's folder says of the run; None where it is no finished run."""
    if not storage.exists(os.path.join(model_dir, RESULT_FILE)):
        return None
    (result,), _ = read_results(model_dir)
    return run_record(result)


def _load_fine_tuned(model_dir: str, max_seq_length: int | None) -> dict[str, Any]:
    """Fields of ServedModel."""
    length = {} if max_seq_length is None else {"max_seq_length": max_seq_length}
    loaded = load_fine_tuned(model_dir, **length)
    return {
        "kind": loaded.task.plugin.name,
        "encoder": loaded.objective.encoder,
        "vocabulary": loaded.vocabulary,
        "max_seq_length": loaded.hparams.max_seq_length,
        "length_origin": _TRAINED if max_seq_length is None else _SAID,
        "hparams": loaded.hparams,
        "record": loaded.record,
        "objective": loaded.objective,
        "task": loaded.task,
    }


def _load_pretrained(
    model_dir: str, max_seq_length: int | None, scoring_method: str | None
) -> dict[str, Any]:
    """Fields of ServedModel: the encoder and, of other networks, what the checkpoint holds."""
    hparams, _ = load_hparams(model_dir)
    record = read_record(model_dir)
    config = load_config(model_dir)
    longest = config.max_position_embeddings
    converted, origin = record["run_settings"].get("converted"), _TRAINED
    if max_seq_length is not None:
        origin = _SAID
    elif converted and converted.get("max_seq_length") is None:
        max_seq_length, origin = longest, "all positions it has, as its checkpoint does not say it"
    if max_seq_length is not None:
        hparams = dataclasses.replace(hparams, max_seq_length=max_seq_length)
    fits = 3 <= hparams.max_seq_length <= longest
    check_setting(hparams, fits, "max_seq_length", f"at least 3 and at most {longest}")
    digest = record["hparams"].get("vocabulary")
    vocabulary = trained_vocabulary(model_dir, config.vocab_size, digest)
    with as_stored(model_dir):
        objective = hparams.build_objective(config, SpecialIds(vocabulary))
    stored = {"encoder", *_stored_parts(model_dir)}
    parts = {n: getattr(objective, n) for n in hparams.objective.own_networks() if n in stored}
    restore(tf.train.Checkpoint(objective=tf.train.Checkpoint(**parts)), model_dir)

    def restored(listed: Iterable[T]) -> dict[T, tuple[tf.Module, ...]]:
        """Offers or scoring methods all of whose networks the checkpoint holds, with these."""
        loaded = {id(network) for network in parts.values()}
        found = {item: tuple(getattr(objective, n) for n in item.networks) for item in listed}
        return {item: own for item, own in found.items() if loaded.issuperset(map(id, own))}

    methods = restored(hparams.objective.scoring_methods)
    scoring = None
    if methods or scoring_method is not None:
        method = choose([*methods], scoring_method, model_dir)
        scoring = method, methods[method]
    return {
        "kind": PRETRAINING,
        "encoder": objective.encoder,
        "vocabulary": vocabulary,
        "max_seq_length": hparams.max_seq_length,
        "length_origin": origin,
        "hparams": hparams,
        "record": record,
        "offers": restored(hparams.objective.signatures),
        "scoring": scoring,
    }


def _stored_parts(model_dir: str) -> set[str]:
    path = latest_checkpoint(model_dir)
    try:
        return stored_parts(path)
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        raise InputError(f"{path}: the checkpoint cannot be read ({reason(error)})") from error


def _check_finite(model: ServedModel, model_dir: str) -> None:
    for variable in model.variables:
        wrong = int(np.sum(~np.isfinite(variable.numpy())))
        if wrong:
            raise InputError(
                f"{model_dir}: {variable.name} should have finite values. Received: {wrong} of"
                f" {int(tf.size(variable))} that are not"
            )


def _store_as_computed(model: ServedModel) -> None:
    """Replaces float32 variables that layers cast to bfloat16 before use by their bfloat16 cast.

    The outputs stay the same to the bit. What is computed in float32 (layer norms, and heads whose
    layers are of float32) keeps its variables.
    """
    for layer in model.layers:
        for name, value in list(vars(layer).items()):
            # Keras marks variables that it casts so; it has no public name for them.
            if type(value).__name__ == "AutoCastVariable":
                stored = tf.cast(value.read_value(), tf.bfloat16)
                setattr(layer, name, tf.Variable(stored, trainable=False, name=name))


def signatures(
    model: ServedModel, functions: dict[str, Function] | None = None
) -> dict[str, Signature]:
    """Every signature of a model by name, `serving_default` first.

    All models have `serving_default`, `embeddings` and `token_ids`; see docs/serving.md.
    `functions` are by default those of the model's networks.
    """
    network = Network(model, functions)
    of_kind = model.task.plugin.signatures if model.task else pretraining
    return {**of_kind(network), "embeddings": embeddings(network)}
