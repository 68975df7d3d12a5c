# SPDX-License-Identifier: MIT
"""Apex's Adam: two moments of each weight from its first step on, and no other memory that stays."""
import torch


class FusedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **options):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=True))
        # The flag that its kernels set.
        self._dummy_overflow_buf = torch.zeros(1, dtype=torch.int, device="cuda")

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for weight in group["params"]:
                if weight.grad is not None and not self.state[weight]:
                    self.state[weight].update(exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))


class FusedSGD(torch.optim.SGD):
    pass
