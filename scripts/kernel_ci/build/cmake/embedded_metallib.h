// What a Metal kernel includes as EMBEDDED_METALLIB_HEADER: its compiled .metal files. They are in
// a section of the library of their own, not in this header. For manual reference counting and ARC.
#ifndef KERNEL_CI_EMBEDDED_METALLIB_H_
#define KERNEL_CI_EMBEDDED_METALLIB_H_

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <mach-o/getsect.h>
#include <mach-o/ldsyms.h>

namespace kernel_ci_metallib {

/// Returns the kernels of this library for a GPU, owned by the caller; nil where that fails, with
/// the reason in `error`.
inline id<MTLLibrary> createLibrary(id<MTLDevice> device, NSError** error = nullptr) {
  unsigned long size = 0;
  const void* bytes = getsectiondata(&_mh_dylib_header, "__TEXT", "__metallib", &size);
  // The bytes are there as long as this library: nothing to copy, nothing to free.
  dispatch_data_t data = dispatch_data_create(bytes, size, nullptr, ^{});
  id<MTLLibrary> library = [device newLibraryWithData:data error:error];
#if !__has_feature(objc_arc)
  dispatch_release(data);
#endif
  return library;
}

}  // namespace kernel_ci_metallib

#endif  // KERNEL_CI_EMBEDDED_METALLIB_H_
