"""An encoder's layers as a loop, so that a compiled program holds one layer and not all of them.

That is for TPUs, whose compilers take minutes, and hundreds of megabytes of code, for twelve
layers written out. On a GPU, which starts kernels to cut and join what a loop keeps, layers are
written out. Values and gradients are those of the layers one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from model.kernels import built_for_tpu
from model.layer_weights import layer_weights, substituted


def runs_as_loop(layers: Sequence[tf_keras.layers.Layer], hidden: tf.Tensor) -> bool:
    """Whether layers that train on `hidden`, [B, S, D], are to be a loop."""
    known = hidden.shape.is_fully_defined() and all(layer.built for layer in layers)
    return known and built_for_tpu() and not tf.executing_eagerly()


def layers_in_loop(
    layers: Sequence[tf_keras.layers.Layer],
    hidden: tf.Tensor,
    bias: tf.Tensor,
    padding_mask: tf.Tensor | None,
    seeds: Sequence[tf.Tensor],
    rematerialize: bool = False,
) -> tuple[tf.Tensor, ...]:
    """The hidden states after every one of L layers in training, [B, S, D].

    Args:
        layers: of the same structure, built; the same one several times if it is shared.
        hidden: what enters the first, [B, S, D], of a static shape.
        bias: see `EncoderLayer`; receives no gradient, as the next.
        padding_mask: see `EncoderLayer`.
        seeds: of dropout, three a layer.
        rematerialize: whether gradients compute a layer again from what enters it; otherwise all
            that they read is kept.
    """
    weights = [tf.stack(values) for values in zip(*(layer_weights(layer) for layer in layers))]
    if padding_mask is None:
        padding_mask = tf.ones([1, 1, 1], hidden.dtype)  # lets padding in
    constants, seeds = (bias, padding_mask), tf.reshape(tf.stack(seeds), [len(layers), 3, -1])
    traced = _traced(layers[0], hidden, constants, seeds[0], [w[0] for w in weights], rematerialize)
    return tuple(tf.unstack(_loop(traced, hidden, constants, seeds, weights)))


# Operations without inputs, of shapes, and elementwise ones that become part of what reads them.
CHEAP = {"Const", "Placeholder", "Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose"}
CHEAP |= {"Split", "SplitV", "ConcatV2", "Pack", "Unpack", "Bitcast", "Cast", "Mul"}


class _Traced(NamedTuple):
    """A layer and its gradient in one graph of tensors alone.

    Attributes:
        graph: where they are.
        given: names of (hidden, bias, padding_mask, seeds, *weights).
        output: name of the layer's output.
        upstream: name of the gradient of the output.
        gradients: names of the gradients of `hidden` and of the weights.
        kept: what lies on the way to the output, and the gradients read.
    """

    graph: tf.compat.v1.GraphDef
    given: list[str]
    output: str
    upstream: str
    gradients: list[str]
    kept: list[tf.Tensor]

    def forward(self, *given):
        """The output, and the values of `kept`."""
        wanted = [self.output, *(tensor.name for tensor in self.kept)]
        return _insert(self.graph, dict(zip(self.given, given, strict=True)), wanted)

    def backward(self, upstream, given, kept):
        """The gradients. Without `kept` values they compute the layer again."""
        known = dict(zip(self.given, given, strict=True)) | {self.upstream: upstream}
        known |= {tensor.name: value for tensor, value in zip(self.kept, kept, strict=True)}
        return _insert(self.graph, known, self.gradients)


def _loop(traced: _Traced, hidden, constants, seeds, weights):
    L = seeds.shape[0]

    def at(i, stacks):
        return [stack[i] for stack in stacks]

    def run(body, carried, like, backwards=False):
        """Calls body(i, carried) L times. It returns what is carried on, and what is stacked, of
        the shapes and dtypes of `like`."""
        arrays = [tf.TensorArray(s.dtype, L, element_shape=s.shape) for s in like]

        def step(number, carried, arrays):
            i = L - 1 - number if backwards else number
            carried, kept = body(i, carried)
            return number + 1, carried, [a.write(i, k) for a, k in zip(arrays, kept, strict=True)]

        _, carried, arrays = tf.while_loop(
            lambda number, *_: number < L,
            step,
            (tf.constant(0), carried, arrays),
            parallel_iterations=1,
            maximum_iterations=L,
        )
        return carried, [array.stack() for array in arrays]

    @tf.custom_gradient
    def loop(hidden, *weights):
        def forward(i, hidden):
            output, *kept = traced.forward(hidden, *constants, seeds[i], *at(i, weights))
            return output, [output, *kept]

        _, (outputs, *kept) = run(forward, hidden, [hidden, *traced.kept])
        inputs = tf.concat([hidden[None], outputs[:-1]], 0)

        def gradient(upstream):
            def backward(i, to_output):
                given = [inputs[i], *constants, seeds[i], *at(i, weights)]
                to_output += upstream[i]
                to_input, *to_weights = traced.backward(to_output, given, at(i, kept))
                return to_input, to_weights

            like = [weight[0] for weight in weights]
            to_hidden, to_weights = run(backward, tf.zeros_like(hidden), like, backwards=True)
            return [to_hidden, *to_weights]

        return outputs, gradient

    return loop(hidden, *weights)


def _traced(layer, hidden, constants, seeds, weights, rematerialize) -> _Traced:
    """Traces a layer with its gradient."""
    boundary = []

    @tf.function(autograph=False)
    def both(upstream, hidden, bias, padding_mask, seeds, *weights):
        with substituted(layer, weights):
            output, *_ = layer(hidden, bias, padding_mask, training=True, seeds=tf.unstack(seeds))
        boundary.extend(output.graph.get_operations())
        return output, tf.gradients(output, [hidden, *weights], upstream)

    given = [hidden, hidden, *constants, seeds, *weights]
    function = both.get_concrete_function(*(tf.TensorSpec(t.shape, t.dtype) for t in given))
    graph = function.graph
    upstream, *given = (tensor.name for tensor in graph.inputs)
    output, *gradients = (tensor.name for tensor in graph.outputs)
    kept = [] if rematerialize else _read_by(graph.outputs[1:], set(boundary))
    return _Traced(graph.as_graph_def(), given, output, upstream, gradients, kept)


def _insert(graph, known, wanted) -> list[tf.Tensor]:
    """Inserts what computes the `wanted` into the present graph. `known` is {name: value}."""
    nodes = {node.name: node for node in graph.node}
    cut, read = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions), set()
    waiting, seen = [name.split(":")[0] for name in wanted], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = cut.node.add()
        node.CopyFrom(nodes[name])
        node.ClearField("input")
        node.attr.pop("_class", None)  # colocation with nodes that may not be here
        node.input.extend(i for i in nodes[name].input if i[0] != "^")  # nothing here has effects
        for tensor in node.input:
            tensor = tensor if ":" in tensor else f"{tensor}:0"
            if tensor in known:
                read.add(tensor)
            else:
                waiting.append(tensor.split(":")[0])
    known = {name: tf.identity(known[name]) for name in read}  # captured by this graph
    return tf.graph_util.import_graph_def(cut, known, wanted, name="layer")


def _read_by(gradients, forward) -> list[tf.Tensor]:
    """What `gradients` read of the operations in `forward`, short of what is cheap to repeat.

    Those stand in other operations' passes over memory; what they are made of is kept instead.
    """
    kept, seen, waiting = [], set(), list(gradients)
    while waiting:
        tensor = waiting.pop()
        if tensor.name in seen:
            continue
        seen.add(tensor.name)
        if tensor.op.type == "IdentityN":  # of a custom gradient: one tensor each
            waiting.append(tensor.op.inputs[tensor.value_index])
        elif tensor.op not in forward or _is_cheap(tensor.op):
            waiting.extend(tensor.op.inputs)
        else:
            kept.append(tensor)
    return kept


def _is_cheap(operation):
    if operation.type.endswith("PartitionedCall"):
        return (
            re.search(r"_(fused_gelu|fused_gelu_new|drop)_\d+$", operation.get_attr("f").name)
            is not None
        )
    return operation.type in CHEAP
