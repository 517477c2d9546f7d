// Trains the networks of TD3. One kernel launch computes all rounds. A round consists of DELAY steps of the two critics
// and one step of the actor. The actor step uses the batch of the last critic step. All blocks run at once and
// synchronise after every phase. For the critics, each block computes 32 x 32 entries of a matrix product on tensor
// cores. The actor's layers are small, so each block computes all layers for a few rows of the batch. All widths are
// padded with zeros to multiples of 32. The padding stays zero during training, because its weights have zero
// gradients.
constexpr int THREADS = 256;
constexpr int OBSERVATION = @OBSERVATION@, ACTION = @ACTION@, BATCH = @BATCH@, ROWS = @ROWS@, DELAY = @DELAY@;
constexpr int LAYERS = @LAYERS@;              // hidden layers of a critic
constexpr int ACTOR_LAYERS = @ACTOR_LAYERS@;  // layers of the actor, including its output layer
constexpr int CRITIC = @CRITIC@, ACTOR = @ACTOR@;  // parameters of a critic and of the actor
constexpr int WIDEST = @WIDEST@;              // largest width of the actor's signals
constexpr int TOGETHER = WIDEST <= 256 ? 8 : 4;  // rows that one block computes through the actor
constexpr float RATE = @RATE@, ACTOR_RATE = @ACTOR_RATE@, DISCOUNT = @DISCOUNT@, FOLLOW = @FOLLOW@;
#define FUNCTION static __device__ __forceinline__
// Signals are the inputs of the layers and the output of the last layer. `width` contains the width of each signal.
// For each signal, `before` contains the total width of the signals that precede it in memory. `matrix` and `bias`
// contain the offsets of the layers' parameters.
__constant__ int width[] = {@WIDTHS@};
__constant__ int matrix[] = {@MATRICES@};
__constant__ int bias[] = {@BIASES@};
__constant__ int before[] = {@BEFORE@};
__constant__ int actor_width[] = {@ACTOR_WIDTHS@};
__constant__ int actor_matrix[] = {@ACTOR_MATRICES@};
__constant__ int actor_bias[] = {@ACTOR_BIASES@};
__constant__ int actor_before[] = {@ACTOR_BEFORE@};
constexpr int IN = @IN@, TILES = @TILES@, SIGNALS = @SIGNALS@, ACTOR_SIGNALS = @ACTOR_SIGNALS@;

// Offsets of data in the array `work`, through which blocks exchange data between phases.
constexpr int INPUTS = 0;                              // observations and actions [DELAY, ROWS, IN]
constexpr int FOLLOWING = INPUTS + DELAY * ROWS * IN;  // next observations and their actions [DELAY, ROWS, IN]
constexpr int PROPOSED = FOLLOWING + DELAY * ROWS * IN;  // observations and the actor's actions [ROWS, IN]
constexpr int REWARD = PROPOSED + ROWS * IN;           // rewards [DELAY, ROWS]
constexpr int LASTING = REWARD + DELAY * ROWS;         // discount, or 0 at the end of an episode [DELAY, ROWS]
constexpr int SIGNAL = LASTING + DELAY * ROWS;         // signals of each hidden layer [2, ROWS, width]
constexpr int SLOPE = SIGNAL + 2 * ROWS * SIGNALS;     // gradient of the value w.r.t. the pre-activations
constexpr int SLOW = SLOPE + 2 * ROWS * SIGNALS;       // signals of the target critics [2, ROWS, width]
constexpr int VALUE = SLOW + 2 * ROWS * SIGNALS;       // partial sums of the values [2, TILES, ROWS]
constexpr int SLOW_VALUE = VALUE + 2 * TILES * ROWS;   // partial sums of the target critics' values
constexpr int ACTED = SLOW_VALUE + 2 * TILES * ROWS;   // signals of the actor [ROWS, width]
constexpr int ACTOR_SLOPE = ACTED + ROWS * ACTOR_SIGNALS;

FUNCTION float relu(float x) { return x < 0.f ? 0.f : x; }
FUNCTION float tangent(float x) { return tanhf(x); }
FUNCTION float relu_slope(float y) { return y > 0.f ? 1.f : 0.f; }  // derivative at relu(x) = y
FUNCTION float tangent_slope(float y) { return 1.f - y * y; }
FUNCTION float4& four(float* at) { return *reinterpret_cast<float4*>(at); }
FUNCTION float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }

constexpr int STAGE = 2304;  // size in float4
static_assert(STAGE >= THREADS / 32 * 256, "each warp has a tile of 32 x 32 on the stage");
static_assert(4 * STAGE >= TOGETHER * (2 * WIDEST + THREADS), "the stage has rows of two layers and parts of their sums");
static_assert(16 * STAGE + 8 * ROWS <= 48 * 1024, "a block's memory is 48 KB");
FUNCTION float4* stage() {  // working memory of a block during a job
  __shared__ float4 numbers[STAGE];
  return numbers;
}
FUNCTION float* errors() {  // gradient of the critics' loss w.r.t. their values [2, ROWS]; read as float4
  alignas(16) __shared__ float numbers[2 * ROWS];
  return numbers;
}

@PRODUCTS@

// Computes the signals after layer l of `count` critics. `in` is the input of the first critic. The input of the second
// critic starts `apart` elements later. For the last hidden layer, the function also computes:
// - the gradient of the critics' values w.r.t. the pre-activations of this layer;
// - one partial sum of the values for each tile.
FUNCTION void forward(int& turn, Gate& gate, const float* nets, int count, int l, const float* in, int apart,
                      float* out, float* slope, float* value) {
  const int wide = width[l], next = width[l + 1], across = next / 32, each = ROWS / 32 * across;
  const int i = threadIdx.x / 8, j = threadIdx.x % 8 * 4;
  share(turn, count * each, [&](int job) {
    const int net = job / each, row = job % each / across * 32, column = job % across * 32;
    const int place = (net * ROWS + row + i) * next + column + j;
    const float* own = nets + net * CRITIC;
    const float4 b = four(own + bias[l] + column + j);
    const float4 w = four(own + matrix[LAYERS] + (l + 1 < LAYERS ? 0 : column) + j);
    const float last = own[bias[LAYERS]];
    float4 x = product<true, false>(in + net * apart + row * wide, wide, own + matrix[l] + column, next, wide, nullptr,
                                    1, [&] { await(gate); });
    x = {relu(x.x + b.x), relu(x.y + b.y), relu(x.z + b.z), relu(x.w + b.w)};
    four(out + place) = x;
    if (l + 1 < LAYERS) return;
    if (slope)
      four(slope + place) = {x.x > 0.f ? w.x : 0.f, x.y > 0.f ? w.y : 0.f, x.z > 0.f ? w.z : 0.f,
                             x.w > 0.f ? w.w : 0.f};
    float sum = x.x * w.x + x.y * w.y + x.z * w.z + x.w * w.w;
#pragma unroll
    for (int k = 4; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    if (j == 0) value[(net * TILES + column / 32) * ROWS + row + i] = column ? sum : sum + last;
  });
}

// Computes the gradient of the values w.r.t. the pre-activations of layer l - 1. `from` contains the gradient w.r.t.
// the pre-activations of layer l.
FUNCTION void backward(int& turn, Gate& gate, const float* nets, int count, int l, const float* signal,
                       const float* from, float* to) {
  const int wide = width[l], next = width[l + 1], across = wide / 32, each = ROWS / 32 * across;
  share(turn, count * each, [&](int job) {
    const int net = job / each, row = job % each / across * 32, column = job % across * 32;
    const int place = (net * ROWS + row + threadIdx.x / 8) * wide + column + threadIdx.x % 8 * 4;
    const float4 h = four(signal + place);
    const float4 x = product<true, true>(from + (net * ROWS + row) * next, next,
                                         nets + net * CRITIC + matrix[l] + column * next, next, next, nullptr, 1,
                                         [&] { await(gate); });
    four(to + place) = {h.x > 0.f ? x.x : 0.f, h.y > 0.f ? x.y : 0.f, h.z > 0.f ? x.z : 0.f, h.w > 0.f ? x.w : 0.f};
  });
}

// -------------------------------------------------------------------------------------------- learning

// Settings of Adam. Four arrays contain the weights, their first moments, their second moments and the target weights.
// Each array starts `apart` elements after the previous array. The factors `first` and `second` correct the bias of the
// moments.
struct Adam { int apart; float rate, first, second; };
template <int N> struct alignas(4 * N) Some { float x[N]; };
template <int N> struct Weights {
  Some<N> part[4] = {};
  __device__ __forceinline__ void read(const float* at, const Adam& adam) {
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = *reinterpret_cast<const Some<N>*>(at + i * adam.apart);
  }
  __device__ __forceinline__ void improve(float* at, const Some<N> slope, const Adam& adam) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float &w = part[0].x[i], &m = part[1].x[i], &v = part[2].x[i], &slow = part[3].x[i], g = slope.x[i];
      m = @B1_REST@ * g + @B1@ * m;
      v = @B2_REST@ * (g * g) + @B2@ * v;
      w -= adam.rate * (m * adam.first / (sqrtf(v * adam.second) + @EPSILON@));
      slow += FOLLOW * (w - slow);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *reinterpret_cast<Some<N>*>(at + i * adam.apart) = part[i];
  }
};

// Updates the matrix [wide, next] of one layer in each of `count` networks.
// - `between` is the number of elements from the start of one network to the start of the next.
// - `in` contains the inputs of the layer, [ROWS, wide] for each network.
// - `in_apart` is the number of elements from the inputs of one network to the inputs of the next.
// - `slope` contains the gradients w.r.t. the pre-activations, [ROWS, next] for each network.
// - `scale` contains a factor for each row, or is null.
// - If `early` is true, `in` and `slope` may be read before `ready` is called.
template <class Ready>
FUNCTION void improve_matrix(int& turn, float* nets, int count, int between, int wide, int next, const float* in,
                             int in_apart, const float* slope, const Adam& adam, const float* scale, bool early,
                             Ready ready) {
  const int across = next / 32, each = wide / 32 * across;
  share(turn, count * each, [&](int job) {
    const int net = job / each, row = job % each / across * 32, column = job % across * 32;
    float* at = nets + net * between + (row + threadIdx.x / 8) * next + column + threadIdx.x % 8 * 4;
    Weights<4> weights;
    weights.read(at, adam);
    const float4 x = product<false, false>(in + net * in_apart + row, wide, slope + net * ROWS * next + column, next,
                                           ROWS, scale ? scale + net * ROWS : nullptr, early ? 2 : 0, ready);
    weights.improve(at, {x.x, x.y, x.z, x.w}, adam);
  });
}

// Updates a vector [wide] in each of `count` networks. The gradient of the vector consists of the column sums of `in`
// [ROWS, wide]. If `scale` is given, it contains a factor for each row. If `in` is null, only the first entry of the
// vector has a gradient, which is the sum of `scale`.
FUNCTION void improve_vector(int& turn, float* nets, int count, int between, int wide, const float* in,
                             const Adam& adam, const float* scale) {
  const int each = wide / 32;
  share(turn, count * each, [&](int job) {
    const int net = job / each, column = job % each * 32 + threadIdx.x % 32;
    float* at = nets + net * between + column;
    Weights<1> weight;
    weight.read(at, adam);
    float sum = 0.f, *part = reinterpret_cast<float*>(stage());
    const int start = net * ROWS + threadIdx.x / 32;
    int place = start * wide + column;
#pragma unroll 32
    for (int r = 0; r < ROWS; r += THREADS / 32, place += THREADS / 32 * wide)
      sum += (scale ? scale[start + r] : 1.f) * (in ? in[place] : column == 0);
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
      for (int w = 1; w < THREADS / 32; ++w) sum += part[32 * w + threadIdx.x];
      weight.improve(at, {sum}, adam);
    }
    __syncthreads();
  });
}

// ------------------------------------------------------------------------------- the actor, a few rows per block

// Multiplies `in` [TOGETHER, depth] by a matrix [depth, columns], and adds `start` [columns] if it is given. If
// ACROSS is true, the matrix is stored as [columns, depth].
template <bool ACROSS>
FUNCTION void by_rows(const float* in, int depth, const float* weights, int stride, int columns, const float* start,
                      float* out) {
  const int fill = (columns + 31) / 32 * 32, wide = fill < THREADS ? fill : THREADS, parts = THREADS / wide;
  const int part = threadIdx.x / wide;
  float* sums = reinterpret_cast<float*>(stage()) + 2 * TOGETHER * WIDEST;
#pragma unroll 1
  for (int first = 0; first < columns; first += wide) {
    const int column = first + threadIdx.x % wide;
    float sum[TOGETHER] = {};
    if (column < columns && part < parts) {
      constexpr int AHEAD = 4;  // reads before the first one is used
      const float more = start && part == 0 ? start[column] : 0.f;
#pragma unroll 1
      for (int from = 4 * part; from < depth; from += 4 * AHEAD * parts) {
        float4 w[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
          const int k = min(from + 4 * i * parts, depth - 4);
          const float* at = weights + (ACROSS ? column * stride + k : k * stride + column);
          w[i] = ACROSS ? four(at) : float4{at[0], at[stride], at[2 * stride], at[3 * stride]};
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
          if (const int k = from + 4 * i * parts; k < depth)
#pragma unroll
            for (int r = 0; r < TOGETHER; ++r) {
              const float4 x = four(in + r * WIDEST + k);
              sum[r] += x.x * w[i].x + x.y * w[i].y + x.z * w[i].z + x.w * w[i].w;
            }
      }
#pragma unroll
      for (int r = 0; r < TOGETHER; ++r) sum[r] += more;
    }
    if (part < parts)
#pragma unroll
      for (int r = 0; r < TOGETHER; ++r) sums[(part * TOGETHER + r) * wide + threadIdx.x % wide] = sum[r];
    __syncthreads();
    for (int i = threadIdx.x; i < TOGETHER * wide; i += THREADS) {
      float total = 0.f;
      for (int p = 0; p < parts; ++p) total += sums[p * TOGETHER * wide + i];
      if (first + i % wide < fill) out[i / wide * WIDEST + first + i % wide] = total;
    }
    __syncthreads();
  }
}

// Calls each(row, column) for all entries of a matrix [TOGETHER, wide].
template <class Each> FUNCTION void all(int wide, Each each) {
#pragma unroll 1
  for (int i = threadIdx.x; i < TOGETHER * wide; i += THREADS) each(i / wide, i % wide);
  __syncthreads();
}

// Reads TOGETHER observations from the critics' `inputs`, starting at `row`. Computes the actor's actions for these
// observations, and writes the actions to `inputs`. If `noise` is given, adds it to the actions. If `kept` is given,
// stores the actor's signals there.
FUNCTION void act(const float* net, const float* noise, int row, float* inputs, float* kept) {
  float *signal = reinterpret_cast<float*>(stage()), *next = signal + TOGETHER * WIDEST;
  all(actor_width[0], [&](int r, int k) {
    const float x = k < OBSERVATION ? inputs[(row + r) * IN + k] : 0.f;
    signal[r * WIDEST + k] = x;
    if (kept) kept[(row + r) * actor_width[0] + k] = x;
  });
#pragma unroll 1
  for (int l = 0; l < ACTOR_LAYERS; ++l) {
    const int wide = actor_width[l + 1];
    by_rows<false>(signal, actor_width[l], net + actor_matrix[l], wide, wide, net + actor_bias[l], next);
    all(wide, [&](int r, int c) {
      float x = next[r * WIDEST + c];
      x = l == ACTOR_LAYERS - 1 ? @OUTPUT@(x) : @HIDDEN@(x);
      signal[r * WIDEST + c] = x;
      if (kept) kept[ROWS * actor_before[l + 1] + (row + r) * wide + c] = x;
    });
  }
  all(IN - OBSERVATION, [&](int r, int c) {
    float x = c < ACTION ? signal[r * WIDEST + c] : 0.f;
    if (noise && c < ACTION && row + r < BATCH) {
      x += noise[(row + r) * ACTION + c];
      x = x < -1.f ? -1.f : x > 1.f ? 1.f : x;
    }
    inputs[(row + r) * IN + OBSERVATION + c] = x;
  });
}

// Computes the gradient of the actor's loss w.r.t. the pre-activations of the actor's layers. `from` contains the
// gradient of the first critic's value w.r.t. the pre-activations of that critic's first layer.
FUNCTION void act_back(const float* net, const float* critic, const float* from, const float* kept, int row,
                       float* to) {
  float *signal = reinterpret_cast<float*>(stage()), *next = signal + TOGETHER * WIDEST;
  all(width[1], [&](int r, int c) { signal[r * WIDEST + c] = from[(row + r) * width[1] + c]; });
  by_rows<true>(signal, width[1], critic + OBSERVATION * width[1], width[1], ACTION, nullptr, next);
#pragma unroll 1
  for (int l = ACTOR_LAYERS; l > 0; --l) {
    const int wide = actor_width[l];
    const bool last = l == ACTOR_LAYERS;
    if (!last)
      by_rows<true>(signal, actor_width[l + 1], net + actor_matrix[l], actor_width[l + 1], wide, nullptr, next);
    all(wide, [&](int r, int c) {
      const int place = ROWS * actor_before[l] + (row + r) * wide + c;
      const float y = kept[place];
      float x = next[r * WIDEST + c] * (last ? @OUTPUT@_slope(y) / -BATCH : @HIDDEN@_slope(y));
      if (last && (c >= ACTION || row + r >= BATCH)) x = 0.f;
      signal[r * WIDEST + c] = to[place] = x;
    });
  }
}

// ----------------------------------------------------------------------------------------- training

// Copies the transitions of one round into `work`. `index` selects these transitions. The actor step uses the batch of
// the last critic step.
FUNCTION void gather(int& turn, const float* observation, const float* action, const float* reward,
                     const float* next_observation, const unsigned char* ended, const int* index, float* work) {
  constexpr int EACH = 16;  // rows per job
  share(turn, (2 * DELAY + 1) * ROWS / EACH, [&](int job) {
#pragma unroll 2
    for (int i = threadIdx.x; i < EACH * IN; i += THREADS) {
      const int place = EACH * job + i / IN, k = i % IN, c = k - OBSERVATION;
      const int of = place / ROWS, row = min(place % ROWS, BATCH - 1);
      const size_t from = index[(of < DELAY ? of : of < 2 * DELAY ? of - DELAY : DELAY - 1) * BATCH + row];
      const float* observed = of < DELAY || of == 2 * DELAY ? observation : next_observation;
      if (c < 0 || of < DELAY)  // the actor computes the other actions later
        work[INPUTS + place * IN + k] =
            c < 0 ? observed[from * OBSERVATION + k] : c < ACTION ? action[from * ACTION + c] : 0.f;
      if (k == 0 && of < DELAY)
        work[REWARD + place] = reward[from], work[LASTING + place] = ended[from] ? 0.f : DISCOUNT;
    }
  });
}

// For one training step, computes the gradient of the critics' loss w.r.t. the critics' values.
FUNCTION void find_errors(int step, const float* work) {
  for (int r = threadIdx.x; r < ROWS; r += THREADS) {
    float value[2] = {}, future[2] = {};
#pragma unroll 8
    for (int t = 0; t < TILES; ++t)
#pragma unroll
      for (int net = 0; net < 2; ++net) {
        value[net] += work[VALUE + (net * TILES + t) * ROWS + r];
        future[net] += work[SLOW_VALUE + (net * TILES + t) * ROWS + r];
      }
    const float least = future[0] < future[1] || future[0] != future[0] ? future[0] : future[1];
    const float lasting = work[LASTING + step * ROWS + r];
    const float target = work[REWARD + step * ROWS + r] + (lasting == 0.f ? 0.f : lasting * least);
#pragma unroll
    for (int net = 0; net < 2; ++net) errors()[net * ROWS + r] = r < BATCH ? 2.f / BATCH * (value[net] - target) : 0.f;
  }
  __syncthreads();
}

// Runs `rounds` rounds. Each dimension `_` in the following shapes has one entry per round:
// - critics[4, 2, CRITIC] and actor[4, ACTOR]: weights, the two moments of Adam, target weights;
// - index[_, DELAY, BATCH]: indices of the sampled transitions;
// - noise[_, DELAY, BATCH, ACTION]: noise on the actions of the target actor;
// - corrections[_, DELAY + 1, 2]: bias corrections of Adam's moments.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
training(const float* observation, const float* action, const float* reward, const float* next_observation,
         const unsigned char* ended, const int* index, const float* noise, const float* corrections, const int* rounds,
         const float*, const float*, const unsigned*, float* critics, float* actor, unsigned* arrived, float* work) {
  constexpr int ROW_JOBS = ROWS / TOGETHER, PHASES = 2 * LAYERS - 1;  // forward and backward
  const int count = *rounds;
  const float *slow = critics + 6 * CRITIC, *slow_actor = actor + 3 * ACTOR;
  Gate gate = {arrived, 0, true};
  int turn;
#pragma unroll 1
  for (int round = -1; round < count; ++round) {  // round -1 only prepares round 0
#pragma unroll 1
    for (int step = round < 0 ? DELAY : 0; step <= DELAY; ++step) {  // the last step is the actor's
      const bool actors = step == DELAY, more = round + 1 < count;
      const float* inputs = work + (actors ? PROPOSED : INPUTS + step * ROWS * IN);
      const int done = step == 0;  // layers of this step that the previous round has computed
      // In the first step, the target critics start one phase later, because the target actor computes its actions in
      // phase 0. Therefore, the target critics may need more phases than the learning critics.
      const int phases = actors ? PHASES + 2 : done ? max(LAYERS + 1, PHASES - 1) : PHASES;
#pragma unroll 1
      for (int phase = round < 0 ? PHASES : 0; phase < phases; ++phase) {
        const bool next = phase == PHASES + 1;  // also computes the first layer of the next round
        turn = blockIdx.x;
        if (phase == 0 || phase >= PHASES) await(gate);  // in other phases, products wait after their first reads
        if (actors && phase == PHASES) {
          share(turn, round < 0 ? 0 : ROW_JOBS, [&](int job) {
            act_back(actor, critics, work + SLOPE, work + ACTED, job * TOGETHER, work + ACTOR_SLOPE);
          });
          if (more)
            gather(turn, observation, action, reward, next_observation, ended, index + (round + 1) * DELAY * BATCH, work);
        }
        if (next && round >= 0) {
          const float* correction = corrections + 2 * (round * (DELAY + 1) + DELAY);
          const Adam adam = {ACTOR, ACTOR_RATE, 1.f / correction[0], 1.f / correction[1]};
#pragma unroll 1
          for (int l = 0; l < ACTOR_LAYERS; ++l) {
            const float* slope = work + ACTOR_SLOPE + ROWS * actor_before[l + 1];
            improve_matrix(turn, actor + actor_matrix[l], 1, 0, actor_width[l], actor_width[l + 1],
                           work + ACTED + ROWS * actor_before[l], 0, slope, adam, nullptr, false, [] {});
            improve_vector(turn, actor + actor_bias[l], 1, 0, actor_width[l + 1], slope, adam, nullptr);
          }
        }
        if (step == 0 && phase == 0)
          share(turn, (DELAY + 1) * ROW_JOBS, [&](int job) {
            const int of = job / ROW_JOBS, row = job % ROW_JOBS * TOGETHER;
            const bool ahead = of < DELAY;
            act(ahead ? slow_actor : actor, ahead ? noise + (size_t)(round * DELAY + of) * BATCH * ACTION : nullptr, row,
                work + FOLLOWING + of * ROWS * IN, ahead ? nullptr : work + ACTED);
          });
        // Computes one layer of the target critics (which = 0), then one layer of the learning critics (which = 1).
        // The actor's step does not use the target critics.
#pragma unroll 1
        for (int which = actors || phase < done ? 1 : 0; which < 2; ++which) {
          const int l = !which ? phase - done : next && more ? 0 : phase + done;
          if (l >= LAYERS) continue;
          float* signal = work + (which ? SIGNAL : SLOW);
          const float* first = !which ? work + FOLLOWING + step * ROWS * IN : next ? work + INPUTS : inputs;
          forward(turn, gate, which ? critics : slow, actors && !next ? 1 : 2, l,
                  l ? signal + 2 * ROWS * before[l] : first, l ? ROWS * width[l] : 0, signal + 2 * ROWS * before[l + 1],
                  which ? work + SLOPE + 2 * ROWS * before[l + 1] : nullptr, work + (which ? VALUE : SLOW_VALUE));
        }
        if (phase + done >= LAYERS && phase + done < PHASES) {
          const int l = PHASES - phase - done, here = 2 * ROWS * before[l], there = 2 * ROWS * before[l + 1];
          backward(turn, gate, critics, actors ? 1 : 2, l, work + SIGNAL + here, work + SLOPE + there,
                   work + SLOPE + here);
        }
        arrive(gate);
      }
      if (actors) break;
      const float* correction = corrections + 2 * (round * (DELAY + 1) + step);
      const Adam adam = {2 * CRITIC, RATE, 1.f / correction[0], 1.f / correction[1]};
      turn = blockIdx.x;
      // Computes the gradient of the loss w.r.t. the critics' values as soon as these values are complete. In the first
      // step, this is after the last phase. In later steps, it is before the last phase, unless the critics have only
      // one hidden layer.
      auto ready = [&] {
        if (gate.open) return;
#pragma unroll 1
        for (int open = 0; open < 2; ++open) {
          if (open == (step == 0 || LAYERS == 1)) find_errors(step, work);
          await(gate);
        }
      };
#pragma unroll 1
      for (int l = LAYERS - 1; l >= 0; --l)
        improve_matrix(turn, critics + matrix[l], 2, CRITIC, width[l], width[l + 1],
                       l ? work + SIGNAL + 2 * ROWS * before[l] : inputs, l ? ROWS * width[l] : 0,
                       work + SLOPE + 2 * ROWS * before[l + 1], adam, errors(), l == LAYERS - 1 && LAYERS > 1, ready);
      ready();
#pragma unroll 1
      for (int l = 0; l <= LAYERS + 1; ++l) {  // hidden biases, output weights, output bias
        const int to = l < LAYERS ? bias[l] : l == LAYERS ? matrix[LAYERS] : bias[LAYERS];
        const int from = (l < LAYERS ? SLOPE : SIGNAL) + 2 * ROWS * before[min(l + 1, LAYERS)];
        improve_vector(turn, critics + to, 2, CRITIC, l <= LAYERS ? width[min(l + 1, LAYERS)] : 32,
                       l <= LAYERS ? work + from : nullptr, adam, errors());
      }
      arrive(gate);
    }
  }
}
