# SPDX-License-Identifier: Apache-2.0
"""The two networks of the example training, ResNet-50 and a plain perceptron, and their loss.

ResNet-50 follows He et al., "Deep Residual Learning for Image Recognition" (2015). Pictures of 32x32 have no pixels to
give away: for them the first layer is that of the paper's CIFAR-10 experiments, a 3x3 convolution of stride 1 and no
pooling. Large ones get the 7x7 convolution and the pooling that make a quarter of height and width.
"""

from __future__ import annotations

import mindspore
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal

EXPANSION = 4
# From this height or width on pictures are large.
LARGE = 64


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, scale: str = "ones") -> list[nn.Cell]:
    return [
        nn.Conv2d(inputs, outputs, size, stride=stride, pad_mode="pad", padding=size // 2, has_bias=False),
        nn.BatchNorm2d(outputs, gamma_init=scale),
    ]


class Bottleneck(nn.Cell):
    """A 1x1, a 3x3 and a 1x1 convolution and a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        """Make the block; `stride` 2 halves height and width."""
        super().__init__()
        outputs = width * EXPANSION
        self.convolutions = nn.SequentialCell(
            *_convolution(inputs, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            # Each block begins as its shortcut alone: sixteen of them would otherwise add up to a first loss far off.
            *_convolution(width, outputs, 1, scale="zeros"),
        )
        self.projects = stride != 1 or inputs != outputs
        self.shortcut = nn.SequentialCell(*_convolution(inputs, outputs, 1, stride)) if self.projects else None
        self.relu = nn.ReLU()

    def construct(self, pictures: Tensor) -> Tensor:
        """Return the activations of the block."""
        shortcut = self.shortcut(pictures) if self.projects else pictures
        return self.relu(self.convolutions(pictures) + shortcut)


class ResNet50(nn.Cell):
    """ResNet-50 for pictures of `channels` x `pixels` x `pixels`, from 8 on."""

    def __init__(self, channels: int, pixels: int, classes: int) -> None:
        """Make the network: 3, 4, 6 and 3 blocks of growing width."""
        super().__init__()
        if pixels < LARGE:
            layers = [*_convolution(channels, 64, 3), nn.ReLU()]
        else:
            pooling = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")
            layers = [*_convolution(channels, 64, 7, stride=2), nn.ReLU(), pooling]
        inputs = 64
        for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3))):
            for block in range(blocks):
                layers.append(Bottleneck(inputs, width, stride=2 if block == 0 and stage else 1))
                inputs = width * EXPANSION
        self.layers = nn.SequentialCell(*layers)
        self.mean = ops.ReduceMean(keep_dims=False)
        # So small that no class is preferred at first: the first loss is near ln(classes). Defaults differ by release.
        self.classify = nn.Dense(inputs, classes, weight_init=Normal(0.001), bias_init="zeros")

    def construct(self, pictures: Tensor) -> Tensor:
        """Return a value for each class."""
        return self.classify(self.mean(self.layers(pictures), (2, 3)))


def perceptron(pixels: int, classes: int, hidden: int = 256) -> nn.Cell:
    """Return a network of two hidden layers for pictures of `pixels` values: trains in seconds on a CPU."""
    return nn.SequentialCell(
        nn.Flatten(),
        nn.Dense(pixels, hidden),
        nn.ReLU(),
        nn.Dense(hidden, hidden),
        nn.ReLU(),
        nn.Dense(hidden, classes),
    )


class CrossEntropy(nn.Cell):
    """Mean softmax cross entropy, written out of elementary operations, among which auto parallel can divide it."""

    def __init__(self, classes: int) -> None:
        """Make the loss."""
        super().__init__()
        self.one_hot, self.classes = ops.OneHot(), classes
        self.on, self.off = Tensor(1.0, mindspore.float32), Tensor(0.0, mindspore.float32)
        self.highest, self.sum = ops.ReduceMax(keep_dims=True), ops.ReduceSum(keep_dims=True)
        self.exp, self.log, self.mean = ops.Exp(), ops.Log(), ops.ReduceMean(keep_dims=False)

    def construct(self, values: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a value for each class, and the numbers of the right ones."""
        # Without the highest one exp() would overflow; what is taken off cancels out.
        values = values - self.highest(values, 1)
        logarithms = values - self.log(self.sum(self.exp(values), 1))
        right = self.one_hot(labels, self.classes, self.on, self.off)
        return self.mean(-self.sum(logarithms * right, 1))
