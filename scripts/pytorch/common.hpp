// What the measurements of others' host allocators share: failing calls, times, threads that
// allocate and free, the file they write.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
  }
}

inline double ns_since(Clock::time_point started) {
  return std::chrono::duration<double, std::nano>(Clock::now() - started).count();
}

// The first device, which becomes this thread's.
inline cudaDeviceProp first_device() {
  check(cudaSetDevice(0), "cudaSetDevice");
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  return device;
}

inline void write_file(const char* path, const std::string& text) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), &std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    throw std::runtime_error(std::string("cannot write ") + path);
  }
}

// Runs `measure`. Returns 0, or 1 after saying on standard error what failed.
template <typename Measure>
int status_of(const char* source, const Measure& measure) {
  try {
    measure();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", source, error.what());
    return 1;
  }
}

// The same numbers of threads, rounds and times as `pinpool bench lease`, counted in the same way.
namespace churn {

constexpr int kRounds = 7;
constexpr int kThreadsMax = 16;
constexpr auto kCounted = std::chrono::milliseconds(50);
constexpr int kInARow = 64;

enum Phase { kWarmingUp, kCounting, kOver };

// The address is used, so that there must be one.
inline void use(const void* address) { asm volatile("" : : "r"(address) : "memory"); }

// Round trips of all threads together in a nanosecond.
template <typename RoundTrip>
double rate(const RoundTrip& round_trip, int threads) {
  std::atomic<int> phase{kWarmingUp};
  std::atomic<std::uint64_t> done{0};
  std::mutex mutex;
  std::exception_ptr failed;
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&] {
      try {
        check(cudaSetDevice(0), "cudaSetDevice");
        std::uint64_t counted = 0;
        for (int now = kWarmingUp; now != kOver; now = phase.load(std::memory_order_relaxed)) {
          for (int turn = 0; turn < kInARow; ++turn) round_trip();
          if (now == kCounting) counted += kInARow;
        }
        done.fetch_add(counted);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        failed = std::current_exception();
      }
    });
  }
  std::this_thread::sleep_for(kCounted / 4);
  phase.store(kCounting, std::memory_order_relaxed);
  const auto started = Clock::now();
  std::this_thread::sleep_for(kCounted);
  phase.store(kOver, std::memory_order_relaxed);
  const double took = ns_since(started);
  for (auto& thread : running) thread.join();
  if (failed) std::rethrow_exception(failed);
  return static_cast<double>(done.load()) / took;
}

// Medians over rounds for 1, 2, 4, 8 and 16 threads, as far as there are processors: JSON.
template <typename RoundTrip>
std::string rows(const RoundTrip& round_trip) {
  std::vector<int> counts;
  for (int threads = 1; threads <= kThreadsMax; threads *= 2) {
    if (threads == 1 || threads <= static_cast<int>(std::thread::hardware_concurrency())) {
      counts.push_back(threads);
    }
  }
  std::vector<std::vector<double>> rates(counts.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t at = 0; at < counts.size(); ++at) {
      rates[at].push_back(rate(round_trip, counts[at]));
    }
  }
  std::string rows;
  for (std::size_t at = 0; at < counts.size(); ++at) {
    std::sort(rates[at].begin(), rates[at].end());
    const double per_ns = rates[at][kRounds / 2];
    char text[128];
    std::snprintf(text, sizeof text, "%s\n    {\"threads\": %d, \"mops\": %.4f, \"ns\": %.3f}",
                  at == 0 ? "" : ",", counts[at], per_ns * 1e3, counts[at] / per_ns);
    rows += text;
  }
  return "[" + rows + "\n  ]";
}

}  // namespace churn
