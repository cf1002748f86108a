// A stand-in for an accelerator's runtime, on the host: what the faults of kernels for
// accelerators need, and nothing else. It shows that the kit's cases catch such faults where no
// accelerator is; it says nothing about any real one.
//
// As on real ones: memory belongs to a device, and a launch on another device cannot reach it;
// streams run what they are given in order, and the default stream does not wait for the others;
// a launch of no blocks is an error that is kept until somebody asks.
#ifndef WRONG_STAND_IN_H_
#define WRONG_STAND_IN_H_

#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace stand_in {

struct Stream {
  bool busy = false;
  std::deque<std::function<void()>> waiting;
};

struct State {
  int current = 0;
  std::string error;
  std::map<uintptr_t, std::pair<uintptr_t, int>> memory;  // begin -> (end, device)
  Stream stream;
};

inline State& TheState() {
  static State state;
  return state;
}

inline int DeviceOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const auto& [begin, rest] : TheState().memory) {
    if (begin <= address && address < rest.first) return rest.second;
  }
  return -1;
}

/// Runs `kernel(index, count)` for each of `blocks` blocks, now or when the stream gets to it.
inline void Launch(int64_t blocks, void* stream, const void* out, const void* x,
                   std::function<void(int64_t, int64_t)> kernel) {
  State& state = TheState();
  if (blocks == 0) {
    state.error = "invalid configuration argument";
    return;
  }
  if (DeviceOf(out) != state.current || DeviceOf(x) != state.current) {
    state.error = "an illegal memory access was encountered";
    return;
  }
  auto run = [=] {
    for (int64_t block = 0; block < blocks; ++block) kernel(block, blocks);
  };
  if (stream != nullptr && state.stream.busy) {
    state.stream.waiting.push_back(run);
  } else {
    run();
  }
}

// --- What the tests call ---

inline void Register(int64_t begin, int64_t size, int64_t device) {
  auto& memory = TheState().memory;
  const auto first = static_cast<uintptr_t>(begin), end = first + static_cast<uintptr_t>(size);
  // What was there before has been freed.
  for (auto it = memory.begin(); it != memory.end();) {
    it = it->first < end && first < it->second.first ? memory.erase(it) : std::next(it);
  }
  memory[first] = {end, static_cast<int>(device)};
}

inline std::string TakeError() { return std::exchange(TheState().error, ""); }

inline int64_t Current() { return TheState().current; }

inline int64_t BusyStream() {
  TheState().stream.busy = true;
  return reinterpret_cast<int64_t>(&TheState().stream);
}

inline void CopyLater(int64_t from, int64_t to, int64_t size) {
  TheState().stream.waiting.push_back([=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  });
}

inline void Finish() {
  Stream& stream = TheState().stream;
  stream.busy = false;
  for (; !stream.waiting.empty(); stream.waiting.pop_front()) stream.waiting.front()();
}

}  // namespace stand_in

TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_register, stand_in::Register);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_take_error, stand_in::TakeError);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_current, stand_in::Current);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_busy_stream, stand_in::BusyStream);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_copy_later, stand_in::CopyLater);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_finish, stand_in::Finish);

#endif  // WRONG_STAND_IN_H_
