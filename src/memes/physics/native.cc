// Simulates robots on CPUs. Each SIMD vector contains one value for each of W robots. XLA calls this code.
#include <algorithm>
#include <cstring>
#include "xla/ffi/api/ffi.h"
@PARALLEL@
#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
typedef float V __attribute__((vector_size(4 * W)));
typedef int I __attribute__((vector_size(4 * W)));
constexpr int ROWS = @ROWS@, CONTROLS = @CONTROLS@;

#define FUNCTION static inline
#define ROLLED
FUNCTION V all(float x) { return V{} + x; }
FUNCTION V choose(I m, V a, V b) { return (V)((m & (I)a) | (~m & (I)b)); }
FUNCTION I opposite(I m) { return ~m; }
FUNCTION bool some(I m) { int any = 0; for (int i = 0; i < W; ++i) any |= m[i]; return any; }
// `least` and `greatest` return NaN if an argument is NaN, so that failed robots are detected.
FUNCTION V least(V a, V b) { return choose((a < b) | (a != a), a, b); }
FUNCTION V greatest(V a, V b) { return choose((a > b) | (a != a), a, b); }
FUNCTION V quotient(V a, V b) { return a / b; }
FUNCTION V absolute(V a) { return (V)((I)a & 0x7fffffff); }
FUNCTION V root(V a) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_sqrtf(a[i]); return r; }
FUNCTION V down(V a) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_floorf(a[i]); return r; }
@ANGLES@
static __attribute__((noinline)) void step(V* __restrict x, const V* __restrict c) {
  @BODY@
}

// Simulates the robots [first, last), at most W of them. Each robot is a column of row-major arrays with n columns.
static void simulate(const float* rows, const float* failed, const float* controls, float* out,
                     float* out_failed, long n, long first, long last) {
  V x[ROWS], before[ROWS], c[CONTROLS];
  auto load = [&](const float* from, long row) {
    V v;
    for (int i = 0; i < W; ++i) v[i] = from[row * n + std::min(first + i, last - 1)];
    return v;
  };
  for (int r = 0; r < ROWS; ++r) before[r] = x[r] = load(rows, r);
  for (int r = 0; r < CONTROLS; ++r) c[r] = load(controls, r);
  for (int k = 0; k < @SUBSTEPS@; ++k) step(x, c);
  V zero = all(0.f);
  for (int r = 0; r < ROWS; ++r) zero += x[r] - x[r];  // NaN for robots with a value that is not finite
  I alive = (zero == all(0.f)) & (load(failed, 0) == all(0.f));
  for (int r = 0; r < ROWS; ++r) {
    V kept = choose(alive, x[r], before[r]);
    for (long i = first; i < last; ++i) out[r * n + i] = kept[i - first];
  }
  for (long i = first; i < last; ++i) out_failed[i] = alive[i - first] ? 0.f : 1.f;
}

namespace ffi = xla::ffi;
static ffi::Error Run(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> rows, ffi::Buffer<ffi::F32> failed,
                      ffi::Buffer<ffi::F32> controls, ffi::ResultBuffer<ffi::F32> out,
                      ffi::ResultBuffer<ffi::F32> out_failed) {
  const long n = rows.dimensions()[1], blocks = (n + W - 1) / W;
  const long workers = std::max(1L, std::min<long>(pool.num_threads(), blocks / 4));
  in_parallel(pool, workers, [&](long worker) {
    for (long b = blocks * worker / workers; b < blocks * (worker + 1) / workers; ++b)
      simulate(rows.typed_data(), failed.typed_data(), controls.typed_data(), out->typed_data(),
               out_failed->typed_data(), n, b * W, std::min(n, (b + 1) * W));
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Step, Run, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()
    .Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>()
    .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
