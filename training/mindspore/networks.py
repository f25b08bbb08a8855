# SPDX-License-Identifier: Apache-2.0
"""The two networks of the example training: ResNet-50 for small pictures and a plain perceptron.

ResNet-50 follows He et al., "Deep Residual Learning for Image Recognition" (2015), with the first layer that their
CIFAR-10 experiments use: a 3x3 convolution of stride 1 and no pooling, as 32x32 pictures have no pixels to give away.
"""

from __future__ import annotations

from mindspore import Tensor, nn, ops

EXPANSION = 4


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Cell]:
    return [
        nn.Conv2d(inputs, outputs, size, stride=stride, pad_mode="pad", padding=size // 2, has_bias=False),
        nn.BatchNorm2d(outputs),
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
            *_convolution(width, outputs, 1),
        )
        self.projects = stride != 1 or inputs != outputs
        self.shortcut = nn.SequentialCell(*_convolution(inputs, outputs, 1, stride)) if self.projects else None
        self.relu = nn.ReLU()

    def construct(self, pictures: Tensor) -> Tensor:
        """Return the activations of the block."""
        shortcut = self.shortcut(pictures) if self.projects else pictures
        return self.relu(self.convolutions(pictures) + shortcut)


class ResNet50(nn.Cell):
    """ResNet-50 for pictures of `channels` x 32 x 32 (other sizes from 8 x 8 on work, too)."""

    def __init__(self, channels: int, classes: int) -> None:
        """Make the network: 3, 4, 6 and 3 blocks of growing width."""
        super().__init__()
        layers = [*_convolution(channels, 64, 3), nn.ReLU()]
        inputs = 64
        for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3))):
            for block in range(blocks):
                layers.append(Bottleneck(inputs, width, stride=2 if block == 0 and stage else 1))
                inputs = width * EXPANSION
        self.layers = nn.SequentialCell(*layers)
        self.mean = ops.ReduceMean(keep_dims=False)
        self.classify = nn.Dense(inputs, classes)

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
