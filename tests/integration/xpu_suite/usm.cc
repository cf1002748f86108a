// Queues and device memory of SYCL's CPU device, for the tests' Python.
#include <sycl/sycl.hpp>

#include <chrono>
#include <cstddef>
#include <thread>

extern "C" {

void* usm_queue(int in_order) {
  sycl::property_list properties;
  if (in_order) properties = {sycl::property::queue::in_order()};
  return new sycl::queue(sycl::cpu_selector_v, properties);
}

void* usm_allocate(void* queue, size_t bytes) {
  return sycl::aligned_alloc_device(64, bytes, *static_cast<sycl::queue*>(queue));
}

void usm_free(void* queue, void* memory) { sycl::free(memory, *static_cast<sycl::queue*>(queue)); }

void usm_copy(void* queue, void* to, const void* from, size_t bytes) {
  static_cast<sycl::queue*>(queue)->memcpy(to, from, bytes);
}

void usm_wait(void* queue) { static_cast<sycl::queue*>(queue)->wait_and_throw(); }

/// Keeps an in-order queue busy; `done` is set afterwards.
void usm_delay(void* queue, int milliseconds, volatile int* done) {
  static_cast<sycl::queue*>(queue)->submit([=](sycl::handler& handler) {
    handler.host_task([=] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      *done = 1;
    });
  });
}

}  // extern "C"
