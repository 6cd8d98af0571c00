"""Writes our networks into a folder that transformers loads."""

from __future__ import annotations

import os
from typing import Any

from convbert.checkpoints import names
from convbert.checkpoints.huggingface.config import HEAD_ACT, huggingface_fields, model_type_of
from convbert.checkpoints.huggingface.reading import DISCRIMINATOR_FILE, GENERATOR_FOLDER
from convbert.checkpoints.huggingface.tensors import WEIGHTS_FILE, write_tensors
from convbert.checkpoints.huggingface.tokenizer import write_tokenizer
from convbert.checkpoints.model_directory import Conversion, padding_notes, unwritten
from convbert.checkpoints.slots import Slot
from convbert.common.errors import InputError
from convbert.common.files import write_json
from convbert.data.vocabulary import Vocabulary
from convbert.model import DiscriminatorHead, Encoder, EncoderConfig, MaskedLMHead
from convbert.model.config import CONFIG_FILE
from convbert.pretrain.objectives.base import ObjectiveSettings
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

_CLASSES = {"convbert": "ConvBert", "electra": "Electra", "bert": "Bert"}
BARE = "Model"  # suffix of the class without a head


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes a model as transformers' `save_pretrained` does; returns notes.

    A discriminator becomes an ElectraForPreTraining or a ConvBertModel, with its generator in
    `generator/`; a masked language model a BertForMaskedLM, ConvBertForMaskedLM or
    ElectraForMaskedLM; an encoder alone the class without a head.
    """
    objective, vocabulary, config = conversion.objective, conversion.vocabulary, conversion.config
    encoder, head, settings = objective.encoder, objective.head, conversion.hparams.objective
    generator = getattr(objective, "generator", None)
    is_masked_lm = isinstance(head, MaskedLMHead)
    detects = isinstance(head, DiscriminatorHead) or generator is not None
    detects = detects or isinstance(settings, ReplacedTokenDetectionSettings)
    model_type = model_type_of(config, bert=is_masked_lm or not detects)
    ending = BARE
    if is_masked_lm:
        _check_activation(config, settings, model_type)
        ending = "ForMaskedLM"
    elif head is not None and model_type == "electra":
        ending = "ForPreTraining"
    longest = conversion.trained_length
    notes = write_model(ending, model_type, encoder, head, vocabulary, folder, longest)
    if is_masked_lm and model_type == "electra":
        said = "embeddings in Hugging Face's BERT are as wide as its layers"
        notes.append(f"{said}; ELECTRA's masked language model computes the same")
    if generator is not None:
        notes += _write_generator(conversion, folder)
    return [*notes, unwritten(conversion, f"the step ({conversion.step})")]


def write_model(
    ending: str,
    model_type: str,
    encoder: Encoder,
    head: DiscriminatorHead | MaskedLMHead | None,
    vocabulary: Vocabulary,
    folder: str,
    longest: int | None,
    of_task: dict[str, Slot] | None = None,
    about_task: dict[str, Any] | None = None,
) -> list[str]:
    """Writes a whole folder; returns notes.

    `head` is a pre-training head; alternatively, `of_task` has the slots of a task's head and
    `about_task` further fields of `config.json`. `ending` is the suffix of the class's name,
    `longest` the length of training, if known.
    """
    architecture = _CLASSES[model_type] + ending
    fields = {
        "architectures": [architecture],
        **huggingface_fields(encoder.config, model_type),
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": None,
        "eos_token_id": None,
        **(about_task or {}),
    }
    # The class without a head is the encoder itself; in others, the encoder is a named part.
    prefix = "" if ending == BARE else f"{model_type}."
    slots = names.huggingface_slots(encoder, head, prefix, model_type) | (of_task or {})
    apart = {}
    if ending == BARE:
        apart = {n: slots.pop(n) for n in [*slots] if n.startswith(names.DISCRIMINATOR_HEAD)}
    write_json(os.path.join(folder, CONFIG_FILE), fields)
    write_tensors(os.path.join(folder, WEIGHTS_FILE), slots)
    notes = [f"written: {architecture}, {len(slots)} tensors"]
    longest = longest or encoder.config.max_position_embeddings
    notes += write_tokenizer(vocabulary, folder, longest)
    if model_type == "bert" and not any(name.startswith(f"{prefix}pooler.") for name in slots):
        notes.append(
            "there is no pooler, as the pooled output is the first token's state:"
            " transformers' BertModel creates one with random weights, and warns about it"
        )
    if apart:
        write_tensors(os.path.join(folder, DISCRIMINATOR_FILE), apart)
        notes.append(
            "transformers has no class for ConvBERT's discriminator head: it is in"
            f" {DISCRIMINATOR_FILE}, under ELECTRA's names, which only --source huggingface reads"
        )
    return notes + padding_notes(encoder.config)


def _write_generator(conversion: Conversion, folder: str) -> list[str]:
    """Writes the generator, or returns the reason why Hugging Face does not support it."""
    objective, vocabulary = conversion.objective, conversion.vocabulary
    encoder, folder = objective.generator, os.path.join(folder, GENERATOR_FOLDER)
    model_type = model_type_of(encoder.config, bert=False)
    try:
        huggingface_fields(encoder.config, model_type)
        _check_activation(encoder.config, conversion.hparams.objective, model_type)
    except InputError as error:
        return [f"left out: the generator and its head. {error}"]
    os.makedirs(folder)
    head = objective.generator_head
    longest = conversion.trained_length
    notes = write_model("ForMaskedLM", model_type, encoder, head, vocabulary, folder, longest)
    notes = [f"{GENERATOR_FOLDER}/: {note}" for note in notes]
    if encoder is objective.encoder:
        notes.append("the generator is the discriminator's own encoder and is written twice")
    return notes


def _check_activation(config: EncoderConfig, settings: ObjectiveSettings, model_type: str) -> None:
    """Raises InputError if Hugging Face's masked-LM head has another activation."""
    received = getattr(settings, "masked_lm_act", None) or config.hidden_act
    # BERT's head has the activation of its layers.
    name, expected = "masked_lm_act", config.hidden_act
    if model_type != "bert":
        name, expected = "hidden_act", HEAD_ACT
    if received != expected:
        lacking = f"Hugging Face's {model_type} has no such masked-LM head"
        raise InputError(f"{lacking}: its `{name}` should be {expected!r}. Received: {received!r}")
