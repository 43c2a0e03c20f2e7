// What PyTorch's caching host allocator adds to a copy call: allocate, record_event, free.
//
// The other side of `pinpool bench in-flight`: the same bytes, batches, depth and order, so that
// the figures of both compare. Loaded by in_flight.py; writes JSON that `--pytorch` reads.

#include "common.hpp"

#include <ATen/cuda/CachingHostAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr int kDepth = 8;
constexpr int kWarmUp = 64;
constexpr int kBatches = 20'000;
constexpr int kThreads = 8;
// Every round beside a blocked event may pin fresh memory, so far fewer rounds than ours.
constexpr int kPendingRounds = 400;
constexpr int kStreamsTried = 64;
constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kStandsStill = std::chrono::milliseconds(200);

struct Spread {
  double median, p90, p99, max;
};

Spread spread_of(std::vector<double> values) {
  if (values.empty()) throw std::runtime_error("nothing was measured");
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  const auto at = [&](std::size_t percent) { return values[(count * percent + 99) / 100 - 1]; };
  const double below = values[(count - 1) / 2], above = values[count / 2];
  return {(below + above) / 2, at(90), at(99), values.back()};
}

std::string json(const Spread& spread) {
  char text[160];
  std::snprintf(text, sizeof text, "{\"median\": %.3f, \"p90\": %.3f, \"p99\": %.3f}",
                spread.median, spread.p90, spread.p99);
  return text;
}

// Device memory, freed at the end of its scope.
struct DeviceBuffer {
  void* address = nullptr;
  DeviceBuffer() { check(cudaMalloc(&address, kBytes), "cudaMalloc"); }
  ~DeviceBuffer() { cudaFree(address); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
};

void record(at::HostAllocator* allocator, const at::DataPtr& memory,
            const c10::cuda::CUDAStream& stream) {
  if (!allocator->record_event(memory.get(), memory.get_context(), stream.unwrap())) {
    throw std::runtime_error("record_event does not know memory of its own allocator");
  }
}

// One batch of rounds or of bare copy calls; the stream runs dry untimed.
double batch(const c10::cuda::CUDAStream& stream, const std::function<void()>& call) {
  const auto started = Clock::now();
  for (int round = 0; round < kDepth; ++round) call();
  const double took = ns_since(started);
  check(cudaStreamSynchronize(stream.stream()), "cudaStreamSynchronize");
  return took / kDepth;
}

struct Round {
  Spread round, copy, added;
};

Round measure_round(at::HostAllocator* allocator) {
  const auto stream = c10::cuda::getStreamFromPool();
  const DeviceBuffer device;
  const at::DataPtr fixed = allocator->allocate(kBytes);
  const auto copy = [&](const void* source) {
    check(cudaMemcpyAsync(device.address, source, kBytes, cudaMemcpyHostToDevice,
                          stream.stream()),
          "cudaMemcpyAsync");
  };
  const std::function<void()> round = [&] {
    const at::DataPtr memory = allocator->allocate(kBytes);
    copy(memory.get());
    record(allocator, memory, stream);
  };
  const std::function<void()> bare = [&] { copy(fixed.get()); };
  std::vector<double> rounds, copies, added;
  for (int number = 0; number < kWarmUp + kBatches; ++number) {
    double of_round = 0, of_copy = 0;
    if (number % 2 == 0) {
      of_round = batch(stream, round);
      of_copy = batch(stream, bare);
    } else {
      of_copy = batch(stream, bare);
      of_round = batch(stream, round);
    }
    if (number < kWarmUp) continue;
    rounds.push_back(of_round);
    copies.push_back(of_copy);
    added.push_back(of_round - of_copy);
  }
  return {spread_of(rounds), spread_of(copies), spread_of(added)};
}

// Holds a stream back until it is opened.
struct Gate {
  std::atomic<bool> is_open{false};
  std::atomic<bool> gave_up{false};
  std::atomic<bool> is_done{false};

  static void wait(void* argument) {
    auto* gate = static_cast<Gate*>(argument);
    const auto started = Clock::now();
    while (!gate->is_open.load()) {
      if (Clock::now() - started > kPatience) {
        gate->gave_up.store(true);
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    gate->is_done.store(true);
  }

  explicit Gate(const c10::cuda::CUDAStream& stream) {
    check(cudaLaunchHostFunc(stream.stream(), &Gate::wait, this), "cudaLaunchHostFunc");
  }

  // The host function must be over before this is gone.
  ~Gate() {
    is_open.store(true);
    while (!is_done.load()) std::this_thread::yield();
  }
};

// Streams that go on while another one is blocked: those that share its hardware queue do not.
std::vector<c10::cuda::CUDAStream> independent_streams(const c10::cuda::CUDAStream& blocked) {
  const Gate gate(blocked);
  const DeviceBuffer device;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  std::vector<c10::cuda::CUDAStream> streams;
  for (int tried = 0; tried < kStreamsTried && streams.size() < kThreads; ++tried) {
    // The allocator's pool hands its streams out in turn, so the blocked one comes up as well.
    const auto stream = c10::cuda::getStreamFromPool();
    if (stream == blocked || std::count(streams.begin(), streams.end(), stream) != 0) continue;
    check(cudaMemsetAsync(device.address, 0, kBytes, stream.stream()), "cudaMemsetAsync");
    check(cudaEventRecord(event, stream.stream()), "cudaEventRecord");
    const auto started = Clock::now();
    cudaError_t status = cudaErrorNotReady;
    while (status == cudaErrorNotReady && Clock::now() - started < kStandsStill) {
      status = cudaEventQuery(event);
    }
    if (status == cudaSuccess) {
      streams.push_back(stream);
    } else if (status != cudaErrorNotReady) {
      check(status, "cudaEventQuery");
    }
  }
  check(cudaEventDestroy(event), "cudaEventDestroy");
  if (streams.size() < kThreads) throw std::runtime_error("a blocked stream blocks all others");
  return streams;
}

// Each round timed: allocate, record_event, free, with `pending` events blocked beside it.
Spread measure_pending(at::HostAllocator* allocator, const c10::cuda::CUDAStream& blocked,
                       const std::vector<c10::cuda::CUDAStream>& streams, int threads,
                       int pending) {
  Gate gate(blocked);
  {
    std::vector<at::DataPtr> held;
    for (int block = 0; block < pending; ++block) {
      held.push_back(allocator->allocate(kBytes));
      record(allocator, held.back(), blocked);
    }
  }
  std::vector<double> all;
  std::mutex mutex;
  std::exception_ptr failed;
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      try {
        const auto& stream = streams[static_cast<std::size_t>(thread)];
        check(cudaSetDevice(0), "cudaSetDevice");
        std::vector<double> times;
        for (int number = 0; number < kPendingRounds; ++number) {
          const auto started = Clock::now();
          {
            const at::DataPtr memory = allocator->allocate(kBytes);
            record(allocator, memory, stream);
          }
          times.push_back(ns_since(started));
          if (number % kDepth == kDepth - 1) {
            check(cudaStreamSynchronize(stream.stream()), "cudaStreamSynchronize");
          }
        }
        const std::lock_guard<std::mutex> lock(mutex);
        all.insert(all.end(), times.begin(), times.end());
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        failed = std::current_exception();
      }
    });
  }
  for (auto& thread : running) thread.join();
  const bool blocked_to_the_end = !gate.gave_up.load();
  gate.is_open.store(true);
  check(cudaStreamSynchronize(blocked.stream()), "cudaStreamSynchronize");
  if (failed) std::rethrow_exception(failed);
  if (!blocked_to_the_end) throw std::runtime_error("a blocked stream went on by itself");
  // What was pinned meanwhile goes back, so that each case starts alike.
  allocator->empty_cache();
  return spread_of(all);
}

std::string pending_rows(at::HostAllocator* allocator) {
  const auto blocked = c10::cuda::getStreamFromPool();
  const auto streams = independent_streams(blocked);
  std::string rows;
  for (const int threads : {1, kThreads}) {
    for (const int pending : {8, 512}) {
      const Spread times = measure_pending(allocator, blocked, streams, threads, pending);
      char text[256];
      std::snprintf(text, sizeof text,
                    "%s\n    {\"fence\": \"stream\", \"threads\": %d, \"pending\": %d, "
                    "\"rounds\": %d, \"p50_ns\": %.3f, \"p99_ns\": %.3f, \"max_ns\": %.3f}",
                    rows.empty() ? "" : ",", threads, pending, threads * kPendingRounds,
                    times.median, times.p99, times.max);
      rows += text;
    }
  }
  return rows;
}

void measure(const char* path, const char* version) {
  const cudaDeviceProp device = first_device();
  at::HostAllocator* allocator = at::getHostAllocator(c10::DeviceType::CUDA);
  if (allocator == nullptr) throw std::runtime_error("PyTorch has no host allocator for CUDA");
  const Round round = measure_round(allocator);
  const std::string pending = pending_rows(allocator);
  char head[1024];
  std::snprintf(
      head, sizeof head,
      "{\n  \"pytorch_version\": \"%s\",\n  \"device\": \"%s\",\n  \"bytes\": %zu,\n"
      "  \"rounds_per_batch\": %d,\n  \"batches\": %d,\n  \"round_ns\": %s,\n"
      "  \"copy_call_ns\": %s,\n  \"allocate_record_free_ns\": %s,\n  \"pending\": [",
      version, device.name, kBytes, kDepth, kBatches, json(round.round).c_str(),
      json(round.copy).c_str(), json(round.added).c_str());
  write_file(path, head + pending + "\n  ]\n}\n");
}

}  // namespace

// Writes the figures to `path`. Returns 0, or 1 after saying on standard error what failed.
extern "C" int pinpool_measure_in_flight(const char* path, const char* version) {
  return status_of("in_flight.cpp", [&] { measure(path, version); });
}
