# SPDX-License-Identifier: Apache-2.0
"""The two networks of the example training: ResNet-18 for small pictures and a plain perceptron.

ResNet-18 follows He et al., "Deep Residual Learning for Image Recognition" (2015), with the first layer that their
CIFAR-10 experiments use: a 3x3 convolution of stride 1 and no pooling, as 32x32 pictures have no pixels to give away.
"""

from __future__ import annotations

import torch
from torch import nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Make the block; `stride` 2 halves height and width."""
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the activations of the block."""
        return torch.relu(self.convolutions(pictures) + self.shortcut(pictures))


def resnet18(channels: int, classes: int) -> nn.Module:
    """Return ResNet-18 for pictures of `channels` x 32 x 32 (other sizes from 8 x 8 on work, too)."""
    widths = (64, 128, 256, 512)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(inplace=True),
    ]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        layers += [ResidualBlock(inputs, width, stride=1 if stage == 0 else 2), ResidualBlock(width, width, stride=1)]
        inputs = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


def perceptron(pixels: int, classes: int, hidden: int = 256) -> nn.Module:
    """Return a network of two hidden layers for pictures of `pixels` values: trains in seconds on a CPU."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, classes),
    )
