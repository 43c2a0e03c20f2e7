"""Measures how long PyTorch takes to pin memory, for `pinpool bench startup --pytorch FILE`.

    python3 startup.py FILE

Needs PyTorch with CUDA and a GPU, no compiler. Each mode of its host allocator is measured in a process of
its own, because the settings are read once; its context is there and as much memory was touched before
anything is timed.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

from loader import fail, named_file, on_cuda

SIZES = [1 << 30, 8 << 30]
# Both names of the variable are set: PyTorch renamed it, and reads the old one where the new one is not set.
VARIABLES = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]
MODES = {
    "default": "",
    "register16": "pinned_use_cuda_host_register:True,pinned_num_register_threads:16",
}
# Repeats of one mode and size: so many, or as many as begin within so many seconds.
REPEATS = 3
REPEATS_SECONDS = 3.0
# A process that takes longer hangs.
PATIENCE_SECONDS = 60


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def mapping_of(address):
    """How the kernel lists the memory at this address: its access and what it is called."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            first, last = (int(word, 16) for word in words[0].split("-"))
            if first <= address < last:
                return " ".join([words[1], *(word.strip() for word in words[5:])])
    return "unknown"


def forget(torch):
    """Has the allocator give back what it keeps. False where this PyTorch has no such call."""
    call = getattr(torch._C, "_host_emptyCache", None)
    if call is not None:
        call()
    return call is not None


def timed(make):
    started = time.perf_counter()
    made = make()
    return (time.perf_counter() - started) * 1e3, made


def measured(torch, make):
    """Milliseconds of each repeat, and how the kernel lists the memory."""
    times, mapping = [], ""
    started = time.perf_counter()
    while len(times) < REPEATS and time.perf_counter() - started < REPEATS_SECONDS:
        took, made = timed(make)
        times.append(round(took, 3))
        mapping = mapping_of(made.data_ptr())
        del made
        # What stays in the cache would be handed out again.
        if not forget(torch):
            break
    return times, mapping


def measure_mode(mode):
    torch = on_cuda()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    # The first one starts the allocator's threads.
    torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    rows = []
    for size in (size for size in SIZES if 2 * size <= available_bytes()):
        source = torch.ones(size, dtype=torch.uint8)
        del source
        forget(torch)
        empty, mapping = measured(
            torch, lambda: torch.empty(size, dtype=torch.uint8, pin_memory=True)
        )
        source = torch.ones(size, dtype=torch.uint8)
        copied, _ = timed(source.pin_memory)
        del source
        forget(torch)
        rows.append(
            {
                "mode": mode,
                "settings": MODES[mode],
                "bytes": size,
                "empty_ms": empty,
                "pin_memory_ms": [round(copied, 3)],
                "mapping": mapping,
            }
        )
    device = torch.cuda.get_device_name(0)
    json.dump({"pytorch_version": torch.__version__, "device": device, "rows": rows}, sys.stdout)


def child(mode):
    """The figures of one mode, of a fresh process."""
    settings = dict.fromkeys(VARIABLES, MODES[mode]) if MODES[mode] else {}
    others = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--mode", mode]
    try:
        done = subprocess.run(
            command,
            env=others | settings,
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        fail(f"mode {mode}: {error}")


def main():
    target = named_file()
    figures = {}
    for mode in MODES:
        of_mode = child(mode)
        figures = of_mode | {"rows": figures.get("rows", []) + of_mode["rows"]}
    if not figures["rows"]:
        fail(f"less memory than twice {SIZES[0]} bytes is available")
    target.write_text(json.dumps(figures, indent=2) + "\n")
    print(target.read_text(), end="")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--mode"]:
        measure_mode(sys.argv[2])
    else:
        main()
