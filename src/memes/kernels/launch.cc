// Launches kernels on XLA's stream. The CUDA driver is loaded at run time, so the build does not need CUDA.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Status = int;  // CUresult
using Handle = void*;  // CUlibrary, CUkernel, CUfunction, CUcontext, CUstream

static std::mutex guard;
static std::unordered_map<std::string, Handle> kernels;

// Returns the function `name` of the CUDA driver, or null if the driver or the function is not found.
template <class... T>
static Status (*driver(const char* name, T...))(T...) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return library ? reinterpret_cast<Status (*)(T...)>(dlsym(library, name)) : nullptr;
}

#define CALL(function, ...)                                 \
  do {                                                      \
    auto call = driver(function, __VA_ARGS__);              \
    if (!call) return std::string("CUDA's driver has no ") + function; \
    if (Status status = call(__VA_ARGS__))                  \
      return std::string(function) + " returned error " + std::to_string(status); \
  } while (false)

// Loads the kernel `name` of a compiled image onto devices before its first launch. Kernels must be loaded early,
// because a launch may be recorded into a CUDA graph, and nothing can be loaded during a recording. Returns an error
// message, which is empty on success.
static std::string Load(const char* key, const void* image, const char* name, const int* devices, int count) {
  Handle library = nullptr, kernel = nullptr;
  void* none = nullptr;
  CALL("cuInit", 0u);
  CALL("cuLibraryLoadData", &library, image, none, none, 0u, none, none, 0u);
  CALL("cuLibraryGetKernel", &kernel, library, name);
  for (int i = 0; i < count; ++i) {
    int device = 0;
    Handle context = nullptr, function = nullptr;
    CALL("cuDeviceGet", &device, devices[i]);
    CALL("cuDevicePrimaryCtxRetain", &context, device);
    CALL("cuCtxPushCurrent_v2", context);
    auto get = driver("cuKernelGetFunction", &function, kernel);
    Status status = get ? get(&function, kernel) : 0;
    CALL("cuCtxPopCurrent_v2", &context);
    if (status) return "cuKernelGetFunction returned error " + std::to_string(status);
  }
  std::lock_guard<std::mutex> lock(guard);
  kernels[key] = kernel;
  return "";
}

extern "C" const char* load(const char* key, const void* image, const char* name, const int* devices, int count) {
  static thread_local std::string message;
  message = Load(key, image, name, devices, count);
  return message.c_str();
}

// Returns how many blocks of a kernel the GPU can run at once, or 0 if the driver does not report it.
static int Room(Handle function, int threads) {
  int each = 0, device = 0, processors = 0;
  const int multiprocessor_count = 16;  // number of the device attribute
  size_t shared = 0;
  auto occupancy = driver("cuOccupancyMaxActiveBlocksPerMultiprocessor", &each, function, threads, shared);
  auto current = driver("cuCtxGetDevice", &device);
  auto attribute = driver("cuDeviceGetAttribute", &processors, multiprocessor_count, device);
  if (!occupancy || !current || !attribute) return 0;
  if (occupancy(&each, function, threads, shared) || current(&device)) return 0;
  return attribute(&processors, multiprocessor_count, device) ? 0 : each * processors;
}

// Launches a kernel. The parameters of the kernel are pointers to the arguments and results, followed by `numbers`.
// `size` is the number of elements that one call writes to the first result. If this result has more elements, several
// calls form a batch, and the grid has one row of blocks per call. If `at_once` is true, the launch is cooperative. The
// driver rejects a cooperative launch whose blocks cannot all run at the same time, because these blocks would wait for
// each other forever.
static ffi::Error Launch(void* stream, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                         std::string_view kernel, int32_t blocks, int32_t threads, int64_t size,
                         ffi::Span<const int32_t> numbers, bool at_once) {
  if (size == 0 || blocks == 0) return ffi::Error::Success();
  Handle function = nullptr;
  {
    std::lock_guard<std::mutex> lock(guard);
    auto found = kernels.find(std::string(kernel));
    if (found == kernels.end()) return ffi::Error::Internal("no such kernel: " + std::string(kernel));
    function = found->second;
  }
  std::vector<void*> pointers;
  for (size_t i = 0; i < arguments.size(); ++i)
    pointers.push_back(arguments.get<ffi::AnyBuffer>(i)->untyped_data());
  for (size_t i = 0; i < results.size(); ++i)
    pointers.push_back(results.get<ffi::AnyBuffer>(i).value()->untyped_data());
  std::vector<int32_t> values(numbers.begin(), numbers.end());
  std::vector<void*> parameters;
  for (void*& pointer : pointers) parameters.push_back(&pointer);
  for (int32_t& value : values) parameters.push_back(&value);
  const int64_t batch = results.get<ffi::AnyBuffer>(0).value()->element_count() / size;
  if (batch == 0) return ffi::Error::Success();
  if (batch > 65535) return ffi::Error::Internal("more than 65535 calls in a batch");
  void** extra = nullptr;
  void** list = parameters.data();
  const unsigned high = static_cast<unsigned>(batch), each = threads;
  const unsigned wide = at_once ? std::min(blocks, Room(function, threads)) : blocks;
  if (at_once) {
    static auto launch = driver("cuLaunchCooperativeKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, list);
    if (high > 1 || !launch || !wide) return ffi::Error::Internal("blocks cannot all run at once");
    if (Status status = launch(function, wide, 1, 1, each, 1, 1, 0, stream, list))
      return ffi::Error::Internal("cuLaunchCooperativeKernel returned error " + std::to_string(status));
    return ffi::Error::Success();
  }
  static auto launch = driver("cuLaunchKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, list, extra);
  if (Status status = launch(function, wide, high, 1, each, 1, 1, 0, stream, list, extra))
    return ffi::Error::Internal("cuLaunchKernel returned error " + std::to_string(status));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(LaunchHandler, Launch,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("kernel")
                                  .Attr<int32_t>("blocks")
                                  .Attr<int32_t>("threads")
                                  .Attr<int64_t>("size")
                                  .Attr<ffi::Span<const int32_t>>("numbers")
                                  .Attr<bool>("at_once"),
                              {ffi::Traits::kCmdBufferCompatible});
