"""Systems of Hugging Face's PyTorch models, at our sizes. Imports torch, not TensorFlow.

Each is a function that returns what is timed; it takes `fields`, which is `dataclasses.asdict` of
an EncoderConfig, since importing `model` would import TensorFlow. `precision` is "float32" or
"mixed_bfloat16" (autocast). Weights are random. What differs from our networks:

- A ConvBERT whose `head_ratio` exceeds its heads (the generator of convbert-small) keeps one head
  of width D/2 there, of width D here: its mixed attention is half as wide as ours.
- The classifier of ELECTRA and ConvBERT has a D x D layer before the output; BERT's is its pooler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, RandomSampler
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    get_linear_schedule_with_warmup,
    pipeline,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

from benchmarks.huggingface_pretraining import (
    SPECIAL_IDS,
    MaskedLM,
    ReplacedTokenDetection,
    encoder,
)
from benchmarks.served import random_features
from benchmarks.texts import WARM_UP, sentences, texts
from errors import InputError

_SAME_NAME = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)


def inference(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32"
) -> Callable[[], np.ndarray]:
    """The encoder's forward pass over a full batch (no padding): ConvBERT's or ELECTRA's."""
    torch.manual_seed(0)
    model = encoder(_config(fields)).eval()
    ids = _random_ids(batch, length, fields["vocab_size"])
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def run():
        with _autocast(precision):
            return model(ids, attention_mask=mask).last_hidden_state.float().numpy()

    run.facts = _facts(model, model)
    return run


def hidden_states(
    folder: str, batch: int, length: int, text: bool = False, compiled: bool = False
) -> Callable[[], np.ndarray]:
    """As `benchmarks.served`, by a converted model; `compiled` by torch.compile."""
    model = AutoModel.from_pretrained(folder).eval()
    network = torch.compile(model) if compiled else model
    if text:
        tokenizer, strings = AutoTokenizer.from_pretrained(folder), texts(batch, length)

        def features():
            return tokenizer(strings, padding=True, return_tensors="pt")
    else:
        ids = torch.from_numpy(random_features(batch, length)["input_ids"]).long()

        def features():
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    @torch.inference_mode()
    def run():
        return network(**features()).last_hidden_state.numpy()

    run.facts = {"vector": run()[0, 0].tolist()}
    return run


def text_vectors(
    folder: str, batch: int, length: int, precision: str = "float32"
) -> Callable[[], np.ndarray]:
    """Strings to the vectors of [CLS], as `benchmarks.ours.vectors`, by a converted model."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    strings = texts(batch, length)

    @torch.inference_mode()
    def run():
        features = tokenizer(strings, padding=True, return_tensors="pt")
        with _autocast(precision):
            return model(**features).last_hidden_state[:, 0].float().numpy()

    run.facts = {"vector": run()[0].tolist()}
    return run


def classification_pipeline(folder: str, count: int, batch: int):
    """Labels of texts, by transformers' pipeline with batches."""
    asked = sentences(count)
    ask = pipeline("text-classification", folder, top_k=None, batch_size=batch)

    def predict():
        return ask(asked)

    shares = {row["label"]: row["score"] for row in ask(asked[:1])[0]}
    predict.facts = {"shares": [shares[label] for label in ask.model.config.label2id]}
    predict.warm_up = lambda: ask(asked[:WARM_UP])
    return predict


def pretraining_step(
    fields: dict[str, Any],
    generator_fields: dict[str, Any],
    batch: int,
    length: int,
    precision: str = "float32",
    steps: int = 1,
    gpu: bool = False,
) -> Callable[[], float]:
    """Whole training steps of replaced-token detection, input apart; returns the last loss.

    Args:
        generator_fields: of the generator's; `embedding_size` and the sizes of the tables are the
            discriminator's, whose embeddings it shares.
        gpu: compiled by torch.compile, on the GPU, with TF32 as XLA has it; without one on the CPU.
    """
    if gpu:
        torch.set_float32_matmul_precision("high")
        torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    networks = ReplacedTokenDetection(_config(fields), _config(generator_fields))
    ids = _random_ids(batch, length, fields["vocab_size"])
    run = _training_steps(networks, ids, precision, steps, compiled=gpu)
    run.facts = _facts(networks, networks.discriminator)
    return run


def masked_lm_step(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32"
) -> Callable[[], float]:
    """A whole training step of BERT's masked language model, input apart; returns the loss.

    The network is ELECTRA's: BERT's, with a projection where embeddings are narrower.
    """
    torch.manual_seed(0)
    network = MaskedLM(_config(fields))
    run = _training_steps(network, _random_ids(batch, length, fields["vocab_size"]), precision)
    run.facts = _facts(network, network.model)
    return run


def pseudo_log_likelihood(
    fields: dict[str, Any], sequences: Sequence[Sequence[int]], batch: int, mask_id: int
) -> Callable[[], list[float]]:
    """Sums of log p(token | all others), as awslabs/mlm-scoring computes them.

    Masked sequences come in the order of the text, `batch` at a time, padded to the longest of
    them. The model computes logits at all positions; the softmax is taken at the masked ones.
    """
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(_config(fields)).eval()
    lengths = torch.tensor([len(ids) for ids in sequences])
    padded = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sequences], batch_first=True)
    places = [(i, at) for i, ids in enumerate(sequences) for at in range(1, len(ids) - 1)]
    parts = torch.tensor(places).split(batch)

    @torch.inference_mode()
    def run():
        totals = torch.zeros(len(sequences), dtype=torch.float64)
        for part in parts:
            which, position = part.unbind(1)
            S, every = int(lengths[which].max()), torch.arange(len(part))
            ids = padded[which, :S]
            tokens = ids[every, position]
            ids[every, position] = mask_id
            mask = (torch.arange(S) < lengths[which, None]).long()
            logits = model(ids, attention_mask=mask).logits[every, position]  # [n, V]
            found = logits.float().log_softmax(-1)[every, tokens]
            totals.index_add_(0, which, found.double())
        return totals.tolist()

    run.facts = _facts(model, model)
    return run


def finetuning_epoch(
    fields: dict[str, Any],
    lengths: Sequence[int],
    batch: int,
    precision: str = "float32",
    num_labels: int = 2,
    group_by_length: bool = False,
) -> Callable[[], float]:
    """One epoch of sequence classification with dynamic padding; returns the last loss.

    Batches come in random order, each padded to its longest example (DataCollatorWithPadding); the
    last may be smaller. The learning rate rises and falls within the epoch.

    Args:
        lengths: tokens of each example.
        num_labels: classes, or 1 for regression.
        group_by_length: batches of similar length, as the Trainer's strategy of this name.
    """
    torch.manual_seed(0)
    config = _config(fields, num_labels=num_labels)
    model = AutoModelForSequenceClassification.from_config(config).train()
    examples = _random_examples(lengths, fields["vocab_size"], num_labels)
    sampler = RandomSampler(examples)
    if group_by_length:
        sampler = LengthGroupedSampler(batch, lengths=list(lengths))
    batches = DataLoader(examples, batch, sampler=sampler, collate_fn=_pad)
    optimizer = _optimizer(model, 1e-4)

    def run():
        steps = len(batches)
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
        for features in batches:
            with _autocast(precision):
                loss = model(**features).loss
            _update(loss, model, optimizer, schedule)
        return loss.item()

    run.facts = _facts(model, model)
    return run


def _config(fields: dict[str, Any], **others: Any) -> PreTrainedConfig:
    """Hugging Face's configuration of our fields.

    Raises:
        InputError: it has no such network; names the field.
    """
    possible: dict[str, Any] = {"share_layers": False}
    if fields["token_mixer"] == "attention":
        model_type = "electra"
        possible |= {"head_ratio": 1, "linear_groups": 1}
    else:
        model_type = "convbert"
        possible |= {"token_mixer": "mixed", "convolution": "span", "head_ratio": 2}
        others["num_groups"] = fields["linear_groups"]
        others |= {name: fields[name] for name in ("conv_kernel_size", "head_ratio")}
    for name, value in possible.items():
        if fields[name] != value:
            raise InputError(
                f"`{name}` should be {value!r} for Hugging Face's {model_type}."
                f" Received: {fields[name]!r}"
            )
    others |= {name: fields[name] for name in _SAME_NAME}
    return AutoConfig.for_model(model_type, pad_token_id=0, layer_norm_eps=1e-12, **others)


def _facts(module: nn.Module, model: PreTrainedModel) -> dict[str, Any]:
    device = next(module.parameters()).device
    return {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "attention": model.config._attn_implementation,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
    }


def _autocast(precision: str) -> torch.autocast:
    device = torch.get_default_device().type
    return torch.autocast(device, torch.bfloat16, enabled=precision == "mixed_bfloat16")


def _optimizer(module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """AdamW; as everywhere, biases and layer norms do not decay."""
    groups = {0.01: [], 0.0: []}
    for name, parameter in module.named_parameters():
        decays = not name.endswith("bias") and "LayerNorm" not in name
        groups[0.01 if decays else 0.0].append(parameter)
    groups = [{"params": group, "weight_decay": rate} for rate, group in groups.items()]
    return torch.optim.AdamW(groups, learning_rate, eps=1e-6, fused=True)


def _training_steps(
    module: nn.Module, ids: torch.Tensor, precision: str, steps: int = 1, compiled: bool = False
) -> Callable[[], float]:
    """Updates a module that returns its loss, always on the same ids."""
    module.train()
    optimizer = _optimizer(module, 3e-4)
    schedule = get_linear_schedule_with_warmup(optimizer, 10**4, 10**6)
    compute_loss = torch.compile(module) if compiled else module

    def run():
        for _ in range(steps):
            with _autocast(precision):
                loss = compute_loss(ids)
            _update(loss, module, optimizer, schedule)
        return loss.item()  # waits for the last step

    return run


def _update(
    loss: torch.Tensor, module: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler
) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)


def _random_ids(batch: int, length: int, vocab_size: int) -> torch.Tensor:
    """int64 [batch, length] of ordinary tokens between [CLS] and [SEP]."""
    ids = np.random.default_rng(0).integers(1000, vocab_size, [batch, length])
    ids[:, 0], ids[:, -1] = SPECIAL_IDS["cls"], SPECIAL_IDS["sep"]
    return torch.from_numpy(ids).to(torch.get_default_device())


def _random_examples(lengths: Sequence[int], vocab_size: int, num_labels: int) -> list[dict]:
    draw = np.random.default_rng(0)
    labels = draw.random(len(lengths), np.float32)
    if num_labels > 1:
        labels = draw.integers(num_labels, size=len(lengths))
    ids = _random_ids(len(lengths), max(lengths), vocab_size)
    return [
        {"input_ids": row[:length], "labels": label}
        for row, length, label in zip(ids, lengths, torch.from_numpy(labels))
    ]


def _pad(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch as long as its longest example."""
    ids = [example["input_ids"] for example in examples]
    masks = [torch.ones_like(row) for row in ids]
    return {
        "input_ids": nn.utils.rnn.pad_sequence(ids, batch_first=True),
        "attention_mask": nn.utils.rnn.pad_sequence(masks, batch_first=True),
        "labels": torch.stack([example["labels"] for example in examples]),
    }
