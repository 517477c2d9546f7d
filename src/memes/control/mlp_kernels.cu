// Computes the actions of policies on GPUs, for mirrored pairs and for repeated genotypes. A warp computes both samples
// of a pair, and reads the noise of the pair once. The pairs of a lane share a mean, which is copied to shared memory
// if it fits. If a genotype is evaluated several times, a warp reads each weight once for SHARE evaluations.
constexpr int WARPS = @WARPS@;
constexpr int EACH = @EACH@;      // pairs that a warp computes, one after the other
constexpr int SHARE = @SHARE@;    // evaluations of a genotype that a warp computes together
constexpr int INPUTS = @INPUTS@;
constexpr int OUTPUTS = @OUTPUTS@;
constexpr int WIDEST = @WIDEST@;  // largest width of a signal
constexpr int DIM = @DIM@;        // entries of a genotype
constexpr int DRAWN = @DRAWN@;    // noise values of a pair, including padding
constexpr bool SHARED = 4 * DIM + 8 * WARPS * WIDEST <= 48 * 1024;
constexpr unsigned WARP = 0xffffffffu;
#define FUNCTION static __device__ __forceinline__

typedef @DRAWN_TYPE@ Drawn;  // float, or the bits of a bfloat16
template <class T, int N> struct alignas(sizeof(T) * N) Vector { T x[N]; };
template <int N> using Some = Vector<float, N>;
FUNCTION float number(float x) { return x; }
FUNCTION float number(unsigned short bits) { return __int_as_float((int)bits << 16); }
template <int N, class T>
FUNCTION Some<N> some(const T* from) {
  const Vector<T, N> v = *reinterpret_cast<const Vector<T, N>*>(from);
  Some<N> found;
#pragma unroll
  for (int c = 0; c < N; ++c) found.x[c] = number(v.x[c]);
  return found;
}

// Both activations preserve NaN, so that failed robots are detected.
FUNCTION float relu(float x) { return x < 0.f ? 0.f : x; }
FUNCTION float tangent(float x) { return tanhf(x); }
FUNCTION float hidden(float x) { return @HIDDEN@(x); }
FUNCTION float output(float x) { return @OUTPUT@(x); }

FUNCTION float sum_of_warp(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(WARP, x, i);
  return x;
}

// Computes one layer with one warp. `signal` contains the inputs of the layer, which are replaced by its outputs. The S
// samples are the two samples of a pair, or evaluations that share all weights. A thread computes N adjacent columns.
// If a row does not occupy the whole warp, the warp is divided into PARTS parts, and each part computes different rows.
// `step` contains the noise of a pair: first the noise of the weights, then the noise of the biases. If RANK is 0, the
// noise of the weights is a full matrix. Otherwise, it consists of the left and right factors of a low-rank matrix.
template <int IN, int OUT, int N, int RANK, bool PAIRED, int S, bool LAST>
FUNCTION void layer(const float* mean, const Drawn* step, Some<S>* signal) {
  constexpr int GROUP = OUT / N, TILES = (GROUP + 31) / 32, PARTS = TILES > 1 ? 1 : 32 / GROUP;
  constexpr int LEFT = (RANK * IN + 3) / 4 * 4;  // aligns the right factors
  constexpr bool DENSE = PAIRED && RANK == 0;
  constexpr int DEEP = PAIRED || S == 1 ? 8 : @AHEAD@;  // number of rows to prefetch
  const int lane = threadIdx.x % 32;
  const int part = TILES > 1 ? 0 : lane / GROUP;
  const Drawn* bias = step + (RANK ? LEFT + RANK * OUT : IN * OUT);

  Some<S> inner[RANK + 1];
  if (PAIRED && RANK) {
#pragma unroll
    for (int k = 0; k < RANK; ++k) {
      Some<S> sum = {};
#pragma unroll
      for (int start = 0; start < IN; start += 32) {
        if (start + lane >= IN) continue;
        const float e = number(step[k * IN + start + lane]);
        const Some<S> in = signal[start + lane];
#pragma unroll
        for (int s = 0; s < S; ++s) sum.x[s] += e * in.x[s];
      }
      inner[k] = sum;
    }
#pragma unroll
    for (int k = 0; k < RANK; ++k)
#pragma unroll
      for (int s = 0; s < S; ++s) inner[k].x[s] = sum_of_warp(inner[k].x[s]);
  }

  Some<S> total[TILES][N];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int column = (TILES > 1 ? 32 * tile + lane : lane % GROUP) * N;
    const bool busy = part < PARTS && column < OUT;
#pragma unroll
    for (int c = 0; c < N; ++c) total[tile][c] = {};
    if (busy) {
#pragma unroll DEEP
      for (int k = 0; k < (IN + PARTS - 1) / PARTS; ++k) {
        const int i = k * PARTS + part;
        if (IN % PARTS && i >= IN) continue;
        const Some<N> m = some<N>(mean + i * OUT + column);
        const Some<N> e = DENSE ? some<N>(step + i * OUT + column) : Some<N>{};
        const Some<S> in = signal[i];
#pragma unroll
        for (int c = 0; c < N; ++c)
#pragma unroll
          for (int s = 0; s < S; ++s)
            total[tile][c].x[s] += (!DENSE ? m.x[c] : s ? m.x[c] - e.x[c] : m.x[c] + e.x[c]) * in.x[s];
      }
    }
    if (busy && part == 0) {
      const Some<N> m = some<N>(mean + IN * OUT + column);
      const Some<N> e = PAIRED ? some<N>(bias + column) : Some<N>{};
#pragma unroll
      for (int c = 0; c < N; ++c)
#pragma unroll
        for (int s = 0; s < S; ++s) total[tile][c].x[s] += s ? m.x[c] - e.x[c] : m.x[c] + e.x[c];
      if (PAIRED && RANK) {
#pragma unroll
        for (int k = 0; k < RANK; ++k) {
          const Some<N> e = some<N>(step + LEFT + k * OUT + column);
#pragma unroll
          for (int c = 0; c < N; ++c)
#pragma unroll
            for (int s = 0; s < S; ++s)
              total[tile][c].x[s] += inner[k].x[s] * (s ? -e.x[c] : e.x[c]);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const Some<S> own = total[tile][c];
#pragma unroll
      for (int other = 1; other < PARTS; ++other) {
        const int from = lane % GROUP + other * GROUP;
#pragma unroll
        for (int s = 0; s < S; ++s) total[tile][c].x[s] += __shfl_sync(WARP, own.x[s], from);
      }
    }
  }
  __syncwarp();  // all threads have read the signal
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int column = (TILES > 1 ? 32 * tile + lane : lane % GROUP) * N;
    if (part == 0 && column < OUT) {
#pragma unroll
      for (int c = 0; c < N; ++c) {
        Some<S> x = total[tile][c];
#pragma unroll
        for (int s = 0; s < S; ++s) x.x[s] = LAST ? output(x.x[s]) : hidden(x.x[s]);
        signal[column + c] = x;
      }
    }
  }
  __syncwarp();
}

// Computes the actions of S samples in the rows `row`, `row + stride`, ..., `row + last * stride`. If there are fewer
// than S rows, the remaining samples repeat the last row.
template <bool PAIRED, int S>
FUNCTION void act(const float* mean, const Drawn* step, float* memory, const float* observation, float* action,
                  size_t row, size_t stride, int last) {
  Some<S>* signal = reinterpret_cast<Some<S>*>(memory);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int start = 0; start < INPUTS; start += 32)
    if (const int i = start + lane; i < INPUTS) {
      Some<S> seen;
#pragma unroll
      for (int s = 0; s < S; ++s) seen.x[s] = observation[(row + min(s, last) * stride) * INPUTS + i];
      signal[i] = seen;
    }
  __syncwarp();
  @LAYERS@
#pragma unroll
  for (int start = 0; start < OUTPUTS; start += 32)
    if (const int i = start + lane; i < OUTPUTS) {
#pragma unroll
      for (int s = 0; s < S; ++s)
        if (s <= last) action[(row + s * stride) * OUTPUTS + i] = signal[i].x[s];
    }
  __syncwarp();
}

// Each genotype in candidates[count, DIM] is evaluated `repeats` times. The lanes are given by mean[lanes, DIM] and
// step[lanes, pairs, DRAWN]. The rows of observations and actions have this order:
// - for each candidate, its evaluations;
// - for each lane, the samples mean + step of all pairs, followed by the samples mean - step of all pairs.
extern "C" __global__ void __launch_bounds__(32 * WARPS, @RESIDENT@)
policies(const float* __restrict__ candidates, const float* __restrict__ mean, const Drawn* __restrict__ step,
         const float* __restrict__ observation, float* __restrict__ action, int count, int repeats, int lanes,
         int pairs) {
  constexpr int OWN = SHARED ? DIM : 0, PAIRED = 2 * WARPS * WIDEST, ALONE = SHARE * WARPS * WIDEST;
  alignas(32) __shared__ float memory[PAIRED + OWN > ALONE ? PAIRED + OWN : ALONE];
  const size_t batch = blockIdx.y, first_pair = (size_t)count * repeats, rows = first_pair + (size_t)2 * lanes * pairs;
  candidates += batch * count * DIM;
  mean += batch * lanes * DIM;
  step += batch * lanes * pairs * DRAWN;
  observation += batch * rows * INPUTS;
  action += batch * rows * OUTPUTS;

  const int warp = threadIdx.x / 32;
  const int groups = (repeats + SHARE - 1) / SHARE;         // work items per candidate
  const int alone = (count * groups + WARPS - 1) / WARPS;  // blocks that compute candidates
  if (blockIdx.x < alone) {
    const int item = blockIdx.x * WARPS + warp, candidate = item / groups, first = item % groups * SHARE;
    if (item < count * groups)
      act<false, SHARE>(candidates + (size_t)candidate * DIM, nullptr, memory + warp * SHARE * WIDEST, observation,
                        action, (size_t)candidate * repeats + first, 1, min(SHARE, repeats - first) - 1);
    return;
  }
  const int blocks = (pairs + WARPS * EACH - 1) / (WARPS * EACH);  // blocks per lane
  const int own = (blockIdx.x - alone) / blocks;
  const int first = (blockIdx.x - alone) % blocks * WARPS * EACH;
  const float* centre = mean + (size_t)own * DIM;
  if (SHARED) {
    float* shared = memory + PAIRED;
    for (int i = threadIdx.x; i < DIM; i += 32 * WARPS) shared[i] = centre[i];
    __syncthreads();
    centre = shared;
  }
#pragma unroll 1
  for (int k = 0; k < EACH; ++k) {
    const int pair = first + k * WARPS + warp;
    if (pair >= pairs) break;
    const size_t row = first_pair + (size_t)own * 2 * pairs + pair;
    act<true, 2>(centre, step + ((size_t)own * pairs + pair) * DRAWN, memory + warp * 2 * WIDEST, observation, action,
                 row, pairs, 1);
  }
}
