#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A service that answers requests, and keeps memory of clients that went away: docs/tutorials/growing-service.md.

    service.py [--seconds S] [--fixed]

--fixed frees that memory too."""
import argparse
import random
import time

from gpu import Tensor, start


class Sessions:
    """The state of each client between its requests."""

    def __init__(self, fixed):
        self.states, self.fixed = {}, fixed

    def open(self, client):
        self.states[client] = Tensor(2)

    def close(self, client):
        self.states.pop(client)

    def lost(self, client):
        if self.fixed:
            self.close(client)


def answer(request):
    """Memory that lives for one request."""
    prompt, result = Tensor(1 + request % 3), Tensor(4)
    time.sleep(0.002)
    return prompt, result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    start()
    random.seed(1)
    model = [Tensor(64) for _ in range(4)]
    sessions = Sessions(options.fixed)
    end, number = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        number += 1
        sessions.open(number)
        answer(number)
        if random.random() < 0.05:  # the connection broke
            sessions.lost(number)
        else:
            sessions.close(number)
        time.sleep(0.005)
    print(f"answered {number} requests")
    del model


if __name__ == "__main__":
    main()
