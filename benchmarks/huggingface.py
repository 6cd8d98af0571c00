"""Hugging Face's PyTorch models in our sizes, as systems. Imports torch, not TensorFlow.

Pre-training is assembled from transformers: masking, generator, sampling, losses.

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
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, RandomSampler
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    get_linear_schedule_with_warmup,
    pipeline,
)
from transformers.models.electra.modeling_electra import ElectraDiscriminatorPredictions

from convbert.benchmarks.served import with_vector
from convbert.benchmarks.texts import SPECIAL_IDS, WARM_UP, random_features, sentences
from convbert.common.errors import InputError

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MASK_PROB, MASK_TOKEN_PROB, DISC_WEIGHT = 0.15, 0.85, 50.0
_SAME_NAME: tuple[str, ...] = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
_SAME_NAME += ("num_attention_heads", "intermediate_size", "max_position_embeddings")
_SAME_NAME += ("hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size")
_SAME_NAME += ("hidden_act", "initializer_range")
_MODERN: tuple[str, ...] = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
_MODERN += ("num_attention_heads", "max_position_embeddings", "initializer_range")
_MODERN += ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
_MODERN += ("local_attention",)


def hidden_states(
    folder: str, batch: int, length: int, compiled: bool = False
) -> Callable[[], np.ndarray]:
    """As `benchmarks.served`, by a converted model; `compiled`: by torch.compile."""
    model, ids = AutoModel.from_pretrained(folder).eval(), random_ids(batch, length)
    if compiled:
        model.compile()
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def run() -> np.ndarray:
        return model(input_ids=ids, attention_mask=mask).last_hidden_state.numpy()

    return with_vector(run)


def classification_pipeline(folder: str, count: int, batch: int):
    """Labels of texts, by transformers' pipeline with batches."""
    asked = sentences(count)
    ask = pipeline("text-classification", folder, top_k=None, batch_size=batch)

    def predict() -> None:
        ask(asked)

    shares = {row["label"]: row["score"] for row in ask(asked[:1])[0]}
    vars(predict).update(
        facts={"shares": [shares[label] for label in ask.model.config.label2id]},
        warm_up=lambda: ask(asked[:WARM_UP]),
    )
    return predict


def sentence_vectors(folder: str, count: int, batch: int):
    """Vectors of texts, by sentence-transformers."""
    from sentence_transformers import SentenceTransformer  # imports for seconds

    asked, model = sentences(count), SentenceTransformer(folder, device="cpu")

    def encode() -> None:
        model.encode(asked, batch_size=batch)

    vars(encode).update(
        facts={"shares": model.encode(asked[0]).tolist()},
        warm_up=lambda: model.encode(asked[:WARM_UP], batch_size=batch),
    )
    return encode


def pretraining_step(
    fields: dict[str, Any],
    generator_fields: dict[str, Any] | None,
    batch: int,
    length: int,
    precision: str = "float32",
    steps: int = 1,
    compiled: bool = False,
) -> Callable[[], float]:
    """`steps` whole training steps of replaced-token detection, always on the same ids.

    They run on a GPU if there is one.

    Args:
        compiled: the loss and its gradients by torch.compile.
        generator_fields: of the generator's; `embedding_size` and the sizes of the tables are the
            discriminator's, whose embeddings it shares. None: masked language modelling.
    """
    torch.manual_seed(0)
    torch.set_default_device(DEVICE)
    networks: nn.Module
    if generator_fields is None:
        networks = MaskedLM(_config(fields))
    else:
        networks = ReplacedTokenDetection(_config(fields), _config(generator_fields))
    networks.train()
    ids = random_ids(batch, length, fields["vocab_size"]).to(DEVICE)
    loss_of = torch.compile(networks) if compiled else networks
    optimizer = _optimizer(networks, 3e-4)
    schedule = get_linear_schedule_with_warmup(optimizer, 10**4, 10**6)

    def run() -> float:
        for _ in range(steps):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "mixed_bfloat16"):
                loss = loss_of(ids)
            _update(loss, networks, optimizer, schedule)
        return loss.item()

    vars(run).update(steps=steps)
    return run


def finetuning_epoch(
    fields: dict[str, Any],
    lengths: Sequence[int],
    batch: int,
    precision: str = "float32",
    num_labels: int = 2,
) -> Callable[[], float]:
    """One epoch of sequence classification with dynamic padding; returns the last loss.

    Batches come in random order, each padded to its longest example (DataCollatorWithPadding); the
    last may be smaller. The learning rate rises and falls within the epoch. One label: regression.
    """
    torch.manual_seed(0)
    config = _config(fields, num_labels=num_labels)
    model = AutoModelForSequenceClassification.from_config(config).train()
    examples = _random_examples(lengths, fields["vocab_size"], num_labels)
    batches = DataLoader(examples, batch, sampler=RandomSampler(examples), collate_fn=_pad)
    optimizer = _optimizer(model, 1e-4)

    def run() -> float:
        steps = len(batches)
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
        for features in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "mixed_bfloat16"):
                loss = model(**features).loss
            _update(loss, model, optimizer, schedule)
        return loss.item()

    return run


class ReplacedTokenDetection(nn.Module):
    """ELECTRA's pre-training, put together from transformers' encoders and heads.

    Shape: ids int64 [B, S], unmasked and without padding -> loss [].
    """

    def __init__(self, config: PreTrainedConfig, generator_config: PreTrainedConfig):
        super().__init__()
        self.discriminator = AutoModel.from_config(config)
        self.head = ElectraDiscriminatorPredictions(config)  # ConvBERT has no class of its own
        self.head.apply(self.discriminator._init_weights)
        self.generator = AutoModelForMaskedLM.from_config(generator_config)
        self.generator.base_model.embeddings = self.discriminator.embeddings
        self.generator.tie_weights()  # of its output layer, to the shared embeddings

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Masks, fills in and detects; the weighted sum of both losses."""
        masked_ids, positions = mask_tokens(ids)
        originals = ids.gather(1, positions)  # [B, P]
        hidden = self.generator.base_model(masked_ids).last_hidden_state
        masked = torch.take_along_dim(hidden, positions[..., None], 1)  # [B, P, D]
        transformed = self.generator.generator_predictions(masked.flatten(0, 1))  # [B * P, E]
        logits = self.generator.generator_lm_head(transformed).float()  # [B * P, V]
        generator_loss = F.cross_entropy(logits, originals.flatten())
        with torch.no_grad():
            sampled = sample(logits.softmax(-1)).view_as(originals)
            corrupted = ids.scatter(1, positions, sampled)
            labels = (corrupted != ids).float()
        hidden = self.discriminator(corrupted).last_hidden_state  # [B, S, D]
        loss = F.binary_cross_entropy_with_logits(self.head(hidden).float(), labels)
        return generator_loss + DISC_WEIGHT * loss


class MaskedLM(nn.Module):
    """Masked language modelling. Shape: as `ReplacedTokenDetection`."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.model = AutoModelForMaskedLM.from_config(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Masks and predicts."""
        masked_ids, positions = mask_tokens(ids)
        labels = torch.full_like(ids, -100).scatter(1, positions, ids.gather(1, positions))
        return self.model(masked_ids, labels=labels).loss


def mask_tokens(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Masks `MASK_TOKEN_PROB` of the ordinary tokens to predict; returns ids, positions [B, P]."""
    special = torch.tensor(list(SPECIAL_IDS.values()), device=ids.device)
    noise = torch.rand(ids.shape, device=ids.device).masked_fill(torch.isin(ids, special), -1.0)
    positions = noise.topk(max(1, round(MASK_PROB * ids.shape[1])), sorted=False).indices
    originals = ids.gather(1, positions)  # [B, P]
    hide = torch.rand(originals.shape, device=ids.device) < MASK_TOKEN_PROB
    return ids.scatter(1, positions, originals.masked_fill(hide, SPECIAL_IDS["mask"])), positions


def sample(probabilities: torch.Tensor) -> torch.Tensor:
    """Draws by the inverse of the cumulative sum, [N, V] -> [N, 1].

    It needs one random number a draw; `torch.multinomial`, with one for each probability, takes
    several times as long.
    """
    cumulative = probabilities.cumsum(-1)
    threshold = torch.rand(len(cumulative), 1, device=cumulative.device) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, threshold, right=True)
    return drawn.clamp(max=cumulative.shape[-1] - 1)  # rounding may push it past the end


def random_ids(batch: int, length: int, vocab_size: int = 8000) -> torch.Tensor:
    """The ids of `random_features`, int64 [batch, length]."""
    return torch.from_numpy(random_features(batch, length, vocab_size)["input_ids"]).long()


def _config(fields: dict[str, Any], **others: Any) -> PreTrainedConfig:
    """Hugging Face's configuration of our fields; InputError names one that it does not have."""
    if "local_attention" in fields:
        same = {name: fields[name] for name in _MODERN}
        # The head computes masked tokens only, as ours does.
        same |= {"norm_eps": fields["layer_norm_eps"], "sparse_prediction": True}
        return AutoConfig.for_model("modernbert", pad_token_id=0, **same)
    model_type = "electra"
    possible: dict[str, str | int] = {"head_ratio": 1, "linear_groups": 1}
    if fields["token_mixer"] != "attention":
        model_type = "convbert"
        possible = {"token_mixer": "mixed", "convolution": "span", "head_ratio": 2}
        others["num_groups"] = fields["linear_groups"]
        others |= {name: fields[name] for name in ("conv_kernel_size", "head_ratio")}
    for name, value in {**possible, "share_layers": False}.items():
        if fields[name] != value:
            expected = f"{value!r} for Hugging Face's {model_type}"
            raise InputError(f"`{name}` should be {expected}. Received: {fields[name]!r}")
    others |= {name: fields[name] for name in _SAME_NAME}
    return AutoConfig.for_model(model_type, pad_token_id=0, layer_norm_eps=1e-12, **others)


def _optimizer(module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """AdamW; as everywhere, biases and layer norms do not decay."""
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": rate} for rate in (0.01, 0.0)]
    for parameter in module.parameters():
        groups[parameter.ndim < 2]["params"].append(parameter)
    return torch.optim.AdamW(groups, learning_rate, eps=1e-6, fused=True)


def _update(
    loss: torch.Tensor, module: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler
) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)


def _random_examples(lengths: Sequence[int], vocab_size: int, num_labels: int) -> list[dict]:
    draw = np.random.default_rng(0)
    labels: np.ndarray = draw.random(len(lengths), np.float32)
    if num_labels > 1:
        labels = draw.integers(num_labels, size=len(lengths))
    ids = random_ids(len(lengths), max(lengths), vocab_size)
    pairs = zip(ids, lengths, torch.from_numpy(labels))
    return [{"input_ids": row[:length], "labels": label} for row, length, label in pairs]


def _pad(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch as long as its longest example."""
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in examples], batch_first=True)
    labels = torch.stack([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}
