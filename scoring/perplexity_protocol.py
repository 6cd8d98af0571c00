"""How perplexity is measured, and what is said of it. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from errors import InputError


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Windows over a stream, of which each predicts `stride` tokens that others do not.

    Attributes:
        context: tokens before those, at least so many but at the beginning of the stream. In front
            of them stands one token more, with which sequences begin in training, too: [CLS], or
            of a vocabulary of words the word before.
        stride: new tokens of a window.
    """

    context: int
    stride: int

    @classmethod
    def within(cls, longest: int, context: int, stride: int | None) -> Protocol:
        """The windows that a model of sequences of at most `longest` tokens can have."""
        if context > longest - 2:
            raise InputError(
                f"--context should be at most {longest - 2}, as the model's sequences have"
                f" {longest} tokens. Received: {context}"
            )
        room = longest - 1 - context
        if stride is not None and stride > room:
            raise InputError(
                f"--stride should be at most {room} at --context {context}, as the model's"
                f" sequences have {longest} tokens. Received: {stride}"
            )
        return cls(context, stride or room)

    @property
    def window(self) -> int:
        """Tokens of a sequence."""
        return 1 + self.context + self.stride

    def __str__(self) -> str:
        if self.context:
            return f"sliding windows of {self.stride} new tokens after {self.context} of context"
        return f"disjoint blocks of {self.stride} tokens"


@dataclasses.dataclass(frozen=True)
class Report:
    """A measurement.

    Attributes:
        model_dir, step: whose.
        text: the corpus or data folder.
        protocol: how.
        separator: what stands behind each line, or each document.
        tokens: number of predicted tokens, separators included.
        words: number of words between whitespace, and of separators.
        unknown_tokens: how many of the tokens are the unknown one; they count as any other.
        nats: sum of -log p over all tokens.
    """

    model_dir: str
    step: int
    text: str
    protocol: Protocol
    separator: str
    tokens: int
    words: int
    unknown_tokens: int
    nats: float

    @property
    def perplexity(self) -> float:
        """exp of the mean loss of a token."""
        return math.exp(self.nats / self.tokens)

    @property
    def perplexity_per_word(self) -> float:
        """exp of the total loss per word, by which vocabularies compare."""
        return math.exp(self.nats / self.words)

    def to_json(self) -> dict[str, Any]:
        """All of it, with what it says in words."""
        fields = dataclasses.asdict(self)
        fields["protocol"]["about"] = str(self.protocol)
        figures = {"perplexity": self.perplexity, "perplexity_per_word": self.perplexity_per_word}
        return fields | figures

    def line(self) -> str:
        """The result in one line."""
        return (
            f"{self.text}: perplexity {self.perplexity:.2f} of {self.tokens:,} tokens"
            f" ({self.unknown_tokens / self.tokens:.2%} unknown), {self.perplexity_per_word:.2f}"
            f" of {self.words:,} words ({self.separator} counts as one);"
            f" {self.protocol}; step {self.step} of {self.model_dir}"
        )
