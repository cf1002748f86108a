// relu on the CPU: one loop, which the compiler vectorises for the baseline instruction set
// (SSE2, NEON) and, on x86-64, once more for AVX2.
//
// AVX-512 is left out: memory is the limit, and it measured no faster than AVX2. Threads are left
// out too: how many a process may use is its framework's to say, which tvm-ffi does not pass on.
#include <tvm/ffi/container/tensor.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "../relu.h"

// `out` and `x` are apart or the same memory, so no iteration depends on another one. Without
// this promise the compiler adds a check at run time that sends in-place calls to scalar code.
#if defined(__clang__)
#define RELU_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define RELU_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace relu {
namespace {

/// `neg_inf` are the bits of -infinity (see relu.h). Inlined, so that it is compiled for the
/// instruction set of its caller.
template <typename Bits>
__attribute__((always_inline)) inline void Loop(char* out, const char* x, int64_t numel,
                                                Bits neg_inf) {
  // The memory holds floating-point numbers, and may be aligned to bytes only.
  typedef Bits Element __attribute__((may_alias, aligned(1)));
  auto* out_bits = reinterpret_cast<Element*>(out);
  const auto* x_bits = reinterpret_cast<const Element*>(x);
  RELU_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < numel; ++i) {
    const Bits bits = x_bits[i];
    out_bits[i] = bits > neg_inf ? bits : Bits{0};
  }
}

#if defined(__x86_64__)

template <typename Bits>
__attribute__((target("avx2"))) void LoopAvx2(char* out, const char* x, int64_t numel,
                                              Bits neg_inf) {
  Loop(out, x, numel, neg_inf);
}

/// Tensors from this size on are written past the caches: with `x`, they fill a large last-level
/// cache (32 MiB), so what a plain store leaves there is of no use to anyone, and reading each
/// line of `out` before it is overwritten costs a third of the traffic. Measured on an EPYC (Zen
/// 4) in a program of its own: slower at 4 MiB, 1.4 times as fast at 16 MiB.
constexpr int64_t kStreamBytes = int64_t{16} << 20;

/// Like Loop, with stores that go past the caches. `out` needs to be aligned to its elements.
template <typename Bits>
__attribute__((target("avx2"))) void StreamAvx2(char* out, const char* x, int64_t numel,
                                                Bits neg_inf) {
  constexpr int64_t kVectorBytes = 32;
  constexpr int64_t kUnroll = 4;  // Two cache lines.
  constexpr int64_t kPerVector = kVectorBytes / sizeof(Bits);
  typedef Bits Vector __attribute__((vector_size(kVectorBytes)));
  // Streaming stores want vectors at multiples of their size.
  const int64_t before = -reinterpret_cast<uintptr_t>(out) % kVectorBytes / sizeof(Bits);
  Loop(out, x, before, neg_inf);
  out += before * sizeof(Bits);
  x += before * sizeof(Bits);
  numel -= before;
  for (; numel >= kUnroll * kPerVector; numel -= kUnroll * kPerVector) {
    for (int64_t i = 0; i < kUnroll; ++i, x += kVectorBytes, out += kVectorBytes) {
      Vector bits;
      __builtin_memcpy(&bits, x, kVectorBytes);
      bits &= bits > neg_inf;
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out), reinterpret_cast<__m256i&>(bits));
    }
  }
  // Streaming stores are weakly ordered: another thread must not see this call end before them.
  _mm_sfence();
  Loop(out, x, numel, neg_inf);
}

/// Whether both the processor and the operating system support AVX2.
///
/// Asked with CPUID and XGETBV, because __builtin_cpu_supports always answers no in a library
/// that was linked with zig's compiler runtime (0.17.1).
bool HasAvx2() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return false;
  unsigned enabled_low, enabled_high;
  __asm__("xgetbv" : "=a"(enabled_low), "=d"(enabled_high) : "c"(0));
  constexpr unsigned kXmmAndYmm = 0x6;
  if ((enabled_low & kXmmAndYmm) != kXmmAndYmm) return false;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_AVX2);
}

const bool kHasAvx2 = HasAvx2();

#endif  // defined(__x86_64__)

}  // namespace

void Run(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  VisitDtype(x.dtype(), [&](auto neg_inf) {
#if defined(__x86_64__)
    if (kHasAvx2) {
      // In place, the lines of `out` are read in any case.
      const bool stream = x.numel() >= kStreamBytes / static_cast<int64_t>(sizeof(neg_inf)) &&
                          Data(out) != Data(x) &&
                          reinterpret_cast<uintptr_t>(Data(out)) % sizeof(neg_inf) == 0;
      return (stream ? StreamAvx2<decltype(neg_inf)> : LoopAvx2<decltype(neg_inf)>)(
          Data(out), Data(x), x.numel(), neg_inf);
    }
#endif
    Loop(Data(out), Data(x), x.numel(), neg_inf);
  });
}

}  // namespace relu
