// Launches kernels on XLA's stream. Finds CUDA's driver when it runs: builds without CUDA.
#include <dlfcn.h>

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

// A function of the driver, or null.
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

// Loads the kernel `name` of a compiled image onto devices, so that no launch has to: a launch may be
// part of a graph's recording, where nothing can be loaded. Returns what went wrong.
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

// The kernel's parameters: pointers to arguments and results, then the numbers. `size` is the number of
// elements of the first result in one call; where it has more, there is one row of blocks for each.
static ffi::Error Launch(void* stream, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                         std::string_view kernel, int32_t blocks, int32_t threads, int64_t size,
                         ffi::Span<const int32_t> numbers) {
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
  const unsigned wide = blocks, high = static_cast<unsigned>(batch), each = threads;
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
                                  .Attr<ffi::Span<const int32_t>>("numbers"),
                              {ffi::Traits::kCmdBufferCompatible});
