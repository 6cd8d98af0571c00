"""A kind as a plug-in: which of a context's choices goes with it, each a sequence of its own.

    {"context": "...", "choices": ["...", "..."], "label": "0"}

Run the commands with `--plugins tests/finetune/choice_kind.py`.
"""

import dataclasses

import numpy as np

from convbert.common.plugins import lazily
from convbert.common.settings import within
from convbert.finetune import kinds, metrics
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, label_index
from convbert.finetune.kinds.texts import TextExample

_encode_texts = lazily("convbert.finetune.encoding:encode_texts")


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    id: str
    context: str
    choices: tuple[str, ...]
    label: int | None  # the place of the right one


@dataclasses.dataclass(frozen=True)
class ChoiceHParams(FinetuningHParams):
    margin: float = dataclasses.field(default=0.0, metadata=within(0, 9))


class Choice(Kind):
    """A softmax over the scores of an example's choices; answers are their places."""

    name = "choice"
    formats = {"jsonl": ".jsonl"}  # noqa: RUF012
    needed = ("context", "choices", "label")
    target = "label"
    has_labels = True
    metrics = {"accuracy": metrics.accuracy}  # noqa: RUF012
    default_metrics = ("accuracy",)
    hparams = ChoiceHParams

    def example(self, source, identity, row):
        label = label_index(source.task, row["label"])
        return ChoiceExample(identity, row["context"], tuple(row["choices"]), label)

    def group_size(self, task):
        return len(task.labels)

    def encode(self, task, examples, layout, hparams):
        pairs = [TextExample(x.id, x.context, text, None) for x in examples for text in x.choices]
        labels = np.array([example.label for example in examples], np.int32)
        columns = {"example": np.arange(len(examples), dtype=np.int32), "label": labels}
        columns = {name: np.repeat(own, self.group_size(task)) for name, own in columns.items()}
        encoded = _encode_texts(task, pairs, layout, hparams)
        return dataclasses.replace(encoded, sequences=columns)

    def head(self, task, config, hparams):
        return create_head(self.group_size(task), hparams.margin)

    def answers(self, task, split, outputs, hparams):
        return outputs["score"].reshape(-1, self.group_size(task)).argmax(axis=1).tolist()

    def signatures(self, network):
        import tensorflow as tf

        from convbert.serving.signatures.signature import TEXT, Signature, Tensor

        def choose(context, choices):
            B, C = tf.unstack(tf.shape(choices))
            sequences = network.layout.pair(tf.repeat(context, C), tf.reshape(choices, [B * C]))
            features = network.features(sequences.ids, sequences.segment_ids)
            scores = network.predict(features, network.lengths(features))["score"]
            scores = tf.where(choices != "", tf.reshape(scores, [B, C]), -1e9)
            return {"choice": tf.argmax(scores, axis=1, output_type=tf.int32)}

        inputs = {"context": TEXT, "choices": Tensor("string", "BC")}
        outputs = {"choice": Tensor("int32", "B")}
        return {"serving_default": Signature("the best choice", choose, inputs, outputs)}

    def answer_of(self, labels, values):
        return values["choice"]


def create_head(group_size, margin):
    """A score of each sequence, and a softmax over the sequences of a group."""
    import tensorflow as tf

    from convbert.model.heads.task import RegressionHead

    class ChoiceHead(RegressionHead):
        def loss_weights(self, batch):
            return tf.reshape(batch["weight"], [-1, group_size])[:, 0]

        def loss(self, output, batch, *, training, seed=None):
            """Cross entropy [B / group_size], the right score less the margin."""
            logits = self(output.pooled, training=training, seed=seed)
            labels = tf.reshape(batch["label"], [-1, group_size])[:, 0]
            logits = tf.reshape(logits, [-1, group_size]) - margin * tf.one_hot(labels, group_size)
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    return ChoiceHead()


kinds.register(Choice())
