"""The SavedModels that are loaded without being trusted: those that can only compute.

A SavedModel is a program, whose operations could read and write files. Ours hold only those of
`OPERATIONS`, and functions that save and restore variables in TensorFlow Serving. Those functions
are left out when a model is loaded here, so nothing in the file can call them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from convbert.common import storage
from convbert.common.errors import InputError, reason
from convbert.common.files import check_regular, write_bytes

GRAPH_FILE = "saved_model.pb"
LARGEST_GRAPH = 2**31  # bytes, of any protocol buffer
_READ_FOLDERS = ("variables", "assets")
_OF_FILES = frozenset({"SaveV2", "MergeV2Checkpoints", "RestoreV2"})
# tests/serving/test_trusted.py compares these with exports of every kind of model.
OPERATIONS = frozenset(
    """
    Abs Add AddV2 All Any ArgMax ArgMin Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast
    BitwiseAnd BitwiseXor BroadcastTo Cast ConcatV2 Const ConstrainedSequence Cos Cumsum DecodeRaw
    DenseBincount DepthwiseConv2dNative DisableCopyOnRead Einsum EnsureShape Equal Erf Erfc Exp
    ExpandDims FastBertNormalize FastWordpieceTokenizeWithOffsets Fill FloorDiv FloorMod GatherNd
    GatherV2 Greater GreaterEqual Identity IdentityN If InvertPermutation IsFinite IsNan LeftShift
    Less LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr LowerBound MatMul Max Maximum Mean
    Min Minimum Mul Neg NoOp NormalizeUTF8 NotEqual OneHot OnesLike Pack Pad PadV2 Placeholder Pow
    Prod RaggedGather RaggedRange RaggedTensorToTensor Range Rank ReadVariableOp RealDiv ReduceJoin
    Relu Reshape RightShift Roll Rsqrt ScatterNd Select SelectV2 SentencepieceOp
    SentencepieceTokenizeWithOffsetsOp Shape ShardedFilename Sigmoid Sin Size Softmax Softplus Split
    Sqrt Square Squeeze StatefulPartitionedCall StatelessIf StatelessWhile StaticRegexFullMatch
    StaticRegexReplace StopGradient StridedSlice StringJoin StringLength StringLower StringSplitV2
    StringStrip StringToHashBucketFast Sub Substr Sum TFText>FastSentencepieceTokenize Tanh
    TensorListConcatV2 TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem
    TensorListStack Tile TopKV2 Transpose UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeTranscode Unique Unpack UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentSum UpperBound VarHandleOp VarIsInitializedOp Where While ZerosLike
    """.split()  # noqa: SIM905  (a list would take a page)
)


@contextlib.contextmanager
def computing_only(folder: str, content: bytes) -> Iterator[str]:
    """Yields a temporary copy of a SavedModel that can do no more than compute its answers.

    `content` is that of its graph's file; variables and assets are links, or copies of a URL's.
    InputError for other operations than `OPERATIONS`.
    """
    content = without_files(os.path.join(folder, GRAPH_FILE), content)
    with tempfile.TemporaryDirectory() as copy:
        write_bytes(os.path.join(copy, GRAPH_FILE), content)
        for name in _READ_FOLDERS:
            source, target = os.path.join(folder, name), os.path.join(copy, name)
            if storage.is_url(folder):
                os.mkdir(target)
                for file in storage.matching(source, "*") if storage.isdir(source) else ():
                    storage.download(file, target)
            elif os.path.isdir(source):
                os.symlink(os.path.abspath(source), target)
            for file in storage.matching(target, "*") if storage.isdir(target) else ():
                check_regular(file)
        yield copy


def without_files(path: str, content: bytes) -> bytes:
    """Returns a graph without the functions that read or write files; see `computing_only`."""
    model = SavedModel()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    # Of a model of TensorFlow 1, the graph outside of functions would run when it is loaded.
    if len(model.meta_graphs) != 1 or not model.meta_graphs[0].HasField("object_graph_def"):
        raise _untrusted(path, "a graph of TensorFlow 1")
    (graph,) = model.meta_graphs
    functions = graph.graph_def.library.function
    found = {node.op for of in functions for node in of.node_def}
    found |= {node.op for node in graph.graph_def.node}
    if foreign := found - OPERATIONS - _OF_FILES:
        raise _untrusted(path, f"operations {', '.join(sorted(foreign))}")
    kept = [of for of in functions if _OF_FILES.isdisjoint(node.op for node in of.node_def)]
    del functions[:]
    functions.extend(kept)
    for asset in graph.asset_file_def:
        if os.path.basename(asset.filename) != asset.filename:
            raise _untrusted(path, f"the asset {asset.filename!r} outside of its folder")
    return model.SerializeToString()


def _untrusted(path: str, what: str) -> InputError:
    return InputError(
        f"{path} has {what}, unlike exports of this project; with `trust` (--trust) it is loaded"
    )
