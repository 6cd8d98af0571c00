"""Pre-training, put together from transformers: masking, generator, sampling, losses.

Imports torch, not TensorFlow.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.models.electra.modeling_electra import ElectraDiscriminatorPredictions

SPECIAL_IDS = {"cls": 101, "sep": 102, "mask": 103}  # of BERT's vocabulary
MASK_PROB, MASK_TOKEN_PROB, DISC_WEIGHT = 0.15, 0.85, 50.0


class ReplacedTokenDetection(nn.Module):
    """ELECTRA's pre-training, put together from transformers' encoders and heads.

    Shape: ids int64 [B, S], unmasked and without padding -> loss [].
    """

    def __init__(self, config: PreTrainedConfig, generator_config: PreTrainedConfig):
        super().__init__()
        self.discriminator = encoder(config)
        self.head = ElectraDiscriminatorPredictions(config)  # ConvBERT has no class of its own
        self.head.apply(self.discriminator._init_weights)
        self.generator = AutoModelForMaskedLM.from_config(generator_config)
        self.generator.base_model.embeddings = self.discriminator.embeddings
        self.generator.tie_weights()  # of its output layer, to the shared embeddings

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Masks, fills in and detects; the weighted sum of both losses."""
        masked_ids, positions = mask_tokens(ids)
        originals = ids.gather(1, positions)  # [B, P]
        logits = masked_logits(self.generator, masked_ids, positions)
        generator_loss = F.cross_entropy(logits, originals.flatten())
        with torch.no_grad():
            sampled = sample(logits.softmax(-1)).view_as(originals)
            corrupted = ids.scatter(1, positions, sampled)
            labels = (corrupted != ids).float()
        hidden = self.discriminator(corrupted).last_hidden_state  # [B, S, D]
        loss = F.binary_cross_entropy_with_logits(self.head(hidden).float(), labels)
        return generator_loss + DISC_WEIGHT * loss


class MaskedLM(nn.Module):
    """BERT's pre-training, of the network of ELECTRA's generator.

    Shape: as ReplacedTokenDetection.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.model = AutoModelForMaskedLM.from_config(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Masks and predicts; the cross entropy of the masked tokens."""
        masked_ids, positions = mask_tokens(ids)
        logits = masked_logits(self.model, masked_ids, positions)
        return F.cross_entropy(logits, ids.gather(1, positions).flatten())


def masked_logits(
    model: PreTrainedModel, masked_ids: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """What an ELECTRA generator predicts for [B, P] slots only: logits, float32 [B * P, V]."""
    hidden = model.base_model(masked_ids).last_hidden_state
    masked = torch.take_along_dim(hidden, positions[..., None], 1)  # [B, P, D]
    transformed = model.generator_predictions(masked.flatten(0, 1))  # [B * P, E]
    return model.generator_lm_head(transformed).float()


def mask_tokens(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Dynamic masking of ordinary tokens.

    Returns:
        The ids with `MASK_TOKEN_PROB` of the chosen tokens hidden, and the distinct positions that
        were chosen, int64 [B, P].
    """
    special = torch.tensor(list(SPECIAL_IDS.values()))
    noise = torch.rand(ids.shape).masked_fill(torch.isin(ids, special), -1.0)
    positions = noise.topk(max(1, round(MASK_PROB * ids.shape[1])), sorted=False).indices
    originals = ids.gather(1, positions)  # [B, P]
    hide = torch.rand(originals.shape) < MASK_TOKEN_PROB
    return ids.scatter(1, positions, originals.masked_fill(hide, SPECIAL_IDS["mask"])), positions


def sample(probabilities: torch.Tensor) -> torch.Tensor:
    """Draws by the inverse of the cumulative sum, [N, V] -> [N, 1].

    It needs one random number a draw; `torch.multinomial`, with one for each probability, takes
    several times as long.
    """
    cumulative = probabilities.cumsum(-1)
    threshold = torch.rand(len(cumulative), 1) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, threshold, right=True)
    return drawn.clamp(max=cumulative.shape[-1] - 1)  # rounding may push it past the end


def encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """An encoder with the best attention that transformers has for it: SDPA, or none but eager."""
    return AutoModel.from_config(config)
