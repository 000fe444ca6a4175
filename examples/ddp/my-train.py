"""Train a small model on all replicas of a job, on CPU, and show that they found each other and exchanged data.

Run it with TorchX's `dist.torchrun`, or `dist.ddp` of 0.7.0; nothing here knows about Kubernetes.
Works with PyTorch 1.13 and later.
"""

import os
import socket
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    hosts = [None] * world_size
    dist.all_gather_object(hosts, socket.gethostname())
    found = f"rank 0 is on {hosts[0]}, reached as {os.environ['MASTER_ADDR']}"
    say(rank, f"world size {world_size}, on {socket.gethostname()}; {found}")

    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    expected = world_size * (world_size + 1) / 2
    say(rank, f"all_reduce of {rank + 1} with the others: {total.item():g} (expected {expected:g})")

    torch.manual_seed(0)  # the same model everywhere,
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    torch.manual_seed(rank)  # on data of its own
    inputs = torch.randn(256, 4)
    targets = inputs.sum(dim=1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(int(os.environ.get("EPOCHS", "5"))):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()  # averages the gradients over all replicas
        optimizer.step()
        say(rank, f"epoch {epoch}: loss {loss.item():.4f}")
        time.sleep(float(os.environ.get("EPOCH_PAUSE_S", "0.5")))

    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(everyones, mine)
    same = all(torch.equal(other, mine) for other in everyones)
    say(rank, f"after training all {world_size} ranks on {len(set(hosts))} hosts hold the same weights: {same}")
    dist.barrier()
    dist.destroy_process_group()
    if total.item() != expected or not same:
        raise SystemExit(3)


def say(rank: int, text: str) -> None:
    print(f"rank {rank}: {text}", flush=True)


if __name__ == "__main__":
    main()
