"""Measures RMM's pools over pinned host memory, beside `pinpool bench lease`.

    python3 lease.py FILE

Where RMM's C++ library (the package librmm) or a C++ compiler is missing it says so and succeeds:
"NOT RUN". FILE is JSON for people, which no report reads.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().with_name("lease.cpp")


def not_run(text):
    print(f"NOT RUN: RMM's pools: {text}")
    sys.exit(0)


def folders(package, *names):
    """The first of the named folders inside an installed package, for each name that is there."""
    root = pathlib.Path(package.__file__).parent
    return [str(root / name) for name in names if (root / name).is_dir()]


def cuda_includes():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = [path for path in (f"{home}/include", f"{home}/include/cccl") if os.path.isdir(path)]
    if not found:
        not_run(f"no CUDA headers in {home}")
    return found, [f"{home}/lib64"]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: lease.py FILE")
    try:
        import librmm
        import rapids_logger
    except ImportError as error:
        not_run(f"{error}")
    includes = folders(librmm, "include/rapids", "include") + folders(rapids_logger, "include")
    libraries = folders(librmm, "lib64", "lib") + folders(rapids_logger, "lib64", "lib")
    cuda_headers, cuda_libraries = cuda_includes()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "lease")
        # RMM's own headers come first: they bring a newer CCCL than the toolkit's.
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-o", program, str(SOURCE)]
        command += ["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
        command += [f"-isystem{path}" for path in includes + cuda_headers]
        command += [f"-L{path}" for path in libraries + cuda_libraries]
        command += [f"-Wl,-rpath,{path}" for path in libraries + cuda_libraries]
        command += ["-lrmm", "-lrapids_logger", "-lcudart", "-pthread"]
        try:
            subprocess.run(command, check=True, timeout=240)
        except (OSError, subprocess.SubprocessError) as error:
            not_run(f"{command[0]} did not build {SOURCE.name}: {error}")
        subprocess.run([program, sys.argv[1], librmm.__version__], check=True, timeout=120)
    print(pathlib.Path(sys.argv[1]).read_text(), end="")


if __name__ == "__main__":
    main()
