// relu on Apple GPUs: encodes the kernel of relu.metal on the framework's command queue.
// Written for manual reference counting, which is the compiler's default.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "../relu.h"
#include "launch.h"

// The compiled relu.metal: the build names a header with `createLibrary`, and its namespace.
#include EMBEDDED_METALLIB_HEADER

namespace relu {
namespace {

/// Throws unless there is an object; `error` may say why there is none.
void Check(id object, const char* what, NSError* error = nil) {
  if (object != nil) return;
  const char* why = error == nil ? "Metal does not say why" : error.localizedDescription.UTF8String;
  TVM_FFI_THROW(RuntimeError) << "relu: " << what << " failed: " << why;
}

/// What is made once for each GPU and kept until the process ends.
class Gpu {
 public:
  static Gpu& Of(id<MTLDevice> device) {
    static std::mutex mutex;
    static auto& gpus = *new std::map<uint64_t, Gpu>();
    const std::lock_guard<std::mutex> lock(mutex);
    return gpus.try_emplace(device.registryID, device).first->second;
  }

  explicit Gpu(id<MTLDevice> device) : device_([device retain]) {}

  /// The kernel for elements of a size in bytes.
  id<MTLComputePipelineState> Pipeline(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    id<MTLComputePipelineState>& pipeline = pipelines_[bytes];
    if (pipeline != nil) return pipeline;
    NSError* error = nil;
    if (library_ == nil) library_ = EMBEDDED_METALLIB_NAMESPACE::createLibrary(device_, &error);
    Check(library_, "loading the kernels", error);
    NSString* name = [NSString stringWithFormat:@"relu_%zu", bytes];
    id<MTLFunction> function = [library_ newFunctionWithName:name];
    Check(function, "finding the kernel");
    pipeline = [device_ newComputePipelineStateWithFunction:function error:&error];
    [function release];
    Check(pipeline, "preparing the kernel", error);
    return pipeline;
  }

  /// A queue for callers whose framework names none.
  id<MTLCommandQueue> Queue() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queue_ == nil) queue_ = [device_ newCommandQueue];
    Check(queue_, "making a command queue");
    return queue_;
  }

 private:
  id<MTLDevice> device_;
  std::mutex mutex_;
  id<MTLLibrary> library_ = nil;
  id<MTLCommandQueue> queue_ = nil;
  std::map<size_t, id<MTLComputePipelineState>> pipelines_;
};

/// DLPack's data pointer is the MTLBuffer itself, and byte_offset counts from its start.
id<MTLBuffer> Buffer(const char* name, tvm::ffi::TensorView tensor) {
  auto buffer = (__bridge id<MTLBuffer>)tensor.data_ptr();
  const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * (tensor.dtype().bits / 8);
  const uint64_t length = buffer.length;
  if (tensor.byte_offset() > length || bytes > length - tensor.byte_offset()) {
    TVM_FFI_THROW(ValueError) << "relu: `" << name << "` needs " << bytes << " bytes from byte "
                              << tensor.byte_offset() << " on; its MTLBuffer has " << length;
  }
  return buffer;
}

/// Encodes and commits the kernel. Returns what went wrong, or nothing.
std::string Encode(id<MTLCommandQueue> queue, id<MTLComputePipelineState> pipeline,
                   id<MTLBuffer> out, id<MTLBuffer> x, const Launch& launch, int64_t groups,
                   bool wait) {
  // Nothing is thrown in here: the pool would not be emptied.
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    if (encoder == nil) return "the command queue gives no encoder";
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:out offset:0 atIndex:0];
    [encoder setBuffer:x offset:0 atIndex:1];
    [encoder setBytes:&launch length:sizeof(launch) atIndex:2];
    [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(kThreads, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    if (!wait) return "";
    [commands waitUntilCompleted];
    if (commands.status != MTLCommandBufferStatusError) return "";
    return commands.error.localizedDescription.UTF8String;
  }
}

}  // namespace

void Run(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  const DLDevice device = x.device();
  id<MTLBuffer> x_buffer = Buffer("x", x);
  id<MTLBuffer> out_buffer = Buffer("out", out);
  Gpu& gpu = Gpu::Of(x_buffer.device);
  // The queue that the framework works on now. Where it names none, as PyTorch, whatever makes
  // `x` has to be done already, and the result is there when this function returns.
  auto queue =
      (__bridge id<MTLCommandQueue>)TVMFFIEnvGetStream(device.device_type, device.device_id);
  const bool own = queue == nil;
  if (own) queue = gpu.Queue();
  if (out_buffer.device != x_buffer.device || queue.device != x_buffer.device) {
    TVM_FFI_THROW(ValueError) << "relu: `x`, `out` and the framework's command queue need to be on "
                                 "the same GPU";
  }
  VisitDtype(x.dtype(), [&](auto neg_inf) {
    constexpr int64_t kSize = sizeof(neg_inf);
    const Launch launch =
        MakeLaunch(out.byte_offset(), x.byte_offset(), x.numel(), kSize, neg_inf);
    const std::string error = Encode(queue, gpu.Pipeline(kSize), out_buffer, x_buffer, launch,
                                     Groups(launch, kSize), own);
    if (!error.empty()) TVM_FFI_THROW(RuntimeError) << "relu: the kernel failed: " << error;
  });
}

}  // namespace relu
