"""Loads the networks of a pre-trained or fine-tuned model directory for serving."""

from __future__ import annotations

import dataclasses
import itertools
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from convbert.common import storage
from convbert.common.backend import precision
from convbert.common.errors import InputError, located, warn
from convbert.common.settings import check_setting, present
from convbert.data.tokenizers import create_tokenizer
from convbert.finetune.load import load_fine_tuned
from convbert.finetune.results import choose_run, read_results, run_record
from convbert.model import Backbone, EncoderOutput, load_config
from convbert.model.config import CONFIG_FILE
from convbert.model.kernels import without_gradients
from convbert.pretrain.load import (
    SpecialIds,
    is_fine_tuned,
    load_hparams,
    recorded_vocabulary,
    restore,
    stored_parts,
)
from convbert.pretrain.objectives.base import Offer, ScoringMethod, choose
from convbert.serving.signatures import pretraining, tasks
from convbert.serving.signatures.network import (
    ENCODE,
    ONE_TOKEN,
    PREDICT,
    SCORE,
    SCORED,
    Function,
    Network,
    Served,
)
from convbert.serving.signatures.parts import SEQUENCES
from convbert.serving.signatures.signature import FEATURES, Signature, Tensors
from convbert.training.checkpointing import latest_checkpoint
from convbert.training.monitoring import METRICS_FILE
from convbert.training.run_record import RESULT_FILE, read_record, trained_length
from convbert.training.tracing import plain_function

T = TypeVar("T", bound=Offer | ScoringMethod)
PRETRAINING = "pretraining"  # the kind of a model that has not been fine-tuned


@dataclasses.dataclass(frozen=True)
class ServedModel(Served):
    """Networks with their weights and records."""

    networks: Sequence[tf.Module]  # the encoder first; then, for a fine-tuned model, its head
    record: dict[str, Any]  # content of `hparams.json`
    run: dict[str, Any] | None  # a fine-tuned model's score, and the runs it was chosen from

    @property
    def variables(self) -> list[tf.Variable]:
        """Returns all variables, without duplicates."""
        found = {id(v): v for network in self.networks for v in network.variables}
        return list(found.values())


@precision("float32")
def load_model_directory(
    model_dir: str, *, max_seq_length: int | None = None, scoring_method: str | None = None
) -> ServedModel:
    """Loads a model directory of pre-training or fine-tuning, or a folder of fine-tuned runs.

    Among several runs, loads the one with the highest development score; see
    `finetune.results.choose_run`. `max_seq_length` defaults to that of training, or to the number
    of positions if a converted model has no record of it. `scoring_method` defaults to the first
    one that the model supports.

    InputError for no model directory, no checkpoint that can be read and is finite, files that do
    not fit together, and an unsupported length or scoring method.
    """
    if not storage.isdir(model_dir):
        hint = "`convbert convert` makes a model directory from the files of other models"
        raise InputError(f"{model_dir}: there is no such folder; {hint}")
    run = None
    if not storage.exists(os.path.join(model_dir, CONFIG_FILE)):
        run = choose_run(model_dir)
        model_dir = run["folder"]
    elif storage.exists(os.path.join(model_dir, RESULT_FILE)):  # a finished run
        (result,), _ = read_results(model_dir)
        run = run_record(result)
    if not is_fine_tuned(model_dir):
        return _load_pretrained(model_dir, max_seq_length, scoring_method)
    if scoring_method is not None:
        raise InputError(f"{model_dir}: a fine-tuned model has no scoring method")
    length = {} if max_seq_length is None else {"max_seq_length": max_seq_length}
    if run is None and storage.exists(os.path.join(model_dir, METRICS_FILE)):  # not converted
        warn(f"{model_dir}: its run is not finished")
    loaded = load_fine_tuned(model_dir, **length)
    return _assembled(
        loaded.objective.encoder,
        loaded.objective.head,
        kind=loaded.task.plugin.name,
        vocabulary=loaded.vocabulary,
        max_seq_length=loaded.hparams.max_seq_length,
        hparams=loaded.hparams,
        task=loaded.task,
        record=loaded.record,
        run=run,
    )


def _load_pretrained(
    model_dir: str, max_seq_length: int | None, scoring_method: str | None
) -> ServedModel:
    """Loads the encoder and other networks in the checkpoint."""
    hparams, _ = load_hparams(model_dir)
    record, config = read_record(model_dir), load_config(model_dir)
    longest = config.max_position_embeddings
    if max_seq_length is None and trained_length(model_dir) is None:
        max_seq_length = longest
    if max_seq_length is not None:
        hparams = dataclasses.replace(hparams, max_seq_length=max_seq_length)
    fits = 3 <= hparams.max_seq_length <= longest
    with located(model_dir):
        check_setting(hparams, fits, "max_seq_length", f"at least 3 and at most {longest}")
    vocabulary = recorded_vocabulary(model_dir)
    objective = hparams.build_objective(config, SpecialIds(vocabulary))
    stored = {"encoder", *stored_parts(latest_checkpoint(model_dir))}
    parts = {n: getattr(objective, n) for n in hparams.objective.own_networks() if n in stored}
    restore(tf.train.Checkpoint(objective=tf.train.Checkpoint(**parts)), model_dir)

    def restored(listed: Iterable[T]) -> dict[T, tuple[tf.Module, ...]]:
        """Returns offers or scoring methods, with their networks, if the checkpoint has all."""
        loaded = {id(network) for network in parts.values()}
        found = {item: tuple(getattr(objective, n) for n in item.networks) for item in listed}
        return {item: own for item, own in found.items() if loaded.issuperset(map(id, own))}

    methods, method = restored(hparams.objective.scoring_methods), None
    if methods or scoring_method is not None:
        method = choose([*methods], scoring_method, model_dir)
    return _assembled(
        objective.encoder,
        offers=restored(hparams.objective.signatures),
        scoring_method=method,
        scoring=() if method is None else methods[method],
        kind=PRETRAINING,
        vocabulary=vocabulary,
        max_seq_length=hparams.max_seq_length,
        hparams=hparams,
        task=None,
        record=record,
        run=None,
    )


def _assembled(
    encoder: Backbone,
    head: tf.Module | None = None,
    offers: Mapping[Offer, tuple[tf.Module, ...]] = types.MappingProxyType({}),
    scoring_method: ScoringMethod | None = None,
    scoring: Sequence[tf.Module] = (),
    **known: Any,
) -> ServedModel:
    """Makes a model from an encoder and a task's head, or networks of offers and scoring."""
    encode = _in_graph(encoder)

    def vectors(features: Tensors) -> Tensors:
        output = encode(features)
        return {"sequence": output.sequence, "pooled": output.pooled}

    def function(compute: Callable, networks: Sequence, more_inputs: Sequence[str]) -> Function:
        first, *others = networks
        own = encode if first is encoder else _in_graph(first)
        return Function(lambda part: compute(part, own, *others), (*FEATURES, *more_inputs))

    def log_scores(*arguments: Any) -> Tensors:
        return {"log_scores": present(present(scoring_method).log_scores)(*arguments)}

    functions = {ENCODE: Function(vectors)}
    if head is not None:
        functions[PREDICT] = Function(lambda part: head.predict(encode(part), part))
    for offer, networks in offers.items():
        if offer.function is not None:
            compute = present(offer.compute)
            functions[offer.function] = function(compute, networks, offer.more_inputs)
    if scoring_method is not None:
        inputs = ONE_TOKEN if scoring_method.masks_each else (SCORED,)
        functions[SCORE] = function(log_scores, scoring, inputs)
    used = [networks for networks in ([encoder], *offers.values(), scoring) if networks]
    return ServedModel(
        config=encoder.config,
        visible_padding=max(networks[0].config.visible_padding for networks in used),
        functions=functions,
        constants=getattr(head, "constants", dict)(),
        scoring_method=scoring_method,
        offers=offers,
        networks=[*itertools.chain(*used), *([] if head is None else [head])],
        **known,
    )


def _in_graph(encoder: Backbone) -> Callable[[Tensors], EncoderOutput]:
    """Returns a function from `FEATURES` to the heads' inputs, traced once for all callers."""

    @without_gradients()
    def encode(features):
        output = encoder(features)
        return EncoderOutput(output.sequence, output.pooled)

    traced = plain_function(encode, input_signature=[SEQUENCES])
    return lambda features: traced({name: features[name] for name in FEATURES})


@without_gradients()
def signatures(model: Served) -> dict[str, Signature]:
    """Returns all signatures of a model by name, `serving_default` first; see docs/serving.md."""
    network = Network(model)
    own = model.task.plugin.signatures if model.task else pretraining.signatures
    found = (getattr(tasks, own) if isinstance(own, str) else own)(network)
    return {**found, "embeddings": pretraining.embeddings(network)}


def word_vectors(model: ServedModel, texts: Sequence[str]) -> np.ndarray:
    """Returns the means of the word vectors of texts' pieces, however long, float32 [n, E].

    Zeros for a text without pieces. Special tokens do not count.
    """
    pieces = create_tokenizer(model.vocabulary).tokenize_ragged(tf.constant(texts, tf.string))
    encoder: Any = model.networks[0]
    table = tf.convert_to_tensor(encoder.embeddings.word_embeddings)
    rows = pieces.value_rowids(), pieces.nrows()
    return tf.sparse.segment_mean(table, pieces.values, *rows).numpy()
