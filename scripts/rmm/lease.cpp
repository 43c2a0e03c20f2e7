// What RMM's pools over pinned host memory take to allocate and to free: the pool for all sizes, and
// the one for blocks of one size.
//
// The same threads, rounds and times as `pinpool bench lease`. Built and started by lease.py; the
// interface is that of RMM 26.10.

#include "../pytorch/common.hpp"

#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::size_t kBlocks = 64;
// What RMM aligns to by itself.
constexpr std::size_t kAlignment = 256;

template <typename Resource>
std::string rows(Resource& pool) {
  const cuda::stream_ref stream{cudaStream_t{nullptr}};
  return churn::rows([&] {
    void* const memory = pool.allocate(stream, kBytes, kAlignment);
    churn::use(memory);
    pool.deallocate(stream, memory, kBytes, kAlignment);
  });
}

void measure(const char* path, const char* version) {
  const cudaDeviceProp device = first_device();
  rmm::mr::pinned_host_memory_resource pinned;
  rmm::mr::pool_memory_resource pool(pinned, kBlocks * kBytes);
  rmm::mr::fixed_size_memory_resource fixed(pinned, kBytes, kBlocks);
  char head[512];
  std::snprintf(head, sizeof head,
                "{\n  \"rmm_version\": \"%s\",\n  \"device\": \"%s\",\n  \"bytes\": %zu,\n"
                "  \"rounds\": %d,\n  \"pool\": ",
                version, device.name, kBytes, churn::kRounds);
  write_file(path, head + rows(pool) + ",\n  \"fixed_size\": " + rows(fixed) + "\n}\n");
}

}  // namespace

// Arguments: the file to write, RMM's version.
int main(int count, char** arguments) {
  if (count != 3) return 2;
  return status_of("lease.cpp", [&] { measure(arguments[1], arguments[2]); });
}
