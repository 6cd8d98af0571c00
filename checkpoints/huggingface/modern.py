"""Conversion of ModernBERT and Ettin from and to Hugging Face's files, without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tokenizers

from convbert.checkpoints import model_directory
from convbert.checkpoints.huggingface.config import TIED, UNTIED, read_described
from convbert.checkpoints.huggingface.tensors import WEIGHTS_FILE, TensorFiles, write_tensors
from convbert.checkpoints.huggingface.tokenizer import (
    SPECIAL_FIELDS,
    TOKENIZER_FILE,
    fast_tokenizer,
    read_vocabulary,
    write_tokenizer,
)
from convbert.checkpoints.model_directory import Conversion, Options
from convbert.checkpoints.slots import TRANSPOSED, Slot, checked, fill
from convbert.common import files, storage
from convbert.common.errors import InputError, located
from convbert.common.settings import reject_unknown, typed
from convbert.data.vocabulary import BPE_FILE, SWITCHES_FILE, Vocabulary
from convbert.model import MaskedLMHead
from convbert.model.config import ACTIVATIONS, CONFIG_FILE
from convbert.model.modern import ModernConfig
from convbert.model.modern.network import ModernEncoder

MODEL_TYPE, _MASKED_LM = "modernbert", "ModernBertForMaskedLM"
_ACT = "classifier_activation"  # of the masked-LM head, too
# Fields of ModernBertConfig, their defaults there, and our names.
_FIELDS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", 50368),
    "hidden_size": ("hidden_size", 768),
    "intermediate_size": ("intermediate_size", 1152),
    "num_hidden_layers": ("num_hidden_layers", 22),
    "num_attention_heads": ("num_attention_heads", 12),
    "hidden_activation": ("hidden_act", "gelu"),
    "max_position_embeddings": ("max_position_embeddings", 8192),
    "initializer_range": ("initializer_range", 0.02),
    "norm_eps": ("layer_norm_eps", 1e-5),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    "global_attn_every_n_layers": ("global_attn_every_n_layers", 3),
    "local_attention": ("local_attention", 128),
    "global_rope_theta": ("global_rope_theta", 160_000.0),
    "local_rope_theta": ("local_rope_theta", 10_000.0),
}
_PLAIN_ROTATION = [(name, kind) for name in ("rope_type", "type") for kind in ("default", None)]
# Settings that change the computation, with the only supported values.
_ALWAYS: dict[str, Any] = {"attention_bias": False, "mlp_bias": False, "norm_bias": False}
_ALWAYS |= {"classifier_bias": False, "decoder_bias": True, "is_decoder": False}
_ALWAYS |= {"embedding_dropout": 0.0, "mlp_dropout": 0.0, "initializer_cutoff_factor": 2.0}
_FIXED: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in _ALWAYS.items()},
    "hidden_activation": tuple(ACTIVATIONS),
    _ACT: ("gelu", *ACTIVATIONS),
    "rope_scaling": (None,),
    "quantization_config": (None,),
    "auto_map": (None,),  # custom model code
}
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"  # kinds of layers in newer files
_HEAD, _COPY, _WORDS = "head.", "decoder.weight", "embeddings.tok_embeddings.weight"
_BIAS = "decoder.bias"
# Fields that the vocabulary implies, and newer fields, see `_old_fields`.
_IMPLIED = [f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")]
_IMPLIED += ["layer_types", "rope_parameters", "head_dim", "sliding_window"]
# ModernBERT's masking.
_VALUES = {"objective": "masked_lm", "mask_prob": 0.3}
_VALUES |= {"mask_token_prob": 0.8, "random_token_prob": 0.1}


def read(path: str, options: Options) -> Conversion:
    """Reads a ModernBERT, with its masked-LM head if there is a tied one.

    See `checkpoints.huggingface.read`.
    """
    described = os.path.join(path, CONFIG_FILE)
    fields = files.read_json(described)
    config, notes = _config(fields, described)
    tensors, vocabulary = TensorFiles(path), _vocabulary(path, options)
    notes += [*tensors.notes(), *model_directory.check_vocabulary(vocabulary, config, path)]
    prefix = "model." if any(name.startswith("model.") for name in tensors.shapes) else ""
    is_tied = tensors.tied({_COPY: prefix + _WORDS}, fields)
    classes = typed("architectures", fields.get("architectures") or [], list)
    has_head = is_tied and (_BIAS in tensors.shapes or _MASKED_LM in classes)
    there = ["encoder", "head"] if has_head else ["encoder"]
    values = {**_VALUES, "masked_lm_act": fields.get(_ACT, "gelu")}
    conversion = model_directory.build(config, vocabulary, values, there, path)

    def left_out(name: str) -> str | None:
        if name == _COPY and is_tied:
            return f"a copy of {prefix}{_WORDS}"
        if has_head and name.startswith((_HEAD, "decoder.")):
            return None
        if name in (_COPY, _BIAS) or name.startswith(_HEAD):
            return f"a masked-LM head with {UNTIED}, or a part of another head"
        beside = prefix and name.startswith("classifier.")
        return f"beside the encoder, as {model_directory.TASK_HEAD}" if beside else None

    found = slots(conversion.objective.encoder, conversion.objective.head, prefix)
    conversion.notes[:0] = [*notes, *fill(found, tensors, left_out)]
    return conversion


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes a ModernBertForMaskedLM, or a ModernBertModel for another objective; returns notes."""
    config, vocabulary, found = conversion.config, conversion.vocabulary, conversion.objective
    head = found.head if isinstance(found.head, MaskedLMHead) else None
    name = _MASKED_LM if head else "ModernBertModel"
    act = getattr(conversion.hparams.objective, "masked_lm_act", None) or config.hidden_act
    thetas = {_GLOBAL: config.global_rope_theta, _LOCAL: config.local_rope_theta}
    fields = {
        "architectures": [name],
        "model_type": MODEL_TYPE,
        **{theirs: getattr(config, ours) for theirs, (ours, _) in _FIELDS.items()},
        **_ALWAYS,
        _ACT: act,
        "layer_types": _kinds(config.num_hidden_layers, config.global_attn_every_n_layers),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()
        },
        **{f"{n}_token_id": vocabulary.ids[f"[{n.upper()}]"] for n in ("pad", "cls", "sep")},
        "bos_token_id": vocabulary.cls_id,
        "eos_token_id": vocabulary.sep_id,
        TIED: True,
        "dtype": "float32",
    }
    again, _ = _config(fields, CONFIG_FILE)
    unsaid = ("conv_kernel_size", "head_ratio", "hidden_dropout_prob")
    model_directory.check_expressible(config, again, "Hugging Face's modernbert", unsaid)
    named = slots(found.encoder, head, "model." if head else "")
    files.write_json(os.path.join(folder, CONFIG_FILE), fields)
    write_tensors(os.path.join(folder, WEIGHTS_FILE), named)
    notes = [f"written: {name}, {len(named)} tensors"]
    longest = conversion.trained_length or config.max_position_embeddings
    notes += _write_tokenizer(vocabulary, folder, longest)
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        notes.append("`attention_dropout` there is both dropout rates; it matters in training only")
    others = [] if head else ["heads and generators"]
    return [*notes, model_directory.unwritten(conversion, f"the step ({conversion.step})", *others)]


def slots(encoder: ModernEncoder, head: MaskedLMHead | None, prefix: str) -> dict[str, Slot]:
    """Returns Hugging Face's names of an encoder and its masked-LM head."""
    found = {
        f"{prefix}{_WORDS}": Slot.of(encoder.embeddings.word_embeddings),
        f"{prefix}embeddings.norm.weight": Slot.of(encoder.embeddings.norm.gamma),
        f"{prefix}final_norm.weight": Slot.of(encoder.final_norm.gamma),
    }
    for number, layer in enumerate(encoder.encoder_layers):
        at, mixer = f"{prefix}layers.{number}.", layer.mixer
        if layer.mixer_norm is not None:
            found[f"{at}attn_norm.weight"] = Slot.of(layer.mixer_norm.gamma)
        stacked = tuple(part.kernel for part in (mixer.query, mixer.key, mixer.value))
        width, size = stacked[0].shape
        found[f"{at}attn.Wqkv.weight"] = Slot(stacked, (3 * size, width), TRANSPOSED)
        found[f"{at}mlp_norm.weight"] = Slot.of(layer.feed_forward_norm.gamma)
        for name, part in {
            "attn.Wo": layer.mixer_output,
            "mlp.Wi": layer.intermediate,
            "mlp.Wo": layer.output_dense,
        }.items():
            found[f"{at}{name}.weight"] = Slot.of(part.kernel, TRANSPOSED)
    if head is not None:
        found[f"{_HEAD}dense.weight"] = Slot.of(head.transform.kernel, TRANSPOSED)
        found[f"{_HEAD}norm.weight"] = Slot.of(head.norm.gamma)
        found[_BIAS] = Slot.of(head.output_bias)
    return checked(found, encoder, head)


def _config(fields: Mapping[str, Any], path: str) -> tuple[ModernConfig, list[str]]:
    """Returns the ModernConfig of transformers' `config.json`, old or new, and notes."""
    given, fields = fields, {**fields, **_old_fields(fields, path)}
    fields = {name: value for name, value in fields.items() if name not in _IMPLIED}
    defaults = {name: default for name, (_, default) in _FIELDS.items()}
    values, notes = read_described(fields, defaults, _FIXED, path)
    ours = {name: values[theirs] for theirs, (name, _) in _FIELDS.items()}
    ours |= {"embedding_size": ours["hidden_size"]}
    ours["hidden_dropout_prob"] = ours["attention_probs_dropout_prob"]
    with located(path):
        config = ModernConfig(**ours)
        implied = {"head_dim": config.head_size, "sliding_window": config.local_attention // 2}
        for name, expected in implied.items():
            if (received := given.get(name)) not in (None, expected):
                raise InputError(f"`{name}` should be {expected}. Received: {received!r}")
        return config, notes


def _old_fields(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the older fields that say what newer ones do; InputError if they contradict them."""
    found: dict[str, Any] = {}
    with located(path):
        rotations = typed("rope_parameters", fields.get("rope_parameters") or {}, dict)
        with located("rope_parameters"):
            reject_unknown([*rotations], [_GLOBAL, _LOCAL])
        for kind, name in ((_GLOBAL, "global_rope_theta"), (_LOCAL, "local_rope_theta")):
            rotation = dict(typed(kind, rotations.get(kind) or {}, dict))
            if "rope_theta" in rotation:
                found[name] = rotation.pop("rope_theta")
            if any((key, value) not in _PLAIN_ROTATION for key, value in rotation.items()):
                raise InputError(f"`rope_type` should be default. Received: {rotation}")
        if fields.get("local_rope_theta", 0) is None and "local_rope_theta" not in found:
            found["local_rope_theta"] = fields.get("global_rope_theta", 160_000.0)
        if kinds := typed("layer_types", fields.get("layer_types") or [], list):
            every = next((n for n, kind in enumerate(kinds[1:], 1) if kind == _GLOBAL), len(kinds))
            count = fields.get("num_hidden_layers", _FIELDS["num_hidden_layers"][1])
            if len(kinds) != count or kinds != _kinds(count, every):
                raise InputError(f"`layer_types` should be {count}, alternating. Received: {kinds}")
            stated = fields.get("global_attn_every_n_layers")
            same = type(stated) is int and stated > 0 and _kinds(count, stated) == kinds
            found["global_attn_every_n_layers"] = stated if same else every
    return found


def _kinds(count: int, every: int) -> list[str]:
    return [_LOCAL if number % every else _GLOBAL for number in range(count)]


def _vocabulary(folder: str, options: Options) -> Vocabulary:
    """Returns a folder's byte-level BPE, or the vocabulary that options or other files give."""
    path = os.path.join(folder, BPE_FILE)
    there = options.vocab is None and storage.exists(path)
    model = files.read_json(path).get("model") if there else None
    if not isinstance(model, dict) or model.get("type") != "BPE":
        return read_vocabulary(folder, options)
    vocabulary = Vocabulary.load(path, **options.switches)
    _check_template(vocabulary, path)
    return vocabulary


def _check_template(vocabulary: Vocabulary, where: str) -> None:
    """Raises InputError unless sequences are [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""
    tokenizer = tokenizers.Tokenizer.from_buffer(vocabulary.model)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    single = [vocabulary.cls_id, *first, vocabulary.sep_id]
    pair = [*single, *second, vocabulary.sep_id]
    for received, expected in (
        (tokenizer.encode("a").ids, single),
        (tokenizer.encode("a", "b").ids, pair),
    ):
        if received != expected:
            said = f"`post_processor` should make {expected} of texts"
            raise InputError(f"{where}: {said}. Received: {received}")


def _write_tokenizer(vocabulary: Vocabulary, folder: str, longest: int) -> list[str]:
    """Writes the files that AutoTokenizer loads; returns notes."""
    if vocabulary.tokenizer != "bpe":
        # transformers reads ModernBERT's tokenizer from this file alone.
        path = os.path.join(folder, TOKENIZER_FILE)
        files.write_text(path, fast_tokenizer(vocabulary).to_str())
        return write_tokenizer(vocabulary, folder, longest)
    _check_template(vocabulary, BPE_FILE)
    vocabulary.save(folder)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL_FIELDS}
    settings |= {"model_input_names": ["input_ids", "attention_mask"], "model_max_length": longest}
    files.write_json(os.path.join(folder, SWITCHES_FILE), settings)
    return []
