"""Multiple choice as a plug-in: which of some texts goes with a context.

    {"context": "...", "choices": ["...", "..."], "label": "0"}

An example is a group of sequences, a context with each of its choices; the labels of the task are
the places of the choices. Run the commands with `--plugins tests/finetune/choice_kind.py`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from common.plugins import lazily
from common.settings import within
from finetune import kinds, metrics
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Kind
from finetune.kinds.texts import TextExample
from finetune.labels import label_index

_encode_texts = lazily("finetune.encoding:encode_texts")


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context and its choices; `label` is the place of the right one."""

    id: str
    context: str
    choices: tuple[str, ...]
    label: int | None


@dataclasses.dataclass(frozen=True)
class ChoiceHParams(FinetuningHParams):
    """Hyper-parameters of multiple choice."""

    # The share of the label that all choices have.
    label_smoothing: float = dataclasses.field(default=0.0, metadata=within(0, 1))


class Choice(Kind):
    """A softmax over the scores of an example's choices."""

    name = "choice"
    formats = {"jsonl": ".jsonl"}  # noqa: RUF012
    needed = ("context", "choices", "label")
    target = "label"
    has_labels = True
    metrics = {"accuracy": metrics.accuracy}  # noqa: RUF012
    default_metrics = ("accuracy",)
    served = ("scores",)
    hparams = ChoiceHParams

    def example(self, source, identity, where, row):
        label = row.get("label")
        label = None if label is None else label_index(source, where, label)
        return ChoiceExample(identity, row["context"], tuple(row["choices"]), label)

    def group_size(self, task):
        return len(task.labels)

    def encode(self, task, examples, vocabulary, hparams):
        """See Kind.encode: [CLS] context [SEP] choice [SEP]."""
        pairs = [TextExample(x.id, x.context, text, None) for x in examples for text in x.choices]
        encoded = _encode_texts(task, pairs, vocabulary, hparams)
        G = self.group_size(task)
        columns = {"example": np.repeat(np.arange(len(examples), dtype=np.int32), G)}
        if all(example.label is not None for example in examples):
            labels = np.array([example.label for example in examples], np.int32)
            columns["label"] = np.repeat(labels, G)
        return dataclasses.replace(encoded, sequences=columns)

    def head(self, task, config, hparams):
        return create_head(self.group_size(task), hparams.label_smoothing)

    def answers(self, task, split, outputs, hparams):
        """The choices of highest `score` [n]."""
        return outputs["score"].reshape(-1, self.group_size(task)).argmax(axis=1).tolist()

    def signatures(self, network):
        """See Kind.signatures: a context and its choices, of which "" pads the list."""
        import tensorflow as tf

        from serving.signatures.signature import TEXT, TRUNCATED, Signature, Tensor

        def of_choices(context, choices):
            B, C = tf.unstack(tf.shape(choices))
            sequences = network.layout.pair(tf.repeat(context, C), tf.reshape(choices, [B * C]))
            features = network.features(sequences.ids, sequences.segment_ids)
            scores = network.predict(features, network.lengths(features))["score"]
            scores = tf.where(choices != "", tf.reshape(scores, [B, C]), -1e9)
            cut = tf.reshape(sequences.truncated, [B, C])
            return {
                "choice": tf.argmax(scores, axis=1, output_type=tf.int32),
                "scores": scores,
                "truncated": tf.reduce_any(cut & (choices != ""), axis=1),
            }

        inputs = {"context": TEXT, "choices": Tensor("string", "BC")}
        outputs = {
            "choice": Tensor("int32", "B"),
            "scores": Tensor("float32", "BC"),
            "truncated": TRUNCATED,
        }
        about = "a context and its choices to the best choice"
        return {"serving_default": Signature(about, of_choices, inputs, outputs)}

    def answer_of(self, labels, values):
        return values["choice"]


def create_head(group_size, label_smoothing):
    """A score of each sequence, and a softmax over the sequences of a group."""
    import tensorflow as tf

    from model.heads.task import RegressionHead

    class ChoiceHead(RegressionHead):
        def loss_weights(self, batch):
            """float32 [B / group_size]."""
            return tf.reshape(batch["weight"], [-1, group_size])[:, 0]

        def loss(self, output, batch, *, training, seed=None):
            """Cross entropy [B / group_size]."""
            logits = self(output.pooled, training=training, seed=seed)
            logits = tf.reshape(logits, [-1, group_size])
            labels = tf.reshape(batch["label"], [-1, group_size])[:, 0]
            labels = tf.one_hot(labels, group_size) * (1 - label_smoothing)
            labels += label_smoothing / group_size
            return tf.nn.softmax_cross_entropy_with_logits(labels, logits)

    return ChoiceHead()


kinds.register(Choice())
