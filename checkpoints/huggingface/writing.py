"""From our networks to a folder that transformers loads."""

from __future__ import annotations

import os
from typing import Any

from checkpoints.huggingface import names, task_heads
from checkpoints.huggingface.config import HEAD_ACT, huggingface_fields, model_type_of
from checkpoints.huggingface.reading import GENERATOR_FOLDER
from checkpoints.huggingface.source import DISCRIMINATOR_FILE
from checkpoints.huggingface.tensors import WEIGHTS_FILE, write_tensors
from checkpoints.huggingface.tokenizer import write_tokenizer
from checkpoints.model_directory import Conversion, padding_notes
from checkpoints.slots import Slot
from data.vocabulary import Vocabulary
from errors import InputError
from files import write_json
from finetune.load import TaskModel
from model import Encoder, EncoderConfig, MaskedLMHead
from model.config import CONFIG_FILE
from pretrain.objectives.masked_lm import MaskedLMSettings
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

_CLASSES = {"convbert": "ConvBert", "electra": "Electra", "bert": "Bert"}
_OBJECTIVES_OF_BERT = ("masked_lm", "self_critic")


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes a model as transformers' `save_pretrained` does; returns notes.

    A discriminator becomes an ElectraForPreTraining or a ConvBertModel, with its generator in
    `generator/`; a masked language model becomes a BertForMaskedLM, ConvBertForMaskedLM or, with
    embeddings of another width than its layers, ElectraForMaskedLM; an encoder alone the class
    without a head.
    """
    objective, vocabulary, config = conversion.objective, conversion.vocabulary, conversion.config
    if vocabulary.size != conversion.hparams.vocab_size:
        raise InputError(
            f"`vocab_size` should be {vocabulary.size}, that of the vocabulary."
            f" Received: {conversion.hparams.vocab_size}"
        )
    encoder, head, settings = objective.encoder, objective.head, conversion.hparams.objective
    generator = getattr(objective, "generator", None)
    is_masked_lm = isinstance(head, MaskedLMHead)
    detects = head is not None or generator is not None
    detects = detects or isinstance(settings, ReplacedTokenDetectionSettings)
    model_type = model_type_of(config, bert=is_masked_lm or not detects)
    own, apart = names.head_slots(head, model_type), {}
    if is_masked_lm:
        _check_activation(config, settings, model_type)
        ending = "ForMaskedLM"
    elif head is not None and model_type == "electra":
        ending = "ForPreTraining"
    else:
        ending, own, apart = "Model", {}, own
    notes = _write_model(ending, model_type, encoder, own, vocabulary, folder)
    if is_masked_lm and model_type == "electra":
        notes.append(
            "Hugging Face's BERT has no embeddings of another width than its layers; ELECTRA's"
            " masked language model computes the same"
        )
    if apart:
        _write_slots(apart, os.path.join(folder, DISCRIMINATOR_FILE))
        notes.append(
            "transformers has no class for ConvBERT's discriminator head: it is in"
            f" {DISCRIMINATOR_FILE}, under ELECTRA's names, which only --source huggingface reads"
        )
    if generator is not None:
        notes += _write_generator(objective, settings, vocabulary, folder)
    notes += padding_notes(config)
    notes.append(
        "left out, as the format has no place for it: the settings of pre-training, the step"
        f" ({conversion.step})" + (", the optimizer's moments" if conversion.optimizer else "")
    )
    return notes


def write_fine_tuned(model: TaskModel, folder: str) -> list[str] | None:
    """Writes a fine-tuned model with its head; returns notes.

    Returns None, and writes nothing, where transformers has no such head.
    """
    encoder, task = model.objective.encoder, model.task
    ending = task_heads.class_ending(task, model.hparams)
    if ending is None or type(encoder.config) is not EncoderConfig:
        return None
    before = model.record.get("run_settings", {}).get("pretraining", {})
    bert = before.get("objective") in _OBJECTIVES_OF_BERT
    model_type = task_heads.model_type(encoder.config, model.hparams, bert)
    own = task_heads.slots(model.objective, task, model_type)
    fields = task_heads.fields(task)
    notes = _write_model(ending, model_type, encoder, own, model.vocabulary, folder, fields)
    return [*notes, *padding_notes(encoder.config)]


def _write_generator(
    objective: Any, settings: MaskedLMSettings, vocabulary: Vocabulary, folder: str
) -> list[str]:
    """The generator; where Hugging Face has none such, it is left out and the reason said."""
    encoder, folder = objective.generator, os.path.join(folder, GENERATOR_FOLDER)
    model_type = model_type_of(encoder.config, bert=False)
    try:
        huggingface_fields(encoder.config, model_type)
        _check_activation(encoder.config, settings, model_type)
    except InputError as error:
        return [f"left out: the generator and its head. {error}"]
    os.makedirs(folder)
    own = names.head_slots(objective.generator_head, model_type)
    notes = _write_model("ForMaskedLM", model_type, encoder, own, vocabulary, folder)
    notes = [f"{GENERATOR_FOLDER}/: {note}" for note in notes]
    if encoder is objective.encoder:
        notes.append("the generator is the discriminator's own encoder, which is written twice")
    return notes


def _write_model(
    ending: str,
    model_type: str,
    encoder: Encoder,
    head: dict[str, Slot],
    vocabulary: Vocabulary,
    folder: str,
    about_task: dict[str, Any] | None = None,
) -> list[str]:
    """Writes a whole folder; `ending` is the class's, `head` what it adds to the encoder."""
    architecture = _CLASSES[model_type] + ending
    fields = {
        "architectures": [architecture],
        **huggingface_fields(encoder.config, model_type),
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": None,
        "eos_token_id": None,
        **(about_task or {}),
    }
    # The class without a head is the encoder itself; in the others it is a part with a name.
    prefix = "" if ending == "Model" else f"{model_type}."
    slots = {**names.encoder_slots(encoder, prefix), **head}
    write_json(os.path.join(folder, CONFIG_FILE), fields)
    _write_slots(slots, os.path.join(folder, WEIGHTS_FILE))
    notes = [f"written: {architecture}, {len(slots)} tensors"]
    notes += write_tokenizer(vocabulary, folder, encoder.config.max_position_embeddings)
    if model_type == "bert" and not any(name.startswith(f"{prefix}pooler.") for name in slots):
        notes.append(
            "there is no pooler here, the pooled output being the first token's state:"
            " transformers' BertModel makes one of random weights, and says so"
        )
    return notes


def _write_slots(slots: dict[str, Slot], path: str) -> None:
    write_tensors(path, {name: slot.tensor() for name, slot in slots.items()})


def _check_activation(config: EncoderConfig, settings: MaskedLMSettings, model_type: str) -> None:
    """Raises InputError where Hugging Face's masked-LM head has another activation."""
    received = settings.masked_lm_act or config.hidden_act
    # BERT's head has the activation of its layers.
    name, expected = "masked_lm_act", config.hidden_act
    if model_type != "bert":
        name, expected = "hidden_act", HEAD_ACT
    if received != expected:
        raise InputError(
            f"Hugging Face's {model_type} has no such masked-LM head: its `{name}` should be"
            f" {expected!r}. Received: {received!r}"
        )
