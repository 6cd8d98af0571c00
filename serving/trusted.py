"""The SavedModels that are loaded without being trusted: those that can only compute.

A SavedModel is a program, whose operations could read and write files. Ours hold only those of
`OPERATIONS`, and the ones that TensorFlow needs to restore variables, which nothing else may call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from google.protobuf.message import DecodeError
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from convbert.common import storage
from convbert.common.errors import InputError, reason

GRAPH_FILE = "saved_model.pb"
_OTHER_FORMS = ("saved_model.pbtxt", "saved_model.cpb")  # which TensorFlow may read in its place
_OF_FILES = frozenset({"SaveV2", "MergeV2Checkpoints", "RestoreV2"})
# tests/serving/test_trusted.py compares these with exports of every kind of model.
OPERATIONS = frozenset(
    """
    Abs AddV2 All Any ArgMax ArgMin Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast
    BitwiseAnd BitwiseXor BroadcastTo Cast ConcatV2 Const Cos Cumsum DecodeRaw DenseBincount
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput
    DisableCopyOnRead Einsum EnsureShape Equal Erf Erfc Exp ExpandDims FastBertNormalize
    FastWordpieceTokenizeWithOffsets Fill FloorDiv FloorMod GatherNd GatherV2 Greater
    GreaterEqual Identity IdentityN If InvertPermutation IsFinite IsNan LeftShift Less LessEqual
    Log LogSoftmax LogicalAnd LogicalNot LogicalOr LowerBound MatMul Max Maximum Mean Min
    Minimum Mul Neg NoOp NormalizeUTF8 NotEqual OneHot OnesLike Pack Pad PadV2 Placeholder Pow
    Prod RaggedGather RaggedRange RaggedTensorToTensor Range ReadVariableOp RealDiv ReduceJoin
    Relu Reshape RightShift Rsqrt ScatterNd Select SelectV2 SentencepieceOp
    SentencepieceTokenizeWithOffsetsOp Shape ShardedFilename Sigmoid Sin Size Softmax Softplus
    Split Sqrt Square Squeeze StatefulPartitionedCall StatelessIf StatelessWhile
    StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice StringJoin StringLength
    StringLower StringSplitV2 StringStrip StringToHashBucketFast Sub Substr Sum
    TFText>FastSentencepieceTokenize Tanh TensorListConcatV2 TensorListFromTensor
    TensorListGetItem TensorListReserve TensorListSetItem TensorListStack Tile TopKV2 Transpose
    UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode Unique Unpack
    UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum UpperBound VarHandleOp
    VarIsInitializedOp Where While ZerosLike
    """.split()  # noqa: SIM905  (a list would take a page)
)


def check_graph(folder: str, sha256: str | None) -> None:
    """Raises InputError for a SavedModel that could do more than compute its answers.

    Also if the file of its graph does not have the digest of its description.
    """
    path = os.path.join(folder, GRAPH_FILE)
    for name in _OTHER_FORMS:
        if storage.exists(os.path.join(folder, name)):
            raise InputError(f"{folder}: should have {GRAPH_FILE} alone. Received: {name}")
    model = SavedModel()
    try:
        with storage.open(path, "rb") as file:
            content = file.read()
        check_digest(path, content, sha256)
        model.ParseFromString(content)
    except (OSError, DecodeError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    for graph in model.meta_graphs:
        functions = {of.signature.name: of.node_def for of in graph.graph_def.library.function}
        found = {node.op for of in (graph.graph_def.node, *functions.values()) for node in of}
        if foreign := found - OPERATIONS - _OF_FILES:
            raise _untrusted(path, f"operations {', '.join(sorted(foreign))}")
        # The graph outside of functions is TensorFlow Serving's, and is not run here.
        own = {name for name, nodes in functions.items() if _of_files(nodes)}
        called = {name for nodes in functions.values() for name in _called(nodes)}
        if wrong := own & (called | {*graph.object_graph_def.concrete_functions}):
            raise _untrusted(path, f"the function {min(wrong)}, which reads or writes files")
        for asset in graph.asset_file_def:
            if os.path.basename(asset.filename) != asset.filename:
                raise _untrusted(path, f"the asset {asset.filename!r} outside of its folder")


def check_digest(path: str, content: bytes, sha256: str | None) -> None:
    """Raises InputError if content does not have a digest that a description names."""
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path}: damaged, as its digest is not that of the description")


def _untrusted(path: str, what: str) -> InputError:
    return InputError(
        f"{path} has {what}, unlike exports of this project; with `trust` (--trust) it is loaded"
    )


def _of_files(nodes: Iterable[NodeDef]) -> bool:
    return any(node.op in _OF_FILES for node in nodes)


def _called(nodes: Iterable[NodeDef]) -> Iterable[str]:
    """Yields the names of functions that nodes call, and the nodes' operations."""
    for node in nodes:
        yield node.op
        for value in node.attr.values():
            yield value.func.name
            yield from (function.name for function in value.list.func)
