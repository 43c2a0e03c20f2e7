"""Measures how fast PyTorch brings ordinary memory to the device, for `pinpool bench staged --pytorch FILE`.

    python3 staged.py FILE

Needs PyTorch with CUDA and a GPU, no compiler. The memory was touched, and PyTorch's allocator has the
device memory already, before anything is timed. What pin_memory() pinned is given back before it pins
again: otherwise PyTorch would use it a second time, and pinning is what a program pays for each new tensor.
"""

import json
import time

from loader import fail, named_file, on_cuda
from startup import available_bytes, forget

SIZE = 1 << 30
# Repeats of one way: so many, or as many as begin within so many seconds.
REPEATS = 5
REPEATS_SECONDS = 8.0


def to(source):
    return source.to("cuda")


def pin_memory(source):
    return source.pin_memory().to("cuda", non_blocking=True)


def milliseconds(torch, copy, source):
    torch.cuda.synchronize()
    started = time.perf_counter()
    copied = copy(source)
    torch.cuda.synchronize()
    took = (time.perf_counter() - started) * 1e3
    if not bool((copied[:: 1 << 20] == 1).all()) or copied.numel() != source.numel():
        fail(f"{copy.__name__}: what arrived is not what was sent")
    return took


def measured(torch, copy, source):
    """Milliseconds of each repeat, after one that does not count, and whether each of them pinned anew."""
    milliseconds(torch, copy, source)
    times, pins_anew = [], forget(torch)
    started = time.perf_counter()
    while len(times) < REPEATS and time.perf_counter() - started < REPEATS_SECONDS:
        times.append(round(milliseconds(torch, copy, source), 3))
        forget(torch)
    return times, pins_anew


def first(torch, copy, source):
    """Milliseconds of the first call, where what it pins cannot be given back."""
    return [round(milliseconds(torch, copy, source), 3)]


def main():
    target, torch = named_file(), on_cuda()
    if 3 * SIZE > available_bytes():
        fail(f"less memory than three times {SIZE} bytes is available")
    source = torch.ones(SIZE, dtype=torch.uint8)
    times_to, pins_anew = measured(torch, to, source)
    if pins_anew:
        times_pinned, _ = measured(torch, pin_memory, source)
    else:
        times_pinned = first(torch, pin_memory, source)
    figures = {
        "pytorch_version": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "pins_anew": pins_anew,
        "rows": [
            {"way": "to", "bytes": SIZE, "ms": times_to},
            {"way": "pin_memory", "bytes": SIZE, "ms": times_pinned},
        ],
    }
    target.write_text(json.dumps(figures, indent=2) + "\n")
    print(target.read_text(), end="")


if __name__ == "__main__":
    main()
