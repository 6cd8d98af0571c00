"""Token losses of a causal language model in windows over a stream of tokens."""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.common.errors import InputError, warn
from convbert.data.build_options import separates_lines
from convbert.data.corpus import MAX_UNDECODABLE_SHARE, listing, open_corpus
from convbert.data.examples import begins_with_last_token, with_separators
from convbert.data.tokenization import batches
from convbert.data.tokenizers import create_tokenizer
from convbert.pretrain.load import load_hparams, load_objective, recorded_vocabulary
from convbert.pretrain.objectives.causal_lm import CAUSAL, token_losses
from convbert.training import checkpointing
from convbert.training.tracing import plain_function


class Text(NamedTuple):
    """A tokenized text, and counts."""

    stream: np.ndarray  # token ids, int32 [n]
    words: int  # between whitespace, and separators
    unknown_tokens: int
    separator: str  # the token after each line or document, such as "[SEP] per line"


def corpus_text(path: str, corpus_format: str, model_dir: str) -> Text:
    """Tokenizes a corpus as one stream with a model's vocabulary; InputError if not UTF-8."""
    vocabulary = recorded_vocabulary(model_dir)
    tokenizer, corpus = create_tokenizer(vocabulary), open_corpus(path, corpus_format)
    by_line = separates_lines(vocabulary.tokenizer, corpus_format)
    parts, words, characters = [np.zeros([0], np.int32)], 0, 0
    problems: collections.Counter = collections.Counter()
    for unit in corpus.units:
        for batch in batches(corpus.documents(unit, problems), lambda each: each.characters):
            tokenized = tokenizer.tokenize_documents([document.lines for document in batch])
            for document, (ids, line_ends) in zip(batch, tokenized):
                characters += document.characters
                parts.append(with_separators(ids, line_ends, vocabulary, by_line))
                words += sum(len(line.split()) for line in document.lines)
                words += len(parts[-1]) - len(ids)
    if problems["undecodable_bytes"] > MAX_UNDECODABLE_SHARE * characters:
        raise InputError(f"{path}: the corpus should be UTF-8 text. Received: {listing(problems)}")
    if found := +problems:
        warn(f"{path} has {listing(found)}")
    stream = np.concatenate(parts)
    unknown = int((stream == vocabulary.unk_id).sum())
    separator = f"{vocabulary.tokens[vocabulary.sep_id]} per {'line' if by_line else 'document'}"
    return Text(stream, words, unknown, separator)


class CausalModel:
    """The causal language model of a model directory, at `step` of its training."""

    def __init__(self, model_dir: str) -> None:
        hparams, _ = load_hparams(model_dir)
        if CAUSAL not in hparams.objective.scoring_methods:
            received = hparams.objective.name
            raise InputError(f"{model_dir} should be a causal language model. Received: {received}")
        tf_keras.mixed_precision.set_global_policy(hparams.precision)
        self.max_seq_length = hparams.max_seq_length
        self.step = checkpointing.step_of(checkpointing.latest_checkpoint(model_dir))
        self._vocabulary = recorded_vocabulary(model_dir)
        objective = load_objective(model_dir)
        encoder, head = (getattr(objective, name) for name in CAUSAL.networks)

        def losses(batch):
            return token_losses(head, encoder(batch).sequence, batch)[0]

        names = ("input_ids", "input_mask")
        specs = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        self._losses = plain_function(losses, input_signature=[specs])

    def stride(self, context: int) -> int:
        """Returns the number of new tokens of a window, after `context` tokens.

        One more token precedes them, as in training: [CLS] or, for a vocabulary of words, the
        previous word.
        """
        longest = self.max_seq_length
        if context > longest - 2:
            most = f"at most {longest - 2}, as the model's sequences have {longest} tokens"
            raise InputError(f"--context should be {most}. Received: {context}")
        return longest - 1 - context

    def token_losses(self, stream: np.ndarray, context: int, batch_size: int = 16) -> np.ndarray:
        """Returns -log p of the tokens of a stream, float32 [n].

        Each window predicts its new tokens, after at least `context` tokens except at the beginning
        of the stream.
        """
        full = np.concatenate([[self._vocabulary.cls_id], stream]).astype(np.int32)
        firsts = np.arange(1, len(full), self.stride(context))  # the first new token of each window
        found = [np.zeros([0], np.float32)]
        for i in range(0, len(firsts), batch_size):
            part = firsts[i : i + batch_size]
            # Filled up with extra windows, as each batch size is compiled.
            filled = np.pad(part, [0, batch_size - len(part)], mode="edge")
            found += self._window_losses(full, filled, context)[: len(part)]
        return np.concatenate(found)

    def _window_losses(
        self, full: np.ndarray, firsts: np.ndarray, context: int
    ) -> list[np.ndarray]:
        """Returns the losses of the new tokens of some windows, one array each.

        `full` is the stream with its first token, int32 [n + 1]; `firsts` [B] are positions in it.
        """
        starts = np.maximum(firsts - 1 - context, 0)
        ends = np.minimum(firsts + self.stride(context), len(full))
        source = starts[:, None] + np.arange(self.max_seq_length)  # [B, W]
        mask = source < ends[:, None]
        ids = np.where(mask, full[np.minimum(source, len(full) - 1)], self._vocabulary.pad_id)
        if not begins_with_last_token(self._vocabulary):
            ids[:, 0] = self._vocabulary.cls_id
        batch = {"input_ids": ids.astype(np.int32), "input_mask": mask.astype(np.int32)}
        nll = self._losses({name: tf.constant(value) for name, value in batch.items()}).numpy()
        places = zip(nll, firsts - starts - 1, ends - starts - 1)  # of token p is nll[p - 1]
        return [row[first:end] for row, first, end in places]
