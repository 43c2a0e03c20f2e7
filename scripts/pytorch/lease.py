"""Measures PyTorch's caching host allocator for `pinpool bench lease --pytorch FILE`.

    python3 lease.py FILE

Needs what loader.py, beside this file, says.
"""

import loader

if __name__ == "__main__":
    loader.measure("lease.cpp", "pinpool_measure_lease")
