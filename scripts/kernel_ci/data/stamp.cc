// The build stamp: which release of apache-tvm-ffi a library was compiled with, readable
// from the file without running it. Compiled into every kernel library, with
//   -DKERNEL_CI_TVM_FFI_VERSION=0.1.15.post2      (the package's version, unquoted)
//   -DKERNEL_CI_RULES_OUT=error-cell              (optional: risks that the sources rule
//                                                  out, comma-separated, unquoted)
//
// Why the version is given: the header macros do not name the release (those of
// 0.1.13.post3 say 0.1.14). Both are embedded, so that a wrong include path shows.
// An exported data symbol survives strip, hidden visibility, --gc-sections and LTO, and
// exists alike in ELF, Mach-O and PE. Its name must not begin with `__tvm_ffi_`, which the
// loader offers as callables.
#include <tvm/ffi/c_api.h>

#ifndef KERNEL_CI_TVM_FFI_VERSION
#error "define KERNEL_CI_TVM_FFI_VERSION as the version of the apache-tvm-ffi package"
#endif

#ifndef KERNEL_CI_RULES_OUT
#define KERNEL_CI_RULES_OUT
#endif

#define KERNEL_CI_TEXT_(...) #__VA_ARGS__
#define KERNEL_CI_TEXT(...) KERNEL_CI_TEXT_(__VA_ARGS__)

#if defined(_WIN32)
#define KERNEL_CI_STAMP_EXPORT __declspec(dllexport)
#else
#define KERNEL_CI_STAMP_EXPORT __attribute__((visibility("default")))
#endif
#if defined(__GNUC__)
#define KERNEL_CI_STAMP_KEPT __attribute__((used))
#else
#define KERNEL_CI_STAMP_KEPT
#endif

extern "C" {
KERNEL_CI_STAMP_EXPORT extern const char kernel_ci_build_stamp[];
KERNEL_CI_STAMP_KEPT const char kernel_ci_build_stamp[] =
    "{\"format\": 1, \"tvm-ffi\": \"" KERNEL_CI_TEXT(KERNEL_CI_TVM_FFI_VERSION)
    "\", \"header-macro\": \"" KERNEL_CI_TEXT(TVM_FFI_VERSION_MAJOR)
    "." KERNEL_CI_TEXT(TVM_FFI_VERSION_MINOR) "." KERNEL_CI_TEXT(TVM_FFI_VERSION_PATCH)
    "\", \"rules-out\": \"" KERNEL_CI_TEXT(KERNEL_CI_RULES_OUT) "\"}";
}
