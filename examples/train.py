#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training job whose memory grows with its batch: docs/tutorials/out-of-memory.md.

    train.py [--batch N] [--steps N] [--checkpoint]

--checkpoint keeps the activations of every fourth layer and computes the others again in the backward pass."""
import argparse
import time

from gpu import Tensor, mark, start

LAYERS = 16


class Layer:
    def __init__(self):
        self.weights = Tensor(16)


class Adam:
    """Two moments for each weight."""

    def __init__(self, layers):
        self.moments = [Tensor(32) for _ in layers]


def forward(layers, batch, checkpoint):
    """The activations that the backward pass needs."""
    kept = []
    for number, _ in enumerate(layers):
        activation = Tensor(2 * batch)
        if not checkpoint or number % 4 == 0:
            kept.append(activation)
    return kept


def backward(layers, activations, batch):
    for _ in layers:
        gradient = Tensor(16)
        if activations:
            activations.pop()
        else:
            activation = Tensor(2 * batch)  # computed again
            del activation
        del gradient


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", action="store_true")
    options = parser.parse_args()
    start()
    layers = [Layer() for _ in range(LAYERS)]
    optimizer = Adam(layers)
    for _ in range(options.steps):
        mark("step")
        data = Tensor(options.batch)
        activations = forward(layers, options.batch, options.checkpoint)
        backward(layers, activations, options.batch)
        time.sleep(0.01)
        del data
    print(f"trained {options.steps} steps with a batch of {options.batch}")
    del optimizer


if __name__ == "__main__":
    main()
