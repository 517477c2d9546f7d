// The order in which robots are simulated: those that may come near an obstacle, whose flags are negative, first.
// So the long ones are begun before the others, and few warps are of both kinds.
constexpr int WARPS = @WARPS@;
constexpr unsigned WARP = 0xffffffffu;

// One block for each row of n flags; a warp has a stretch of them.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
sort(const float* __restrict__ flags, int* __restrict__ order, int n) {
  __shared__ int found[WARPS];
  flags += (size_t)blockIdx.y * n;
  order += (size_t)blockIdx.y * n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int each = (n + 32 * WARPS - 1) / (32 * WARPS) * 32, start = warp * each;
  const int end = start + each < n ? start + each : n;
  auto near = [&](int i) { return __ballot_sync(WARP, i + lane < end && flags[i + lane] < 0.f); };

  int own = 0;
#pragma unroll 8
  for (int i = start; i < end; i += 32) own += __popc(near(i));
  if (lane == 0) found[warp] = own;
  __syncthreads();
  int before = 0, all = 0;  // that are near, of the warps before this one and of all
  for (int i = 0; i < WARPS; ++i) {
    if (i < warp) before += found[i];
    all += found[i];
  }
#pragma unroll 8
  for (int i = start; i < end; i += 32) {
    const unsigned mask = near(i);
    const int nearer = before + __popc(mask & ((1u << lane) - 1));
    if (i + lane < end) order[mask >> lane & 1 ? nearer : all + i + lane - nearer] = i + lane;
    before += __popc(mask);
  }
}
