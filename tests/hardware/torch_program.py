"""PyTorch on every device, a step at a time: each ends with a line, and the next begins when one arrives."""

from __future__ import annotations

import torch


def pause(done: str) -> None:
    print(done, flush=True)
    input()


def main() -> None:
    """Tensors that stay, copies between all devices, and whether they are right."""
    devices = [torch.device("cuda", ordinal) for ordinal in range(torch.cuda.device_count())]
    tensors = [torch.arange(1 << 20, device=device) + device.index for device in devices]
    pause(f"allocated by {torch.cuda.get_allocator_backend()}")
    copies = [(tensor, tensor.to(device)) for tensor in tensors for device in devices]
    for device in devices:
        torch.cuda.synchronize(device)
    pause("copied")
    right = all(torch.equal(tensor.cpu(), copy.cpu()) for tensor, copy in copies)
    print("all copies are right" if right else "a copy is wrong", flush=True)
    raise SystemExit(not right)


if __name__ == "__main__":
    main()
