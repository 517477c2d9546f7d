// Policies of mirrored pairs: a warp has both of a pair. What is drawn for the pair is read once, and the
// mean of its lane, which many pairs share, lies in shared memory. Candidates are whole, a warp has one.
constexpr int WARPS = @WARPS@;
constexpr int EACH = @EACH@;      // pairs of a warp, one after the other
constexpr int INPUTS = @INPUTS@;
constexpr int OUTPUTS = @OUTPUTS@;
constexpr int WIDEST = @WIDEST@;  // of all layers
constexpr int DIM = @DIM@;        // entries of a genotype
constexpr int DRAWN = @DRAWN@;    // numbers that are drawn for a pair
constexpr bool SHARED = 4 * DIM + 8 * WARPS * WIDEST <= 48 * 1024;
constexpr unsigned WARP = 0xffffffffu;
#define FUNCTION static __device__ __forceinline__

struct alignas(8) Two { float plus, minus; };  // of the two samples of a pair
template <int N> struct alignas(4 * N) Some { float x[N]; };
template <int N>
FUNCTION Some<N> some(const float* from) { return *reinterpret_cast<const Some<N>*>(from); }

// What is not a number stays so, in both: a robot that fails must be seen to fail.
FUNCTION float relu(float x) { return x < 0.f ? 0.f : x; }
FUNCTION float tangent(float x) { return tanhf(x); }
FUNCTION float hidden(float x) { return @HIDDEN@(x); }
FUNCTION float output(float x) { return @OUTPUT@(x); }

FUNCTION float sum_of_warp(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(WARP, x, i);
  return x;
}

// One layer for a warp, from `signal` into it. A lane has N neighbouring columns; where a row is narrower
// than the warp, other PARTS of the lanes have other rows. A step is a matrix, or where it has a RANK the
// left and the right factors, and then the biases.
template <int IN, int OUT, int N, int RANK, bool PAIRED, bool LAST>
FUNCTION void layer(const float* mean, const float* step, Two* signal) {
  constexpr int GROUP = OUT / N, TILES = (GROUP + 31) / 32, PARTS = TILES > 1 ? 1 : 32 / GROUP;
  constexpr int LEFT = (RANK * IN + 3) / 4 * 4;  // so that what follows is aligned
  constexpr bool DENSE = PAIRED && RANK == 0;
  const int lane = threadIdx.x % 32;
  const int part = TILES > 1 ? 0 : lane / GROUP;
  const float* bias = step + (RANK ? LEFT + RANK * OUT : IN * OUT);

  Two inner[RANK + 1];
  if (PAIRED && RANK) {
#pragma unroll
    for (int k = 0; k < RANK; ++k) {
      Two sum = {0.f, 0.f};
#pragma unroll
      for (int start = 0; start < IN; start += 32) {
        if (start + lane >= IN) continue;
        const float e = step[k * IN + start + lane];
        const Two in = signal[start + lane];
        sum.plus += e * in.plus, sum.minus += e * in.minus;
      }
      inner[k] = sum;
    }
#pragma unroll
    for (int k = 0; k < RANK; ++k)
      inner[k] = {sum_of_warp(inner[k].plus), sum_of_warp(inner[k].minus)};
  }

  Two total[TILES][N];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int column = (TILES > 1 ? 32 * tile + lane : lane % GROUP) * N;
    const bool busy = part < PARTS && column < OUT;
#pragma unroll
    for (int c = 0; c < N; ++c) total[tile][c] = {0.f, 0.f};
    if (busy) {
#pragma unroll 8
      for (int k = 0; k < (IN + PARTS - 1) / PARTS; ++k) {
        const int i = k * PARTS + part;
        if (IN % PARTS && i >= IN) continue;
        const Some<N> m = some<N>(mean + i * OUT + column);
        const Some<N> e = DENSE ? some<N>(step + i * OUT + column) : Some<N>{};
        const Two in = signal[i];
#pragma unroll
        for (int c = 0; c < N; ++c) {
          total[tile][c].plus += (DENSE ? m.x[c] + e.x[c] : m.x[c]) * in.plus;
          if (PAIRED) total[tile][c].minus += (DENSE ? m.x[c] - e.x[c] : m.x[c]) * in.minus;
        }
      }
    }
    if (busy && part == 0) {
      const Some<N> m = some<N>(mean + IN * OUT + column);
      const Some<N> e = PAIRED ? some<N>(bias + column) : Some<N>{};
#pragma unroll
      for (int c = 0; c < N; ++c)
        total[tile][c].plus += m.x[c] + e.x[c], total[tile][c].minus += m.x[c] - e.x[c];
      if (PAIRED && RANK) {
#pragma unroll
        for (int k = 0; k < RANK; ++k) {
          const Some<N> e = some<N>(step + LEFT + k * OUT + column);
#pragma unroll
          for (int c = 0; c < N; ++c)
            total[tile][c].plus += inner[k].plus * e.x[c], total[tile][c].minus -= inner[k].minus * e.x[c];
        }
      }
    }
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const Two own = total[tile][c];
#pragma unroll
      for (int other = 1; other < PARTS; ++other) {
        const int from = lane % GROUP + other * GROUP;
        total[tile][c].plus += __shfl_sync(WARP, own.plus, from);
        if (PAIRED) total[tile][c].minus += __shfl_sync(WARP, own.minus, from);
      }
    }
  }
  __syncwarp();  // all have read the signal
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int column = (TILES > 1 ? 32 * tile + lane : lane % GROUP) * N;
    if (part == 0 && column < OUT) {
#pragma unroll
      for (int c = 0; c < N; ++c) {
        const Two x = total[tile][c];
        signal[column + c] = LAST ? Two{output(x.plus), output(x.minus)} : Two{hidden(x.plus), hidden(x.minus)};
      }
    }
  }
  __syncwarp();
}

// The actions of two samples, or of one that has no step.
template <bool PAIRED>
FUNCTION void act(const float* mean, const float* step, Two* signal, const float* observation, float* action,
                  size_t row, size_t mirrored) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int start = 0; start < INPUTS; start += 32)
    if (const int i = start + lane; i < INPUTS)
      signal[i] = {observation[row * INPUTS + i], PAIRED ? observation[mirrored * INPUTS + i] : 0.f};
  __syncwarp();
  @LAYERS@
#pragma unroll
  for (int start = 0; start < OUTPUTS; start += 32)
    if (const int i = start + lane; i < OUTPUTS) {
      action[row * OUTPUTS + i] = signal[i].plus;
      if (PAIRED) action[mirrored * OUTPUTS + i] = signal[i].minus;
    }
  __syncwarp();
}

// candidates[count, DIM], mean[lanes, DIM], step[lanes, pairs, DRAWN]; observations and actions have rows for
// the candidates, and then of each lane for mean + step of all its pairs and for mean - step.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
policies(const float* __restrict__ candidates, const float* __restrict__ mean, const float* __restrict__ step,
         const float* __restrict__ observation, float* __restrict__ action, int count, int lanes, int pairs) {
  alignas(16) __shared__ float shared[SHARED ? DIM : 1];
  __shared__ Two signals[WARPS][WIDEST];
  const size_t batch = blockIdx.y, rows = count + (size_t)2 * lanes * pairs;
  candidates += batch * count * DIM;
  mean += batch * lanes * DIM;
  step += batch * lanes * pairs * DRAWN;
  observation += batch * rows * INPUTS;
  action += batch * rows * OUTPUTS;

  const int warp = threadIdx.x / 32;
  const int alone = (count + WARPS - 1) / WARPS;  // blocks of candidates
  if (blockIdx.x < alone) {
    const int row = blockIdx.x * WARPS + warp;
    if (row < count) act<false>(candidates + (size_t)row * DIM, nullptr, signals[warp], observation, action, row, row);
    return;
  }
  const int blocks = (pairs + WARPS * EACH - 1) / (WARPS * EACH);  // of a lane
  const int own = (blockIdx.x - alone) / blocks;
  const int first = (blockIdx.x - alone) % blocks * WARPS * EACH;
  const float* centre = mean + (size_t)own * DIM;
  if (SHARED) {
    for (int i = threadIdx.x; i < DIM; i += 32 * WARPS) shared[i] = centre[i];
    __syncthreads();
    centre = shared;
  }
#pragma unroll 1
  for (int k = 0; k < EACH; ++k) {
    const int pair = first + k * WARPS + warp;
    if (pair >= pairs) break;
    const size_t row = count + (size_t)own * 2 * pairs + pair;
    act<true>(centre, step + ((size_t)own * pairs + pair) * DRAWN, signals[warp], observation, action, row, row + pairs);
  }
}
