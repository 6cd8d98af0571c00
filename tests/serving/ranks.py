"""Asks every signature of SavedModels with tensors of every rank, in a process that may crash.

    python -m tests.serving.ranks function,session SAVED_MODEL...

Prints JSON: [folder, signature, "function" or "session", rank, outputs], where the outputs are the
lengths of their first axes, or the message of an InvalidArgumentError.
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations are in the graphs)
from tensorflow.core.protobuf import config_pb2


def say(asked, ask):
    """Prints what comes of a request."""
    try:
        found = sorted({len(value) for value in ask()})
    except tf.errors.InvalidArgumentError as error:
        found = str(error.message)
    print(json.dumps([*asked, found]), flush=True)


def tensors(dtypes, rank):
    """An input of each dtype with two of everything along each axis."""
    return {
        name: np.full([2] * rank, b"a text" if dtype == tf.string else 1, dtype.as_numpy_dtype)
        for name, dtype in dtypes.items()
    }


def by_functions(folder):
    """As Python asks."""
    for name, function in tf.saved_model.load(folder).signatures.items():
        specs = function.structured_input_signature[1]
        for rank in range(4):
            inputs = tensors({key: spec.dtype for key, spec in specs.items()}, rank)
            inputs = {key: tf.constant(value) for key, value in inputs.items()}
            say(
                [folder, name, "function", rank],
                lambda function=function, inputs=inputs: [
                    v.numpy() for v in function(**inputs).values()
                ],
            )


def by_session(folder):
    """As TensorFlow Serving asks: a session that is fed what came in the request."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        for name, signature in model.signature_def.items():
            if not signature.inputs:
                continue
            names = [info.name for info in signature.inputs.values()]
            options = config_pb2.CallableOptions()
            options.feed.extend(names)
            options.fetch.extend(info.name for info in signature.outputs.values())
            # Unlike `run`, it does not compare the values with the declared shapes.
            ask = session._make_callable_from_options(options)
            dtypes = {name: session.graph.get_tensor_by_name(name).dtype for name in names}
            for rank in range(4):
                values = tensors(dtypes, rank).values()
                say([folder, name, "session", rank], lambda ask=ask, values=values: ask(*values))


if __name__ == "__main__":
    ways = {"function": by_functions, "session": by_session}
    for way in sys.argv[1].split(","):
        for saved_model in sys.argv[2:]:
            ways[way](saved_model)
