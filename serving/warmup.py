"""Requests that TensorFlow Serving makes of a model when it loads it.

https://www.tensorflow.org/tfx/serving/saved_model_warmup: the file is a TFRecord file of
`PredictionLog` messages. Their package is large and optional, the part of them that is needed here
small, so they are written by their field numbers (tensorflow_serving/apis/prediction_log.proto,
predict.proto and model.proto).
"""

from __future__ import annotations

import tensorflow as tf

from data.records import delimited
from data.vocabulary import Vocabulary
from signatures.parts import FEATURES
from signatures.signature import Signature

WARMUP_FILE = "tf_serving_warmup_requests"  # in assets.extra
_TEXT = "A short text with a {mask} in it."
_PREDICT_LOG, _REQUEST = 6, 1  # of PredictionLog; of PredictLog
_MODEL_SPEC, _INPUTS = 1, 2  # of PredictRequest
_SIGNATURE_NAME = 3  # of ModelSpec
_KEY, _VALUE = 1, 2  # of an item of a map


def write_requests(path: str, asked: dict[str, Signature], vocabulary: Vocabulary) -> None:
    """Writes one small request for each signature."""
    with tf.io.TFRecordWriter(path) as file:
        for name, signature in asked.items():
            file.write(_message(name, sample_inputs(signature, vocabulary)))


def sample_inputs(signature: Signature, vocabulary: Vocabulary) -> dict[str, tf.Tensor]:
    """A batch of one: a text, a list of its words, or no more than [CLS] [SEP]."""
    ids = ([[vocabulary.cls_id, vocabulary.sep_id]], [[1, 1]], [[0, 0]])
    found = {name: tf.constant(value, tf.int32) for name, value in zip(FEATURES, ids)}
    text = _TEXT.format(mask=vocabulary.tokens[vocabulary.mask_id])
    for name, item in signature.inputs.items():
        if item.default is not None:
            found[name] = tf.constant([item.default], item.dtype)
        elif name not in found:
            found[name] = tf.constant([text] if len(item.axes) == 1 else [text.split()])
    return {name: found[name] for name in signature.inputs}


def _message(signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """A `PredictionLog` of a `PredictRequest`."""
    request = _field(_MODEL_SPEC, _field(_SIGNATURE_NAME, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    return delimited(number, len(content)) + content
