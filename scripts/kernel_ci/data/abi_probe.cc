// Compiled (never linked or run) against the headers of one release, to read the sizes
// that its headers give to the types that cross the boundary between a kernel library
// and libtvm_ffi. Each `size_<name>` lands in the object file's data and is read there.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <cstdint>
#include <utility>

#define SIZE(name, ...)                 \
  extern "C" {                          \
  extern const uint64_t size_##name;    \
  const uint64_t size_##name = sizeof(__VA_ARGS__); \
  }

SIZE(DLTensor, DLTensor)
SIZE(TVMFFIAny, TVMFFIAny)
SIZE(TVMFFIByteArray, TVMFFIByteArray)
SIZE(TVMFFIErrorCell, TVMFFIErrorCell)
SIZE(TVMFFIFieldInfo, TVMFFIFieldInfo)
SIZE(TVMFFIFunctionCell, TVMFFIFunctionCell)
SIZE(TVMFFIMethodInfo, TVMFFIMethodInfo)
SIZE(TVMFFIObject, TVMFFIObject)
SIZE(TVMFFIShapeCell, TVMFFIShapeCell)
SIZE(TVMFFITypeAttrColumn, TVMFFITypeAttrColumn)
SIZE(TVMFFITypeInfo, TVMFFITypeInfo)
SIZE(TVMFFITypeMetadata, TVMFFITypeMetadata)
SIZE(ErrorObj, tvm::ffi::ErrorObj)
SIZE(Optional_Function, tvm::ffi::Optional<tvm::ffi::Function>)
SIZE(Optional_Tensor, tvm::ffi::Optional<tvm::ffi::Tensor>)
// The result of a virtual function: a kernel that calls it on the runtime's object
// depends on this size, and no symbol tells.
SIZE(Module_GetFunction, decltype(std::declval<tvm::ffi::ModuleObj&>().GetFunction(
                             std::declval<const tvm::ffi::String&>())))
