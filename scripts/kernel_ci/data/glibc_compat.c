// What a static libstdc++ takes from a glibc that is newer than 2.28 (see toolchains/sysroot.py).
// Hidden, so that every library has its own and none is exported.
#include <stdint.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

// glibc 2.32: whether the process has one thread, which makes atomic operations needless. "No" is
// always right.
char __libc_single_threaded = 0;

// glibc 2.36: a random number, for std::random_device.
uint32_t arc4random(void) {
  uint32_t value = 0;
  while (getentropy(&value, sizeof value) != 0) {
  }
  return value;
}

#pragma GCC visibility pop
