// Finds the COUNT smallest squared distances from each query to the points. A warp processes QUERIES queries. The
// points are divided into GROUPS groups. Each thread of a warp (a lane) processes EACH groups, and keeps their minimum
// distances to each query in registers. Then the warp selects the groups with the smallest minima, and searches these
// groups for the smallest distances.
constexpr int DIMENSIONS = @DIMENSIONS@;
constexpr int QUERIES = @QUERIES@;
constexpr int EACH = @EACH@;              // groups per lane, a multiple of 4
constexpr int AHEAD = @AHEAD@;            // batches to prefetch, a divisor of EACH / 4
constexpr int GROUPS = 32 * EACH;
constexpr int COUNT = @COUNT@;            // number of distances to return, at most GROUPS
constexpr int LISTS = (COUNT + 31) / 32;  // registers per lane for a sorted list of COUNT distances
constexpr int PARTS = 4;                  // members of a group that a lane reads together
constexpr unsigned WARP = 0xffffffffu;
#define FUNCTION static __device__ __forceinline__
#define FAR __int_as_float(0x7f800000)  // infinity

FUNCTION float smallest_of_warp(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __int_as_float(__reduce_min_sync(WARP, __float_as_int(x)));  // valid for non-negative numbers
#else
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x = fminf(x, __shfl_xor_sync(WARP, x, i));
  return x;
#endif
}

// by_member[DIMENSIONS, members, GROUPS] and by_group[GROUPS, DIMENSIONS, members] contain the same points in different
// orders, one for each of the two stages of the search. Unused places contain points at infinity.
extern "C" __global__ void __launch_bounds__(@THREADS@)
nearest(const float* query, const float* by_member, const float* by_group, float* out, int n, int members) {
  const int lane = threadIdx.x % 32;
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * QUERIES;
  const size_t points = (size_t)members * GROUPS;
  if (first >= n) return;
  query += (size_t)blockIdx.y * n * DIMENSIONS;
  by_member += blockIdx.y * points * DIMENSIONS;
  by_group += blockIdx.y * points * DIMENSIONS;
  out += (size_t)blockIdx.y * n * COUNT;

  float own[QUERIES][DIMENSIONS], minima[QUERIES][EACH];
#pragma unroll
  for (int q = 0; q < QUERIES; ++q) {
    const int row = first + q < n ? first + q : n - 1;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; ++d) own[q][d] = query[(size_t)row * DIMENSIONS + d];
#pragma unroll
    for (int j = 0; j < EACH; ++j) minima[q][j] = FAR;
  }
  // Every distance is computed with the same operations in the same order, so that results are bitwise equal.
  auto squared = [&](int q, const float (&point)[DIMENSIONS]) {
    float sum = 0.f;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; ++d) {
      const float difference = own[q][d] - point[d];
      sum = fmaf(difference, difference, sum);
    }
    return sum;
  };

  // A batch contains four points per lane. Each batch is prefetched while the AHEAD batches before it are processed.
  constexpr int BATCHES = EACH / 4;
  const int last_batch = members * BATCHES - 1;
  float4 buffer[AHEAD][DIMENSIONS];
  auto read = [&](float4 (&four)[DIMENSIONS], int batch) {
    const size_t offset = (size_t)(batch < last_batch ? batch : last_batch) * 128 + lane * 4;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; ++d)
      four[d] = *reinterpret_cast<const float4*>(by_member + d * points + offset);
  };
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) read(buffer[i], i);
#pragma unroll 1
  for (int member = 0; member < members; ++member) {
#pragma unroll
    for (int batch = 0; batch < BATCHES; ++batch) {
      float four[4][DIMENSIONS];
#pragma unroll
      for (int d = 0; d < DIMENSIONS; ++d) {
        const float4 x = buffer[batch % AHEAD][d];
        four[0][d] = x.x, four[1][d] = x.y, four[2][d] = x.z, four[3][d] = x.w;
      }
      read(buffer[batch % AHEAD], member * BATCHES + batch + AHEAD);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int q = 0; q < QUERIES; ++q)
          minima[q][4 * batch + i] = fminf(minima[q][4 * batch + i], squared(q, four[i]));
    }
  }

#pragma unroll
  for (int q = 0; q < QUERIES; ++q) {
    int chosen[LISTS];  // lane i % 32 stores group number i
    float furthest = FAR;
    int found = 0;
#pragma unroll
    for (int list = 0; list < LISTS; ++list) {
      chosen[list] = -1;
#pragma unroll 1
      for (int i = 0; i < 32 && 32 * list + i < COUNT; ++i) {
        float least = minima[q][0];
#pragma unroll
        for (int j = 1; j < EACH; ++j) least = fminf(least, minima[q][j]);
        const float smallest = smallest_of_warp(least);
        if (!(smallest < FAR)) break;  // true in all lanes if no group with points is left
        const int holder = __ffs(__ballot_sync(WARP, least == smallest)) - 1;
        int group = -1;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
          const bool taken = lane == holder && group < 0 && minima[q][j] == smallest;
          group = taken ? j / 4 * 128 + lane * 4 + j % 4 : group;
          minima[q][j] = taken ? FAR : minima[q][j];
        }
        group = __shfl_sync(WARP, group, holder);
        chosen[list] = lane == i ? group : chosen[list];
        ++found;
        furthest = smallest;
      }
    }
    if (found < COUNT) furthest = FAR;

    float sorted[LISTS];  // ascending over lanes, then over lists
#pragma unroll
    for (int list = 0; list < LISTS; ++list) sorted[list] = FAR;
    float last = FAR;  // largest distance in the list
#pragma unroll 1
    for (int i = 0; i < found; ++i) {
      int group = chosen[0];
#pragma unroll
      for (int list = 1; list < LISTS; ++list) group = i / 32 == list ? chosen[list] : group;
      group = __shfl_sync(WARP, group, i % 32);
      const float* base = by_group + (size_t)group * DIMENSIONS * members;
#pragma unroll 1
      for (int start = 0; start < members; start += 32 * PARTS) {
        float distances[PARTS];
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          const int member = start + 32 * part + lane;
          float point[DIMENSIONS];
#pragma unroll
          for (int d = 0; d < DIMENSIONS; ++d)
            point[d] = member < members ? base[(size_t)d * members + member] : FAR;
          distances[part] = squared(q, point);
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          unsigned waiting = __ballot_sync(WARP, distances[part] <= furthest && distances[part] < last);
          while (waiting) {
            const float value = __shfl_sync(WARP, distances[part], __ffs(waiting) - 1);
            waiting &= waiting - 1;
            if (!(value < last)) continue;
            float before = -FAR;  // last entry of the previous list
#pragma unroll
            for (int list = 0; list < LISTS; ++list) {
              float previous = __shfl_up_sync(WARP, sorted[list], 1);
              const float end = __shfl_sync(WARP, sorted[list], 31);
              if (lane == 0) previous = before;
              before = end;
              sorted[list] = sorted[list] <= value ? sorted[list] : fmaxf(previous, value);
            }
            last = __shfl_sync(WARP, sorted[LISTS - 1], (COUNT - 1) % 32);
          }
        }
      }
    }
    if (first + q < n) {
#pragma unroll
      for (int list = 0; list < LISTS; ++list) {
        const int place = 32 * list + lane;
        if (place < COUNT) out[(size_t)(first + q) * COUNT + place] = sorted[list];
      }
    }
  }
}
