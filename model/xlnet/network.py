"""XLNet: embeddings, then layers of relative attention and feed-forward, in one stream or two.

The content stream sees the token itself. The query stream exists only in pre-training, for the
predicted tokens: it sees the position of a token and the tokens before it in the factorization
order. Both share their weights. Axis letters: see `model.xlnet.attention`.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
import tf_keras

from convbert.model.backbone import EncoderOutput, last_token, run_layer
from convbert.model.kernels import dropout, sizes, split_seeds, vocabulary_logits
from convbert.model.layers import LayerNorm, dense, look_up
from convbert.model.xlnet.attention import (
    UNSEEN_SCORE,
    AttentionInputs,
    RelativeAttention,
    distance_encodings,
    normal_initializer,
)
from convbert.model.xlnet.config import XLNetConfig

_LAYER_SEEDS, _OTHER_SEEDS = 8, 5  # dropouts of a layer in two streams; of embeddings and outputs


class TwoStreams(NamedTuple):
    """The outputs of `XLNet.two_streams`.

    Attributes:
        queries: the query stream's last states at the targets, [B, P, D].
        content: outputs of the content stream.
    """

    queries: tf.Tensor
    content: EncoderOutput


class WordEmbeddings(tf_keras.layers.Layer):
    """`word_embeddings` [V, D], without further embeddings or normalisation."""

    def __init__(self, config: XLNetConfig, name: str = "embeddings"):
        super().__init__(name=name)
        shape = [config.vocab_size, config.hidden_size]
        with tf.name_scope(self.name):
            start = normal_initializer(config)
            self.word_embeddings = self.add_weight(
                "word_embeddings", shape, initializer=start, experimental_autocast=False
            )

    def call(self, input_ids):
        """int32 [B, S] -> [B, S, D]"""
        return look_up(self.word_embeddings, input_ids, self.compute_dtype)


class XLNetLayer(tf_keras.layers.Layer):
    """One post-norm layer with one stream or two."""

    def __init__(self, config: XLNetConfig, **kwargs):
        super().__init__(**kwargs)
        self.rate = config.hidden_dropout_prob
        self.attention = RelativeAttention(config, name="attention")
        self.attention_norm = LayerNorm("attention_norm", config.layer_norm_eps)
        self.intermediate, self.output_dense = (
            dense(config, units, name, activation, kernel_initializer=normal_initializer(config))
            for units, name, activation in (
                (config.intermediate_size, "intermediate", config.hidden_act),
                (config.hidden_size, "output_dense", None),
            )
        )
        self.output_norm = LayerNorm("output_norm", config.layer_norm_eps)

    def call(self, hidden, query=None, *, given, training=False, seeds):
        """Maps [B, S, D] and optionally [B, P, D] to the same, and attention probabilities."""
        *attended, probabilities = self.attention(
            hidden, query, given=given, training=training, seeds=seeds[:2]
        )
        streams = [hidden] if query is None else [hidden, query]
        outputs = (
            self._after_attention(stream, attended[i], training, seeds[2 + 3 * i : 5 + 3 * i])
            for i, stream in enumerate(streams)
        )
        return *outputs, probabilities

    def _after_attention(self, hidden, attended, training, seeds):
        attended = self.attention_norm(
            attended, hidden, self.rate, training=training, seed=seeds[0]
        )
        inner = self.intermediate(attended, training=training)
        inner = dropout(inner, self.rate if training else 0.0, seeds[1])
        output = self.output_dense(inner, training=training)
        return self.output_norm(output, attended, self.rate, training=training, seed=seeds[2])


class XLNet(tf_keras.layers.Layer):
    """XLNet as a `model.backbone.Backbone`.

    Example:
        encoder = build_backbone(named_size("xlnet-base"))
        output = encoder({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
        output.pooled  # [B, 768], the last token of each text

    Outputs depend neither on the amount of padding nor on its side. Distance encodings are
    projected once per batch instead of once per text as in the original, so all texts of a batch
    share the dropout mask of the encodings.
    """

    def __init__(
        self, config: XLNetConfig, embeddings: WordEmbeddings | None = None, name: str = "encoder"
    ):
        super().__init__(name=name)
        self.config, self.rematerialize, self.hidden_size = config, False, config.hidden_size
        self.embeddings = embeddings or WordEmbeddings(config)
        self.encoder_layers = [
            XLNetLayer(config, name=f"layer_{i}") for i in range(config.num_hidden_layers)
        ]

    def layer_groups(self) -> list[list[tf.Variable]]:
        """Groups variables as `Backbone.layer_groups`."""
        layers = (layer.trainable_variables for layer in self.encoder_layers)
        return [self.embeddings.trainable_variables, *layers]

    def two_streams(
        self,
        features: dict[str, tf.Tensor],
        permitted: tf.Tensor,
        targets: tf.Tensor,
        mask_embedding: tf.Tensor,
        training: bool = False,
        seed: tf.Tensor | None = None,
    ) -> TwoStreams:
        """Encodes a batch for permutation language modelling; takes other arguments as `__call__`.

        The context of a query that sees no token is 0.

        Args:
            permitted: bool or float [B, S, S], 1 where the query stream at row i may see column j.
                The content stream also sees its own token. `input_mask` hides padding.
            targets: int32 [B, P], positions of the predicted tokens.
            mask_embedding: initial state of all queries, [1, D], from `XLNetLMHead`.
        """
        streams = (permitted, targets, mask_embedding)
        return self(features, training=training, seed=seed, streams=streams)

    def call(
        self,
        features,
        training: bool = False,
        seed=None,
        output_attentions: bool = False,
        streams=None,
    ) -> EncoderOutput | TwoStreams:
        """Encodes a batch, see `Backbone`; `two_streams` sets `streams`.

        `input_mask` defaults to 1, `segment_ids` to 0. Attention probabilities are [B, N, S, S].
        """
        config, ids = self.config, features["input_ids"]
        rate = config.hidden_dropout_prob if training else 0.0
        count = _LAYER_SEEDS * config.num_hidden_layers + _OTHER_SEEDS
        seeds = split_seeds(seed, count) if training else [None] * count
        *layer_seeds, of_words, of_encodings, of_output, of_queries, of_predictions = seeds

        embedded = dropout(self.embeddings(ids), rate, of_words)  # [B, S, D]
        given = self._attention_inputs(features, streams, rate, of_encodings)
        states = [embedded]
        if streams is not None:
            B, P = sizes(streams[1])
            query = tf.tile(tf.cast(streams[2], embedded.dtype)[None], [B, P, 1])  # [B, P, D]
            states.append(dropout(query, rate, of_queries))
        hidden_states, attention_probs = [], []
        for i, layer in enumerate(self.encoder_layers):
            outputs = run_layer(
                layer,
                *states,
                rematerialized=training and self.rematerialize and not output_attentions,
                given=given,
                training=training,
                seeds=layer_seeds[_LAYER_SEEDS * i : _LAYER_SEEDS * (i + 1)],
            )
            states = outputs[: len(states)]
            hidden_states.append(states[0])
            if output_attentions:
                attention_probs.append(outputs[-1])
        hidden_states[-1] = hidden = dropout(states[0], rate, of_output)
        pooled = last_token(hidden, features.get("input_mask", tf.ones_like(ids)))
        of_layers = tuple(hidden_states), tuple(attention_probs)
        output = EncoderOutput(hidden, pooled, embedded, *of_layers)
        if streams is None:
            return output
        return TwoStreams(dropout(states[1], rate, of_predictions), output)

    def _attention_inputs(self, features, streams, rate, seed) -> AttentionInputs:
        """Returns the inputs all layers share; `rate` and `seed` are for the encodings' dropout."""
        config, ids, dtype = self.config, features["input_ids"], self.compute_dtype
        S = sizes(ids)[1]
        encodings = distance_encodings(S, config)
        # All parts of a batch share them and use the seed of the whole batch.
        encodings = tf.cast(dropout(encodings, rate, None if seed is None else seed[:2]), dtype)

        ids = features.get("segment_ids", tf.zeros_like(ids))
        segments = tf.one_hot(ids, config.type_vocab_size, dtype=dtype)
        mask = features.get("input_mask", tf.ones_like(ids))

        def bias(visible):
            """[B, Q, S], 1 for visible keys -> [B, 1, Q, S]"""
            return tf.cast(((1.0 - tf.cast(visible, tf.float32)) * UNSEEN_SCORE)[:, None], dtype)

        if streams is None:
            return AttentionInputs(encodings, segments, bias(mask[:, None]))
        permitted, targets, _ = streams
        visible = tf.cast(permitted, tf.float32) * tf.cast(mask, tf.float32)[:, None]  # [B, S, S]
        of_targets = tf.gather(visible, targets, batch_dims=1)  # [B, P, S]
        sees = tf.cast(tf.reduce_max(of_targets, -1, keepdims=True), dtype)
        return AttentionInputs(
            encodings,
            segments,
            bias(tf.maximum(visible, tf.eye(S))),
            targets,
            tf.gather(segments, targets, batch_dims=1),
            bias(of_targets),
            sees,
        )


class XLNetLMHead(tf_keras.layers.Layer):
    """Predicts tokens from the query stream, by transposed word embeddings and a bias.

    It also owns the query stream's initial state, so an encoder has no variable that only
    pre-training uses.

    Shape: queries [B, P, D] -> logits float32 [B, P, V]. Weights: `output_bias`, one for every row
    of the word embeddings, and `mask_embedding` [1, D].

    Args:
        config: the encoder's configuration.
        embeddings: the built layer that provides `word_embeddings`.
        pieces: V, the number of rows of the word embeddings that are pieces. Default: all.
    """

    def __init__(
        self,
        config: XLNetConfig,
        embeddings: tf_keras.layers.Layer,
        *,
        pieces: int | None = None,
        name: str = "lm_head",
    ):
        super().__init__(name=name)
        self.embeddings = embeddings
        rows, D = embeddings.word_embeddings.shape
        self.pieces = pieces or rows
        with tf.name_scope(name):
            self.output_bias = self.add_weight(
                "output_bias", [rows], initializer="zeros", experimental_autocast=False
            )
            self.mask_embedding = self.add_weight(
                "mask_embedding", [1, D], initializer=normal_initializer(config)
            )

    def call(self, queries):
        table = tf.cast(self.embeddings.word_embeddings, queries.dtype)[: self.pieces]
        bias = tf.cast(self.output_bias, tf.float32)[: self.pieces]
        return vocabulary_logits(queries, table, bias)
