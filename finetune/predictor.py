"""What a network predicts for the sequences of a split, in their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from common.backend import on_tpu
from finetune.batches import EvaluationBatches
from finetune.hparams import FinetuningHParams
from finetune.objective import FineTuning
from finetune.task import Task
from finetune.task_data import Split
from training import workers
from training.distribution import on_this_machine, own_rows
from training.tracing import plain_function


class Predictor:
    """Asks a network, whose weights may change, about splits of a task.

    It is traced once for splits of the same columns. `batch_size` is over all devices; `hparams`
    say the lengths of batches.
    """

    def __init__(
        self,
        objective: FineTuning,
        task: Task,
        batch_size: int,
        hparams: FinetuningHParams,
        strategy: tf.distribute.Strategy,
    ):
        self._objective, self._task = objective, task
        self._batch_size, self._hparams, self._strategy = batch_size, hparams, strategy
        self._traced: dict[str, Callable] = {}  # by what batches hold

    def __call__(self, split: Split) -> dict[str, np.ndarray]:
        """Arrays of one item per sequence; those of tokens lie flat along the split's tokens.

        Where the head has `constants()`, these too.
        """
        kind, strategy = self._task.plugin, self._strategy
        batches = EvaluationBatches(
            split.encoded,
            self._batch_size,
            length_buckets=self._hparams.length_buckets,
            max_seq_length=self._hparams.max_seq_length,
            group_size=kind.group_size(self._task),
        )
        with on_this_machine(strategy):
            dataset = batches()
            iterator = iter(dataset)
        held = str(dataset.element_spec)
        run = self._traced.setdefault(held, self._function(dataset.element_spec))
        emitted: dict[str, list[np.ndarray]] = {}
        for features in iterator:
            for name, value in run(features).items():
                for part in strategy.experimental_local_results(value):
                    emitted.setdefault(name, []).extend(part.numpy())
        outputs = _collect(emitted, batches.own, split.encoded.lengths, kind.token_outputs)
        return outputs | getattr(self._objective.head, "constants", dict)()

    def _function(self, spec) -> Callable:
        """The function of a batch."""

        def predict_part(features):
            return self._objective.predict(own_rows(features))

        def predict_batch(features):
            return self._strategy.run(predict_part, (features,))

        # One trace for all lengths, but on a TPU, where shapes are static.
        options = {} if on_tpu(self._strategy) else {"input_signature": [spec]}
        return plain_function(predict_batch, **options)


def _collect(
    emitted: dict[str, list[np.ndarray]], own: np.ndarray, lengths: np.ndarray, token_outputs
) -> dict[str, np.ndarray]:
    """Puts what all workers' batches gave into the order of the sequences.

    `emitted` has by name one array for each sequence that came out on this worker, whose numbers
    are `own`; arrays of `token_outputs` have an item for each token, and for padding.
    """
    packed = {name: np.stack(v) for name, v in emitted.items() if name not in token_outputs}
    for name in emitted.keys() - packed:
        cut = [value[:length] for value, length in zip(emitted[name], lengths[own])]
        packed[name] = np.concatenate(cut)
    gathered = workers.gather({**packed, "": own})
    all_own = np.concatenate([arrays.pop("") for arrays in gathered])
    place = np.unique(all_own, return_index=True)[1]  # of each sequence, without its copies
    collected = {}
    for name in emitted:
        values = np.concatenate([arrays[name] for arrays in gathered])
        if name in token_outputs:
            values = np.split(values, np.cumsum(lengths[all_own])[:-1])
            collected[name] = np.concatenate([values[i] for i in place])
        else:
            collected[name] = values[place]
    return collected
