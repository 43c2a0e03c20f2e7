"""Measures PyTorch's caching host allocator for `pinpool bench in-flight --pytorch FILE`.

    python3 in_flight.py FILE

Needs PyTorch with CUDA, a C++ compiler and the CUDA toolkit's headers. What is measured is C++
(in_flight.cpp beside this file): Python only builds and loads it, so that it finds PyTorch's
libraries whatever way they were installed.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().with_name("in_flight.cpp")


def fail(text):
    sys.exit(f"in_flight.py: {text}\nNO FIGURES OF PYTORCH")


def flags(torch, cpp_extension):
    """The compiler's options for code that uses PyTorch and the CUDA runtime."""
    try:
        includes = cpp_extension.include_paths(device_type="cuda")
        libraries = cpp_extension.library_paths(device_type="cuda")
    except TypeError:  # before 2.6
        includes = cpp_extension.include_paths(cuda=True)
        libraries = cpp_extension.library_paths(cuda=True)
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return (
        [f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
        + [f"-isystem{path}" for path in includes]
        + [f"-L{path}" for path in libraries]
        + [f"-Wl,-rpath,{path}" for path in libraries]
        + ["-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10"]
        + ["-Wl,--as-needed", "-lcudart"]
    )


def build(torch, folder):
    from torch.utils import cpp_extension

    library = pathlib.Path(folder) / "in_flight.so"
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-o", str(library), str(SOURCE)]
    command += flags(torch, cpp_extension)
    try:
        subprocess.run(command, check=True, timeout=240)
    except (OSError, subprocess.SubprocessError) as error:
        fail(f"{compiler} did not build {SOURCE.name}: {error}")
    return library


def main():
    if len(sys.argv) != 2:
        fail("usage: in_flight.py FILE")
    target = pathlib.Path(sys.argv[1])
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch cannot be imported: {error}")
    if not torch.cuda.is_available():
        fail(f"PyTorch {torch.__version__} finds no CUDA device")
    torch.cuda.init()
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = ctypes.CDLL(str(build(torch, folder)))
        except OSError as error:
            fail(f"what was built does not load: {error}")
        # The call gives Python's lock up while it runs.
        measure = library.pinpool_measure_in_flight
        measure.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        if measure(os.fsencode(target), torch.__version__.encode()) != 0:
            fail("the measurement failed")
    print(target.read_text(), end="")


if __name__ == "__main__":
    main()
