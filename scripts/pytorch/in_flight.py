"""Measures PyTorch's caching host allocator for `pinpool bench in-flight --pytorch FILE`.

    python3 in_flight.py FILE

Needs what loader.py, beside this file, says.
"""

import loader

if __name__ == "__main__":
    loader.measure("in_flight.cpp", "pinpool_measure_in_flight")
