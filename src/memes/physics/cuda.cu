// Simulates all substeps of robots on a GPU. A thread simulates one leg of one robot. The legs of a robot are adjacent
// threads of a warp. Each of these threads also simulates the rest of the robot, with bitwise equal results.
typedef float V;
typedef bool I;
#define FUNCTION static __device__ __forceinline__
#define ROLLED _Pragma("unroll 1")
constexpr int COPIES = @COPIES@;           // legs per robot
constexpr int TOGETHER = 32 / COPIES;      // robots per warp
constexpr unsigned WARP = 0xffffffffu;

FUNCTION V all(float x) { return x; }
FUNCTION V choose(I m, V a, V b) { return m ? a : b; }
FUNCTION I opposite(I m) { return !m; }
FUNCTION bool some(I m) { return __any_sync(WARP, m); }
FUNCTION V absolute(V a) { return fabsf(a); }
FUNCTION V down(V a) { return floorf(a); }
// `least` and `greatest` return NaN if an argument is NaN, so that failed robots are detected.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FUNCTION V least(V a, V b) { V r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FUNCTION V greatest(V a, V b) { V r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
#else
FUNCTION V least(V a, V b) { return a < b || a != a ? a : b; }
FUNCTION V greatest(V a, V b) { return a > b || a != a ? a : b; }
#endif
#if defined(__CUDA_ARCH__)
// The approximate instructions have an error of one unit in the last place. Exact division needs eight instructions.
// Unlike the approximation, exact division supports divisors near 2^128.
FUNCTION V quotient(V a, V b) { V r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b)); return a * r; }
FUNCTION V root(V a) { V r; asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
#else
FUNCTION V quotient(V a, V b) { return a / b; }
FUNCTION V root(V a) { return sqrtf(a); }
#endif

@ANGLES@
// Selects the value of one leg by comparisons, because an indexed array would not stay in registers.
template <class T>
FUNCTION T pick(int copy, const T (&values)[COPIES]) {
  T x = values[0];
#pragma unroll
  for (int i = 1; i < COPIES; ++i) x = copy == i ? values[i] : x;
  return x;
}

// Simulates all substeps of n robots. `rows` has one column per robot, and `controls` has one row per robot. blockIdx.y
// is the index of the batch member.
extern "C" __global__ void __launch_bounds__(@THREADS@)
advance(const float* rows, const float* failed, const float* controls, float* out, float* out_failed, int n) {
  const int lane = threadIdx.x % 32, copy = lane % COPIES;
  const int own = lane / COPIES < TOGETHER ? lane / COPIES : 0;  // surplus lanes repeat the first robot
  const int first = own * COPIES;
  const int robot = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * TOGETHER + own;
  const int column = robot < n ? robot : n - 1;
  rows += (size_t)blockIdx.y * @HEIGHT@ * n;
  out += (size_t)blockIdx.y * @HEIGHT@ * n;
  controls += ((size_t)blockIdx.y * n + column) * @WIDTH@;
  failed += (size_t)blockIdx.y * n;
  out_failed += (size_t)blockIdx.y * n;
  auto place = [&](int row) { return (size_t)row * n + column; };

  // Returns the sum over the legs of a robot. The result is the same in the threads of all legs. As long as the number
  // of partial sums is even, pairs of threads add their partial sums. Then the remaining partial sums are added in a
  // fixed order.
  auto total = [&](V x) {
    int period = COPIES;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      if (period % 2) break;
      period /= 2;
      x += (COPIES & (COPIES - 1)) ? __shfl_sync(WARP, x, first + (copy + period) % (2 * period))
                                   : __shfl_xor_sync(WARP, x, period);
    }
    if (period == 1) return x;
    V sum = __shfl_sync(WARP, x, first);
#pragma unroll
    for (int i = 1; i < period; ++i) sum += __shfl_sync(WARP, x, first + i);
    return sum;
  };

  @CONSTANTS@
  V x[@ROWS@], c[@CONTROLS@];
  @READ@
  ROLLED for (int substep = 0; substep < @SUBSTEPS@; ++substep) {
  @BODY@
  }
  V zero = all(0.f);  // NaN if any value is not finite
#pragma unroll
  for (int i = 0; i < @ROWS@; ++i) zero += x[i] * 0.f;
  const bool alive = total(zero) == 0.f && failed[column] == 0.f;
  if (!alive) {
    @READ_STATE@
  }
  __syncwarp();  // all threads have read `rows`, which may share its memory with `out`
  if (robot >= n || lane >= TOGETHER * COPIES) return;
  @WRITE@
  if (copy == 0) {
    @WRITE_TRUNK@
    out_failed[column] = alive ? 0.f : 1.f;
  }
}
