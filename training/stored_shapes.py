"""Networks are no larger than the tensors that they are read from: shapes before memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from convbert.common.errors import InputError
from convbert.training.checkpointing import latest_checkpoint


def as_stored(model_dir: str) -> contextlib.AbstractContextManager[None]:
    """`no_larger_than` a model directory's newest checkpoint; raises as `latest_checkpoint`."""
    stored = tf.train.list_variables(latest_checkpoint(model_dir))
    return no_larger_than([shape for _, shape in stored], model_dir)


@contextlib.contextmanager
def no_larger_than(shapes: Iterable[Sequence[int]], where: str) -> Iterator[None]:
    """Raises InputError where variables made in the block hold four times the stored `shapes`.

    So a configuration of another network than the tensors beside it, in the folder `where`, takes
    no memory. The factor is for networks of an objective that are not stored.
    """
    left, error = 4 * sum(map(math.prod, shapes)), None

    def make(next_creator, **options):
        nonlocal left, error
        left -= math.prod(options["shape"] or ())
        if left < 0:
            error = InputError(
                f"{where}: config.json should describe the network of the weights beside it."
                f" Received: {options['name']} {list(options['shape'])}, which is too large"
            )
            raise error
        return next_creator(**options)

    try:
        with tf.variable_creator_scope(make):
            yield
    except Exception:
        if error:  # Keras adds what it called
            raise error from None
        raise
