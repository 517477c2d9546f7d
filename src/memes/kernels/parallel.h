// Divides work among XLA's idle threads. Starting new threads would take as long as computing a small batch.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

// Calls work(part) for each part in [0, parts). The calling thread runs all parts that no other thread has started yet.
template <class Work>
static void in_parallel(xla::ffi::ThreadPool& pool, long parts, Work work) {
  struct Shared {
    std::vector<std::atomic<bool>> taken;
    std::atomic<long> left;
    Shared(long parts) : taken(parts), left(parts) {}
  };
  auto shared = std::make_shared<Shared>(parts);  // outlives the call, because late threads still read it
  auto attempt = [shared, &work](long part) {
    if (shared->taken[part].exchange(true)) return;
    work(part);
    shared->left.fetch_sub(1, std::memory_order_release);
  };
  for (long part = 1; part < parts; ++part) pool.Schedule([attempt, part] { attempt(part); });
  for (long part = 0; part < parts; ++part) attempt(part);
  for (long turn = 0; shared->left.load(std::memory_order_acquire); ++turn)
    if (turn > 1000) std::this_thread::yield();
}
