// Computes the actions of policies on CPUs, for mirrored pairs and for repeated genotypes. XLA calls this code. Each
// SIMD vector contains adjacent columns of a layer. TOGETHER pairs of a lane are computed at once, so that the mean is
// read only once for these pairs. SHARE evaluations of a genotype are computed at once, so that the weights are read
// only once for these evaluations.
#include <algorithm>
#include <cstring>
#include "xla/ffi/api/ffi.h"
@PARALLEL@
#if defined(__AVX512F__)
constexpr int W = 16, TILE = 4;
#elif defined(__AVX__)
constexpr int W = 8, TILE = 2;
#elif defined(__aarch64__)
constexpr int W = 4, TILE = 4;
#else
constexpr int W = 4, TILE = 2;  // vectors per tile; all sums of a tile fit into registers
#endif
constexpr int INPUTS = @INPUTS@;
constexpr int OUTPUTS = @OUTPUTS@;
constexpr int WIDEST = @WIDEST@;  // largest width of a signal
constexpr int DIM = @DIM@;        // entries of a genotype
constexpr int DRAWN = @DRAWN@;    // noise values of a pair, including padding
constexpr int TOGETHER = 2;       // pairs that are computed together
constexpr int SHARE = 4;          // evaluations of a genotype that are computed together
#define UNROLLED _Pragma("GCC unroll 8")  // keeps the sums in registers
#define FUNCTION static inline __attribute__((always_inline))

constexpr int widest(int left) { return left >= W ? W : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }
template <int N> struct Vectors {
  typedef float Float __attribute__((vector_size(4 * N)));
  typedef int Int __attribute__((vector_size(4 * N)));
};
template <int N> using V = typename Vectors<N>::Float;
template <int N> using I = typename Vectors<N>::Int;
template <int N> FUNCTION V<N> load(const float* from) { V<N> v; std::memcpy(&v, from, 4 * N); return v; }
template <int N> FUNCTION void store(float* to, V<N> v) { std::memcpy(to, &v, 4 * N); }
template <int N> FUNCTION V<N> all(float x) { return V<N>{} + x; }
template <int N> FUNCTION V<N> choose(I<N> m, V<N> a, V<N> b) { return (V<N>)((m & (I<N>)a) | (~m & (I<N>)b)); }

// Both activations preserve NaN.
template <int N> FUNCTION V<N> relu(V<N> x) { return choose<N>(x < all<N>(0.f), all<N>(0.f), x); }
// Computes e / (e + 2) with e = exp(2 x) - 1 = 2^n (exp(r) - 1) + 2^n - 1. A series approximates exp(r) - 1.
template <int N> FUNCTION V<N> tangent(V<N> x) {
  const V<N> limit = all<N>(10.f), magic = all<N>(12582912.f);
  x = choose<N>(x > limit, limit, choose<N>(x < -limit, -limit, x));
  const V<N> z = x + x;
  const V<N> n = (z * 1.44269504f + magic) - magic;
  const V<N> r = (z - n * 0.693145752f) - n * 1.42860677e-6f;
  V<N> e = all<N>(1.f / 5040);
  for (float c : {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 1.f / 2, 1.f}) e = e * r + c;
  const V<N> power = (V<N>)((__builtin_convertvector(n, I<N>) + 127) << 23);
  e = e * r * power + (power - 1.f);
  return e / (e + 2.f);
}
template <int N, bool LAST> FUNCTION V<N> activated(V<N> x) { return LAST ? @OUTPUT@<N>(x) : @HIDDEN@<N>(x); }

template <int N> FUNCTION float sum(V<N> v) {
  float x[N];
  store<N>(x, v);
  if constexpr (N == 1) return x[0];
  else return sum<N / 2>(load<N / 2>(x) + load<N / 2>(x + N / 2));
}
template <int IN, int START = 0> FUNCTION float dot(const float* a, const float* b) {
  constexpr int N = widest(IN - START), END = START + (IN - START) / N * N;
  V<N> total = {};
  UNROLLED for (int i = START; i < END; i += N) total += load<N>(a + i) * load<N>(b + i);
  if constexpr (END == IN) return sum<N>(total);
  else return sum<N>(total) + dot<IN, END>(a, b);
}

// The input or output of a layer for one sample. A sample is one evaluation of a candidate, or one of the two samples
// of a mirrored pair.
typedef float Signal[WIDEST];

// Computes the output columns of one layer for S samples, starting at column START. `in` contains the inputs of the
// layer, and the results are written to `out`. The noise `step` of a pair begins with the noise of the weights, and
// ends with the noise of the biases. If RANK is 0, the noise of the weights is a full matrix. Otherwise, it consists of
// the left and right factors of a low-rank matrix.
template <int IN, int OUT, int RANK, int PAIRS, int S, bool LAST, int START = 0>
FUNCTION void columns(const float* mean, const float* const* step, const float (*inner)[2][RANK + 1],
                      const Signal* in, Signal* out) {
  constexpr int LEFT = OUT - START;
  constexpr int N = widest(LEFT);
  constexpr int VECTORS = LEFT / N < TILE ? LEFT / N : TILE;
  constexpr int RIGHT = (RANK * IN + 3) / 4 * 4;  // offset of the right factors
  constexpr int BIAS = RANK ? RIGHT + RANK * OUT : IN * OUT;
  constexpr int ALONE = PAIRS ? 0 : S;  // samples without a step
  V<N> plus[PAIRS ? PAIRS : S][VECTORS], minus[PAIRS ? PAIRS : 1][VECTORS];
  UNROLLED for (int v = 0; v < VECTORS; ++v) {
    const int column = START + v * N;
    const V<N> m = load<N>(mean + IN * OUT + column);
    UNROLLED for (int s = 0; s < ALONE; ++s) plus[s][v] = m;
    UNROLLED for (int p = 0; p < PAIRS; ++p) {
      V<N> e = load<N>(step[p] + BIAS + column);
      plus[p][v] = m + e, minus[p][v] = m - e;
      UNROLLED for (int k = 0; k < RANK; ++k) {
        e = load<N>(step[p] + RIGHT + k * OUT + column);
        plus[p][v] += e * inner[p][0][k], minus[p][v] -= e * inner[p][1][k];
      }
    }
  }
  for (int i = 0; i < IN; ++i) {
    UNROLLED for (int v = 0; v < VECTORS; ++v) {
      const int entry = i * OUT + START + v * N;
      const V<N> m = load<N>(mean + entry);
      UNROLLED for (int s = 0; s < ALONE; ++s) plus[s][v] += m * in[s][i];
      UNROLLED for (int p = 0; p < PAIRS; ++p) {
        const V<N> e = RANK ? V<N>{} : load<N>(step[p] + entry);
        plus[p][v] += (RANK ? m : m + e) * in[2 * p][i];
        minus[p][v] += (RANK ? m : m - e) * in[2 * p + 1][i];
      }
    }
  }
  UNROLLED for (int v = 0; v < VECTORS; ++v) {
    const int column = START + v * N;
    UNROLLED for (int s = 0; s < ALONE; ++s) store<N>(out[s] + column, activated<N, LAST>(plus[s][v]));
    UNROLLED for (int p = 0; p < PAIRS; ++p) {
      store<N>(out[2 * p] + column, activated<N, LAST>(plus[p][v]));
      store<N>(out[2 * p + 1] + column, activated<N, LAST>(minus[p][v]));
    }
  }
  if constexpr (START + N * VECTORS < OUT)
    columns<IN, OUT, RANK, PAIRS, S, LAST, START + N * VECTORS>(mean, step, inner, in, out);
}

template <int IN, int OUT, int RANK, int PAIRS, int S, bool LAST>
static __attribute__((noinline)) void layer(const float* mean, const float* const* steps, int offset, Signal*& in,
                                            Signal*& out) {
  const float* step[PAIRS ? PAIRS : 1];
  float inner[PAIRS ? PAIRS : 1][2][RANK + 1];
  UNROLLED for (int p = 0; p < PAIRS; ++p) {
    step[p] = steps[p] + offset;
    UNROLLED for (int sign = 0; sign < 2; ++sign)
      UNROLLED for (int k = 0; k < RANK; ++k) inner[p][sign][k] = dot<IN>(step[p] + k * IN, in[2 * p + sign]);
  }
  columns<IN, OUT, RANK, PAIRS, S, LAST>(mean, step, inner, in, out);
  std::swap(in, out);
}

// Computes the actions of S samples. If PAIRS is 0, the samples are evaluations of one candidate. Otherwise, they are
// the 2 * PAIRS samples of PAIRS pairs.
template <int PAIRS, int S = 2 * PAIRS>
static void act(const float* mean, const float* const* steps, const float* const* observation, float* const* action) {
  alignas(64) Signal signals[2][S];
  Signal *in = signals[0], *out = signals[1];
  for (int s = 0; s < S; ++s) std::copy_n(observation[s], INPUTS, in[s]);
  @LAYERS@
  for (int s = 0; s < S; ++s) std::copy_n(in[s], OUTPUTS, action[s]);
}

namespace ffi = xla::ffi;
// Each genotype in candidates[count, DIM] is evaluated `repeats` times. The lanes are given by mean[lanes, DIM] and
// step[lanes, pairs, DRAWN]. The rows of observations and actions have this order:
// - for each candidate, its evaluations;
// - for each lane, the samples mean + step of all pairs, followed by the samples mean - step of all pairs.
static ffi::Error Run(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> candidates, ffi::Buffer<ffi::F32> mean,
                      ffi::Buffer<ffi::F32> step, ffi::Buffer<ffi::F32> observation,
                      ffi::ResultBuffer<ffi::F32> action, int64_t repeats) {
  const long count = candidates.dimensions()[0], lanes = step.dimensions()[0], pairs = step.dimensions()[1];
  const long shares = (repeats + SHARE - 1) / SHARE;  // work items per candidate
  const long groups = (pairs + TOGETHER - 1) / TOGETHER, alone = count * shares, items = alone + lanes * groups;
  const float* seen = observation.typed_data();
  float* done = action->typed_data();
  auto one = [&](long item) {
    const float* observations[std::max(SHARE, 2 * TOGETHER)];
    float* actions[std::max(SHARE, 2 * TOGETHER)];
    const auto place = [&](int s, long row) {
      observations[s] = seen + row * INPUTS, actions[s] = done + row * OUTPUTS;
    };
    if (item < alone) {
      const long candidate = item / shares, first = item % shares * SHARE;
      const float* genotype = candidates.typed_data() + candidate * DIM;
      for (int s = 0; s < SHARE; ++s) place(s, candidate * repeats + std::min<long>(first + s, repeats - 1));
      if (repeats == 1) return act<0, 1>(genotype, nullptr, observations, actions);
      return act<0, SHARE>(genotype, nullptr, observations, actions);
    }
    const long lane = (item - alone) / groups, first = (item - alone) % groups * TOGETHER;
    const float* steps[TOGETHER];
    for (int p = 0; p < TOGETHER; ++p) {
      const long pair = std::min(first + p, pairs - 1);
      steps[p] = step.typed_data() + (lane * pairs + pair) * DRAWN;
      for (int sign = 0; sign < 2; ++sign) place(2 * p + sign, count * repeats + (2 * lane + sign) * pairs + pair);
    }
    act<TOGETHER>(mean.typed_data() + lane * DIM, steps, observations, actions);
  };
  const long workers = std::max(1L, std::min<long>(pool.num_threads(), items / 4));
  in_parallel(pool, workers, [&](long worker) {
    for (long i = items * worker / workers; i < items * (worker + 1) / workers; ++i) one(i);
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Policies, Run, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()
    .Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>()
    .Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attr<int64_t>("repeats"));
