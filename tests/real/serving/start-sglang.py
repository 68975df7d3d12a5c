# SPDX-License-Identifier: MIT
"""start-sglang.py: starts SGLang's engine as its server does, with made-up weights, until it has made its cache, and ends.

start-sglang.py FOLDER MODEL OPTIONS: writes the model's sizes into FOLDER; OPTIONS are SGLang's server arguments, as JSON.
The cache is made before graphs are captured, and the share of the memory that it may have is chosen before they are left out.
As a rank of a job (RANK), it starts the scheduler of that rank alone, as on the nodes of a server where each has one GPU.
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import models  # noqa: E402


def main():
    folder, model, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    models.write(model, folder)
    import sglang
    from sglang.srt.server_args import ServerArgs

    options.update(model_path=folder, load_format="dummy", skip_tokenizer_init=True)
    chosen = ServerArgs(**options)
    if hasattr(chosen, "resolve_once"):  # 0.5.2 has chosen by now
        chosen.resolve_once()
    if "RANK" in os.environ:
        options.update(nnodes=int(os.environ["WORLD_SIZE"]), node_rank=int(os.environ["RANK"]),
                       dist_init_addr=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
    resolved = chosen.resolved_dict() if hasattr(chosen, "resolved_dict") else vars(chosen)
    chosen = {name: resolved[name] for name in ("mem_fraction_static", "page_size", "chunked_prefill_size")}
    print("chosen", chosen, flush=True)
    # Triton's kernels are compiled when they run; those of FlashInfer and of other backends before.
    engine = sglang.Engine(**{**options, **chosen, "attention_backend": "triton", "sampling_backend": "pytorch",
                              "disable_cuda_graph": True, "log_level": "info"})
    print("started", flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
