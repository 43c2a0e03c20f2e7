"""Builds a C++ file beside this one against PyTorch, loads it and calls its one function.

What is measured is C++: Python only builds and loads it, so that it finds PyTorch's libraries
whatever way they were installed. Needs PyTorch with CUDA, a C++ compiler and the CUDA toolkit's
headers.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent


def fail(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}\nNO FIGURES OF PYTORCH")


def named_file():
    """The file that the command line names."""
    if len(sys.argv) != 2:
        fail(f"usage: {pathlib.Path(sys.argv[0]).name} FILE")
    return pathlib.Path(sys.argv[1])


def on_cuda():
    """PyTorch, with its CUDA device ready."""
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch cannot be imported: {error}")
    if not torch.cuda.is_available():
        fail(f"PyTorch {torch.__version__} finds no CUDA device")
    torch.cuda.init()
    return torch


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


def build(torch, source, folder):
    from torch.utils import cpp_extension

    library = pathlib.Path(folder) / "measured.so"
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-o", str(library), str(source)]
    command += flags(torch, cpp_extension)
    try:
        subprocess.run(command, check=True, timeout=240)
    except (OSError, subprocess.SubprocessError) as error:
        fail(f"{compiler} did not build {source.name}: {error}")
    return library


def measure(source, function):
    """Calls `function` of `source` with the file that the command line names, and prints the file."""
    target, torch = named_file(), on_cuda()
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = ctypes.CDLL(str(build(torch, FOLDER / source, folder)))
        except OSError as error:
            fail(f"what was built does not load: {error}")
        # The call gives Python's lock up while it runs.
        call = getattr(library, function)
        call.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        if call(os.fsencode(target), torch.__version__.encode()) != 0:
            fail("the measurement failed")
    print(target.read_text(), end="")
