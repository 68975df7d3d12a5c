# SPDX-License-Identifier: MIT
# Many threads allocate and free; the numbers agree whenever all of them stand still.
import random
import threading

import torch
from common import done, step

torch.empty(1, device="cuda")
rounds, count = 4, 6
gate = threading.Barrier(count + 1)


def work(seed):
    choose = random.Random(seed)
    held = []
    stream = torch.cuda.Stream()
    for _ in range(rounds):
        for _ in range(60):
            if held and choose.random() < 0.45:
                held.pop(choose.randrange(len(held)))
            else:
                with torch.cuda.stream(stream if choose.random() < 0.5 else torch.cuda.default_stream()):
                    held.append(torch.empty(choose.randrange(1, 4 << 20), dtype=torch.uint8, device="cuda"))
            if choose.random() < 0.01:
                torch.cuda.empty_cache()
        gate.wait()
        gate.wait()


threads = [threading.Thread(target=work, args=(seed,)) for seed in range(count)]
for thread in threads:
    thread.start()
for at in range(rounds):
    gate.wait()
    step(f"round {at}")
    gate.wait()
for thread in threads:
    thread.join()
step("after the threads")
torch.cuda.empty_cache()
step("an empty cache")
done()
