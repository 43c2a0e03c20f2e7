// What PyTorch's caching host allocator takes to allocate and to free, with everything cached.
//
// The other side of `pinpool bench lease`. Loaded by lease.py; writes JSON that `--pytorch` reads.

#include "common.hpp"

#include <ATen/cuda/CachingHostAllocator.h>

namespace {

// Cached blocks of one size: any size would do.
constexpr std::size_t kBytes = 64 << 10;

void measure(const char* path, const char* version) {
  const cudaDeviceProp device = first_device();
  at::HostAllocator* allocator = at::getHostAllocator(c10::DeviceType::CUDA);
  if (allocator == nullptr) throw std::runtime_error("PyTorch has no host allocator for CUDA");
  {
    // More blocks than there are threads are cached before anything is timed.
    std::vector<at::DataPtr> held;
    for (int block = 0; block < 4 * churn::kThreadsMax; ++block) {
      held.push_back(allocator->allocate(kBytes));
    }
  }
  const std::string rows = churn::rows([&] {
    const at::DataPtr memory = allocator->allocate(kBytes);
    churn::use(memory.get());
  });
  char head[512];
  std::snprintf(head, sizeof head,
                "{\n  \"pytorch_version\": \"%s\",\n  \"device\": \"%s\",\n  \"bytes\": %zu,\n"
                "  \"rounds\": %d,\n  \"rows\": ",
                version, device.name, kBytes, churn::kRounds);
  write_file(path, head + rows + "\n}\n");
}

}  // namespace

// Writes the figures to `path`. Returns 0, or 1 after saying on standard error what failed.
extern "C" int pinpool_measure_lease(const char* path, const char* version) {
  return status_of("lease.cpp", [&] { measure(path, version); });
}
