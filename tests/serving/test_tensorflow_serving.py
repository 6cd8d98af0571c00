"""The documentation's files and programs for TensorFlow's model server, read by its protocol. A
server of this test answers in place of TensorFlow's."""

import concurrent.futures
import json
import pathlib
import re
import shutil

import grpc
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

import convbert

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "serving.md"
SECTION = DOCUMENT.read_text("utf-8").partition("## TensorFlow Serving")[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


def test_the_configuration_is_the_servers():
    lines = SECTION[SECTION.index("    model_config_list") :].split("\n\n")[0]
    config = text_format.Parse(lines, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, dict(model.version_labels)) == ("reviews", {"stable": 1, "canary": 2})
    assert [*model.model_version_policy.specific.versions] == [1, 2]


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers requests as the server does, by a SavedModel's signatures."""

    def __init__(self, folder):
        self.signatures = tf.saved_model.load(str(folder)).signatures

    def Predict(self, request, context):
        assert request.model_spec.name == "reviews"
        inputs = {n: tf.constant(tf.make_ndarray(of)) for n, of in request.inputs.items()}
        outputs = self.signatures[request.model_spec.signature_name](**inputs)
        answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
        for name, value in outputs.items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return answer


@pytest.mark.slow  # needs half a minute: exports a model and loads it twice
def test_warm_up_records_and_requests_are_answered(saved, tmp_path, monkeypatch):
    folder = tmp_path / "models" / "reviews" / "1"
    shutil.copytree(saved["classification"], folder)
    monkeypatch.chdir(tmp_path)
    warm_up, client = PROGRAMS
    known = {}
    exec(warm_up, known)
    service = Service(folder)
    for record in tf.data.TFRecordDataset(str(folder / "assets.extra/tf_serving_warmup_requests")):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        answer = service.Predict(request, None)
        assert answer.outputs["label"].tensor_shape == request.inputs["text"].tensor_shape
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        exec(client.replace("8500", str(port)), known)
    finally:
        server.stop(None)
    expected = convbert.load(folder).predict(["A fine film.", "Three hours of rain."])
    assert [label.decode() for label in known["labels"]] == expected.label.tolist()


@pytest.mark.slow  # needs a minute: three exports
def test_bodies_of_rest_have_the_inputs_and_outputs_of_signatures(saved):
    blocks = re.findall(r"(?<=\n\n)(?:    .*\n?)+", SECTION)
    rows, answers, words, columns = (json.loads(b) for b in blocks if b.lstrip().startswith("{"))
    for kind, body in (("classification", rows), ("tagging", words), ("pretraining", columns)):
        signature = saved.loaded(kind).signatures[body.get("signature_name", "serving_default")]
        instances = body.get("instances", [])
        inputs = body.get("inputs") or {n: [row[n] for row in instances] for n in instances[0]}
        outputs = signature(**{name: tf.constant(values) for name, values in inputs.items()})
        if kind == "classification":
            for answer in answers["predictions"]:
                assert answer.keys() == outputs.keys()
