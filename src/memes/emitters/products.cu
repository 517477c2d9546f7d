// Helpers of training.cu: synchronisation of blocks, distribution of jobs, and matrix products on tensor cores.
// training.cu defines THREADS (per block), stage() and FUNCTION.

// A gate synchronises all blocks between phases. A block arrives at the gate when its jobs are done. Before a block
// reads the results of other blocks, it waits until all blocks have arrived. A block that has not waited may only read
// data from earlier phases. Thread 0 releases all writes of its block. It also acquires the writes of all other
// blocks, on behalf of its block. __syncthreads is part of PTX's causality order, so plain reads never return stale
// cache lines.
struct Gate { unsigned *arrived, due; bool open; };

FUNCTION void await(Gate& gate) {
  if (gate.open) return;
  gate.open = true;
  if (threadIdx.x == 0) {
#ifdef __CUDA_ARCH__
    unsigned seen;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(gate.arrived) : "memory");
    while (int(gate.due - seen) > 0);  // also correct if the count wraps around
#else  // tests on a CPU
    while (int(gate.due - __atomic_load_n(gate.arrived, __ATOMIC_ACQUIRE)) > 0) __nanosleep(20);
#endif
  }
  __syncthreads();
}

FUNCTION void arrive(Gate& gate) {
  await(gate);
  gate.due += gridDim.x, gate.open = false;
  __syncthreads();
  if (threadIdx.x == 0) {
#ifdef __CUDA_ARCH__
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(gate.arrived) : "memory");
#else
    __atomic_fetch_add(gate.arrived, 1u, __ATOMIC_RELEASE);
#endif
  }
}

// Assigns jobs to the blocks in turn. Each call continues after the block that received
// the last job of the previous call.
template <class Job> FUNCTION void share(int& turn, int count, Job job) {
#pragma unroll 1
  for (; turn < count; turn += gridDim.x) job(turn);
  turn -= count;
}

// -------------------------------------------------------------------------------------------- products

// A tensor core reads 11 bits of a number's significand. Therefore each number is split into a rounded part and a
// remainder. The product of two numbers is approximated by the sum of the products of their parts, without the product
// of the two remainders. The error is about as large as in float32.
FUNCTION float cut(float x) { return __int_as_float(__float_as_int(x) & ~0x1fff); }
FUNCTION float rounded(float x) { return cut(__int_as_float(__float_as_int(x) + 0x1000)); }

// Adds a[16, 8] times b[8, 8] to sum[16, 8]. Thread 4 * i + j of the warp holds these entries [row, column]:
// - a: [i, j], [i + 8, j], [i, j + 4], [i + 8, j + 4];
// - b: [j, i], [j + 4, i];
// - sum: [i, 2 * j], [i, 2 * j + 1], [i + 8, 2 * j], [i + 8, 2 * j + 1].
FUNCTION void multiply(float* sum, const float* a, const float* b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(__float_as_int(a[0])), "r"(__float_as_int(a[1])), "r"(__float_as_int(a[2])), "r"(__float_as_int(a[3])),
        "r"(__float_as_int(b[0])), "r"(__float_as_int(b[1])));
#else  // older GPUs, and tests on a CPU
  const int i = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
  float *left = reinterpret_cast<float*>(stage() + threadIdx.x / 32 * 256), *right = left + 128;
  for (int k = 0; k < 4; ++k) left[(i + k % 2 * 8) * 8 + j + k / 2 * 4] = cut(a[k]);
  for (int k = 0; k < 2; ++k) right[(j + k * 4) * 8 + i] = cut(b[k]);
  __syncwarp();
  for (int n = 0; n < 4; ++n)
    for (int k = 0; k < 8; ++k) sum[n] += left[(i + n / 2 * 8) * 8 + k] * right[k * 8 + 2 * j + n % 2];
  __syncwarp();
#endif
}

// Sixteen columns of a matrix [32, depth]. The matrix is stored as [32, depth] if ACROSS, otherwise as [depth, 32].
// Each thread of a warp holds 16 entries, which lie in four rows and four columns. Thread `lane` of the warp holds the
// columns 4 * (lane % 4) + k, with k = 0, ..., 3.
template <bool ACROSS> struct Piece {
  float4 x[4];
  __device__ __forceinline__ static int row(int i, int lane) { return ACROSS ? 8 * i + lane / 4 : lane / 4 * 4 + i; }
  __device__ __forceinline__ void read(const float* at, int stride, int start) {
    const int lane = threadIdx.x % 32, column = start + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = __ldcg(reinterpret_cast<const float4*>(
          ACROSS ? at + (8 * i + lane / 4) * stride + column : at + (column + i) * stride + lane / 4 * 4));
  }
  __device__ __forceinline__ float at(int i, int k) const {
    const float4 v = x[ACROSS ? i : k];
    const int n = ACROSS ? k : i;
    return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w;
  }
};

// Multiplies `a` [32, depth] by the transpose of `b` [32, depth]. Each thread returns four adjacent entries of row
// threadIdx.x / 8, starting at column threadIdx.x % 8 * 4. If `scale` is given, it contains a factor for each column of
// `a`. Each warp computes a part of the sum over the depth, and reads its operands directly into registers. `early` is
// the number of matrices that the function reads before it calls `ready`: 0 for none, 1 for only `b`, or 2 for both.
template <bool A_ACROSS, bool B_ACROSS, class Ready>
FUNCTION float4 product(const float* a, int a_stride, const float* b, int b_stride, int depth, const float* scale,
                        int early, Ready ready) {
  constexpr int AHEAD = 2, WARPS = THREADS / 32;  // pieces that are read before the first one is used
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum[2][4][4] = {};
  Piece<A_ACROSS> left[AHEAD];
  Piece<B_ACROSS> right[AHEAD];
  auto read = [&](int start, bool first, bool second) {
#pragma unroll
    for (int n = 0; n < AHEAD; ++n)
      if (const int k = start + 16 * WARPS * n; k < depth) {
        if (second) right[n].read(b, b_stride, k);
        if (first) left[n].read(a, a_stride, k);
      }
  };
  read(16 * warp, early > 1, early > 0);
  ready();
  read(16 * warp, early <= 1, early <= 0);
#pragma unroll 1
  for (int start = 16 * warp; start < depth;) {
#pragma unroll
    for (int n = 0; n < AHEAD; ++n)
      if (const int k = start + 16 * WARPS * n; k < depth) {
        const float4 s = scale ? four(scale + k + lane % 4 * 4) : float4{1.f, 1.f, 1.f, 1.f};
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // eight columns, two per lane
          float x[2][2][4], y[2][4][2];         // rounded parts and remainders of 16 rows of `a` and 8 rows of `b`
#pragma unroll
          for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const float by = half ? (j ? s.w : s.z) : j ? s.y : s.x;
              const float u = left[n].at(i, 2 * half + j) * by, v = right[n].at(i, 2 * half + j);
              const float most = rounded(u), more = rounded(v);
              x[0][i / 2][2 * j + i % 2] = most, x[1][i / 2][2 * j + i % 2] = u - most;
              y[0][i][j] = more, y[1][i][j] = v - more;
            }
#pragma unroll
          for (int part = 2; part >= 0; --part)  // adds the small products first
#pragma unroll
            for (int i = 0; i < 8; ++i) multiply(sum[i / 4][i % 4], x[part == 2][i / 4], y[part == 1][i % 4]);
        }
      }
    start += 16 * WARPS * AHEAD;
    read(start, true, true);
  }
  // Writes the sums of all warps to the stage as [WARPS, 32, 32], in an order that avoids bank conflicts.
  float4* found = stage();
  auto place = [](int row, int column) {
    const int i = A_ACROSS ? row % 8 : row / 4;
    return 8 * row + (column / 4 ^ (i % 4 * 2 + i % 2));
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = Piece<A_ACROSS>::row(i, lane), n = i % 2 * 2;
    const auto& own = sum[i / 2];
    float4* to = found + 256 * warp;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (B_ACROSS)
        reinterpret_cast<float2*>(to + place(row, 8 * j + lane % 4 * 2))[lane % 2] = {own[j][n], own[j][n + 1]};
      else if (j < 2)
        to[place(row, 8 * (lane % 4) + 4 * j)] = {own[0][n + j], own[1][n + j], own[2][n + j], own[3][n + j]};
  }
  __syncthreads();
  const int own = place(threadIdx.x / 8, threadIdx.x % 8 * 4);
  float4 total = found[own];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) {
    const float4 x = found[256 * w + own];
    total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
  }
  __syncthreads();
  return total;
}
