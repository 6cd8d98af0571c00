"""TPUStrategy without a TPU: graphs are built as for one, on CPU devices, and cannot be run.

TensorFlow builds the graph of `TPUStrategy.run` without a TPU's help: only its runtime replaces
what the replicas run by a compiled program. So a graph shows what a TPU's compiler would be given.
"""

from __future__ import annotations

import collections
import functools
import re

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

_Device = collections.namedtuple("_Device", "name device_type")
_TASK = "/job:localhost/replica:0/task:0"
# What TPUStrategy itself puts around and between the replicas' operations.
TPU_OPERATIONS = {"TPUReplicateMetadata", "TPUReplicatedInput", "TPUReplicatedOutput"}
TPU_OPERATIONS |= {"TPUCompilationResult", "CrossReplicaSum"}
# Operations that make graphs, which compilers take apart.
GRAPH_OPERATIONS = {"Placeholder", "NoOp", "_Arg", "_Retval"}
# Compilers work out its results, lists of axes, from shapes.
OF_SHAPES = {"BroadcastGradientArgs"}
_STRINGS = re.compile("String|Regex|Print|PyFunc|Table|Decode|Summary|Assert")


class _Resolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    def __init__(self, cores):
        super().__init__("local")
        self._cores = cores

    def get_tpu_system_metadata(self):
        devices = [_Device(f"{_TASK}/device:TPU:{i}", "TPU") for i in range(self._cores)]
        return TPUSystemMetadata(self._cores, 1, self._cores, None, tuple(devices))


def tracing_strategy() -> tf.distribute.TPUStrategy:
    """TPUStrategy of two cores of one host, whose variables are on the two devices of the CPU."""
    strategy = tf.distribute.TPUStrategy(_Resolver(2))
    devices = [f"{_TASK}/device:CPU:{i}" for i in range(2)]
    extended = strategy.extended
    extended._tpu_devices = np.array([[device] for device in devices], dtype=object)
    extended._host_device = devices[0]
    extended._device_input_worker_devices = collections.OrderedDict({devices[0]: devices})
    extended._host_input_worker_devices = collections.OrderedDict({devices[0]: devices[:1] * 2})
    return strategy


def operations(graph: tf.Graph) -> tuple[collections.Counter, collections.Counter]:
    """The operations of a graph: those of TPU replicas, and those of the host, by number."""
    definition = graph.as_graph_def()
    functions = {function.signature.name: function for function in definition.library.function}
    device, host = collections.Counter(), collections.Counter()
    seen = set()

    def visit(nodes, replicated):
        for node in nodes:
            inside = replicated or "_tpu_replicate" in node.attr
            (device if inside else host)[node.op] += 1
            for attribute in node.attr.values():
                for called in [attribute.func, *attribute.list.func]:
                    if called.name in functions and (called.name, inside) not in seen:
                        seen.add((called.name, inside))
                        visit(functions[called.name].node_def, inside)

    visit(definition.node, False)
    return device, host


@functools.cache
def compiled_operations() -> set[str]:
    """Names of operations that XLA compiles for a CPU, all of which it compiles for a TPU, too."""
    tf.function(tf.identity, jit_compile=True)(0.0)  # TensorFlow registers them when it compiles
    registered = kernels.get_all_registered_kernels().kernel
    return {kernel.op for kernel in registered if kernel.device_type == "XLA_CPU_JIT"}


def unsupported(graph: tf.Graph) -> set[str]:
    """What a TPU cannot run: operations of its replicas, those of Python or strings around them,
    and those of replicas whose results have no static shape.

    Raises:
        AssertionError: there are no replicas in the graph.
    """
    device, host = operations(graph)
    assert device, "nothing here runs on a TPU"
    allowed = compiled_operations() | TPU_OPERATIONS | GRAPH_OPERATIONS
    wrong = ({*device} - allowed) | {name for name in host if _STRINGS.search(name)}
    for operation in graph.get_operations():
        if "_tpu_replicate" in operation.node_def.attr and operation.type not in OF_SHAPES:
            tensors = (t for t in operation.outputs if t.dtype not in (tf.resource, tf.variant))
            if not all(tensor.shape.is_fully_defined() for tensor in tensors):
                wrong.add(f"{operation.type} of a shape that is not static")
    return wrong
