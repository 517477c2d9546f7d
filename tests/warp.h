// Emulates the parts of CUDA that tests need to run a kernel's blocks on a CPU. The threads of a block are fibers. They
// take turns whenever they exchange values or wait. All lanes of a warp must take part in every exchange.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __constant__ static const
#define __launch_bounds__(...)
struct Index { int x, y, z; };
static Index blockIdx, blockDim, gridDim, threadIdx;

namespace warp {
constexpr int LANES = 32, MOST = 1024;
constexpr size_t STACK = 1 << 18;  // bytes of address space; only used pages occupy memory
struct Fiber { ucontext_t context; std::unique_ptr<char[]> stack; Index thread; bool done; unsigned exchanges; };
static Fiber fibers[MOST];
static ucontext_t scheduler;
static int running, waiting, passed;
static char slots[2][MOST][8];
static std::function<void()> body;

static void turn() { swapcontext(&fibers[running].context, &scheduler); }

static void start() {
  body();
  fibers[running].done = true;
  turn();
}

// Publishes the value of this lane and returns the values of all lanes.
template <class T>
static std::array<T, LANES> exchange(T value) {
  auto& slot = slots[fibers[running].exchanges++ % 2];
  memcpy(slot[running], &value, sizeof(T));
  turn();
  std::array<T, LANES> all;
  for (int i = 0; i < LANES; ++i) memcpy(&all[i], slot[running / LANES * LANES + i], sizeof(T));
  return all;
}

static void barrier() {
  const int before = passed;
  if (++waiting == blockDim.x) waiting = 0, ++passed;
  do turn(); while (passed == before);
}

static void run() {
  for (int thread = 0; thread < blockDim.x; ++thread) {
    Fiber& fiber = fibers[thread];
    if (!fiber.stack) fiber.stack.reset(new char[STACK]);
    fiber.done = false, fiber.exchanges = 0, fiber.thread = {thread, 0, 0};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (running = 0; running < blockDim.x; ++running) {
      if (fibers[running].done) continue;
      any = true;
      threadIdx = fibers[running].thread;
      swapcontext(&scheduler, &fibers[running].context);
    }
  }
}

template <class... T, size_t... I>
static void call(void (*kernel)(T...), void** parameters, std::index_sequence<I...>) {
  kernel(*static_cast<T*>(parameters[I])...);
}

// Waits for all processes and returns whether all of them succeeded. If one fails, the others are killed, because they
// may wait for it.
static bool all_end(std::vector<pid_t> blocks) {
  bool well = true;
  while (!blocks.empty()) {
    const pid_t block = blocks.back();
    int status = 0;
    if (!waitpid(block, &status, WNOHANG)) {
      std::rotate(blocks.begin(), blocks.end() - 1, blocks.end());
      usleep(200);
      continue;
    }
    blocks.pop_back();
    if (status && well)
      for (pid_t other : blocks) kill(other, SIGKILL);
    well &= !status;
  }
  return well;
}

// Runs a kernel. Returns false if a block crashed. Blocks that run at once are separate processes, so their arguments
// must be in memory that the processes share.
template <class... T>
static bool launch(void (*kernel)(T...), void** parameters, int wide, int high, int threads, bool at_once) {
  body = [=] { call(kernel, parameters, std::index_sequence_for<T...>()); };
  gridDim = {wide, high, 1}, blockDim = {threads, 1, 1};
  if (at_once) {
    std::vector<pid_t> blocks;
    for (int x = 0; x < wide; ++x) {
      blocks.push_back(fork());
      if (blocks.back()) continue;
      blockIdx = {x, 0, 0};
      run();
      _exit(0);
    }
    return all_end(blocks);
  }
  for (int y = 0; y < high; ++y)
    for (int x = 0; x < wide; ++x) {
      blockIdx = {x, y, 0};
      run();
    }
  return true;
}
}  // namespace warp

template <class T> static T __shfl_sync(unsigned, T x, int lane) { return warp::exchange(x)[lane]; }
template <class T> static T __shfl_xor_sync(unsigned, T x, int mask) {
  const int lane = warp::running % warp::LANES;
  return warp::exchange(x)[lane ^ mask];
}
template <class T> static T __shfl_up_sync(unsigned, T x, int by) {
  const int lane = warp::running % warp::LANES;
  return warp::exchange(x)[lane < by ? lane : lane - by];
}
static unsigned __ballot_sync(unsigned, bool x) {
  unsigned mask = 0;
  const auto all = warp::exchange(x);
  for (int i = 0; i < warp::LANES; ++i) mask |= unsigned(all[i]) << i;
  return mask;
}
static bool __any_sync(unsigned, bool x) { return __ballot_sync(0, x) != 0; }
static void __syncwarp() { warp::exchange(0); }
static void __syncthreads() { warp::barrier(); }
static void __nanosleep(unsigned) { usleep(100); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
static float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
template <class T> static T __ldcg(const T* at) { return *at; }
using std::max;
using std::min;
